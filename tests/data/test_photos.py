"""Tests of finding photos."""

import pathlib

import pytest

import tbnets.data
from tbnets.data.photos import find_photos, likely_name, list_files


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for name in ("b.jpg", "a.PNG", "more/c.jpeg", "notes.txt"):
        (tmp_path / "photos" / name).write_bytes(b"")
    (tmp_path / "t.csv").write_text(
        "image,caption,split\nb.jpg,p,train\nb.jpg,q,train\nx.jpg,r,test\n"
    )
    return tmp_path


def test_all_photos_of_a_folder_have_their_path_as_id(folder):
    found = find_photos(folder / "photos")
    assert [key for key, _ in found] == ["a.PNG", "b.jpg", "more/c.jpeg"]
    assert all(path.is_file() for _, path in found)


@pytest.mark.parametrize(
    ("splits", "expected"),
    [(None, ["b.jpg", "x.jpg"]), (["test"], ["x.jpg"])],
)
def test_photos_of_captions_stand_once(folder, splits, expected):
    found = find_photos(folder / "photos", "table", folder / "t.csv", splits)
    assert [key for key, _ in found] == expected
    assert found[-1][1] == folder / "photos" / "x.jpg"


def test_a_folder_without_photos_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="--images"):
        find_photos(tmp_path)


def test_the_data_room_reads_no_flags():
    modules = sorted(pathlib.Path(tbnets.data.__file__).parent.glob("*.py"))
    assert len(modules) > 5
    for path in modules:
        assert "absl" not in path.read_text(), path


FILES = ["IMG_1.JPG", "beach/dog.jpg", "beach/Zoë.png"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("IMG_1", "IMG_1.JPG"),
        ("img_1.jpg", "IMG_1.JPG"),
        ("dog.jpg", "beach/dog.jpg"),
        ("photos/beach/dog.jpg", "beach/dog.jpg"),
        ("beach\\dog.jpg", "beach/dog.jpg"),
        ("beach/Zoe\u0308.png", "beach/Zoë.png"),
        ("Dog.png", "beach/dog.jpg"),
    ],
)
def test_a_name_that_is_meant_to_be_a_file(name, file):
    assert likely_name(name, FILES) == file


def test_a_name_of_no_file():
    assert likely_name("cat.jpg", FILES) is None


def test_files_below_a_folder(tmp_path):
    for name in ("b.txt", "a/c.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list_files(tmp_path) == ["a/c.jpg", "b.txt"]
