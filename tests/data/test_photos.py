"""Tests of finding photos, and of lists of them."""

import os

import pytest

from tbnets.data.archives import has_archives, list_archives
from tbnets.data.captions import CaptionSource
from tbnets.data.photos import (
    find_photo,
    find_photos,
    is_listed,
    left_out_lines,
    list_photos,
    listed_rows,
    sort_files,
)
from tbnets.data.splits import NoSuchSplit
from tbnets.errors import InputError, UserError
from tests import refusals


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for name in ("b.jpg", "a.PNG", "more/c.jpeg", "notes.txt"):
        (tmp_path / "photos" / name).write_bytes(b"")
    (tmp_path / "t.csv").write_text(
        "image,caption,split\nb.jpg,p,train\nb.jpg,q,train\nx.jpg,r,test\n"
    )
    return tmp_path


def test_a_folder_without_photos_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match="notes.txt"):
        find_photos(tmp_path)


def test_other_files_are_listed(folder):
    photos = folder / "photos"
    (photos / "more.tbnets").mkdir()
    (photos / ".git").mkdir()
    hidden = (".DS_Store", ".git/index", "more.tbnets/answers.png")
    for name in ("z.mp4", "y.tar", "more/IMG_1.HEIC", *hidden):
        (photos / name).touch()
    found, others = sort_files(photos)
    assert [*found] == ["a.PNG", "b.jpg", "more/IMG_1.HEIC", "more/c.jpeg"]
    paths = [photos / name for name in found]
    assert paths == list_photos(photos)
    assert find_photos(photos) == [*zip(found, paths)]
    lines = left_out_lines({"a": "is empty"}, others, 9)
    assert "a, which is empty" in lines[0]
    assert "notes.txt, y.tar, z.mp4" in lines[1]
    assert lines[2].startswith("4 of 9 ")
    assert left_out_lines({}, [], 5) == []


SKIPPED = (".a.jpg", ".trash/b.jpg", "@eaDir/cat.jpg/c.jpg", "__MACOSX/d.jpg")
SKIPPED += ("lost+found/e.jpg", "more/photos.tbnets/f.jpg")


def test_hidden_photos_and_folders_of_systems_are_left_out(tmp_path):
    for name in ("cat.jpg", *SKIPPED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        assert is_listed(tmp_path / name, tmp_path) == (name == "cat.jpg")
    assert [*sort_files(tmp_path)[0]] == ["cat.jpg"]
    captions = tmp_path / "t.csv"
    captions.write_text("image,text\nx/cat.png,p\n")
    [(_, path)] = find_photos(tmp_path, CaptionSource(captions))
    assert path == tmp_path / "cat.jpg"


@pytest.fixture
def unlisted(tmp_path, monkeypatch):
    """Returns a folder with a subfolder `more` that cannot be listed."""
    (tmp_path / "more").mkdir()
    for name in ("a.jpg", "more/b.jpg", "more/c.tar"):
        (tmp_path / name).touch()
    listed = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("more"):  # Root can list all folders.
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return tmp_path


@pytest.mark.parametrize("function", [list_photos, list_archives, has_archives])
def test_a_subfolder_that_cannot_be_listed_is_an_error(unlisted, function):
    with pytest.raises(UserError, match="more cannot be listed") as error:
        function(unlisted)
    assert isinstance(error.value, OSError)


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize(
    "name, file", [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)]
)
def test_names_match_in_each_unicode_form(tmp_path, name, file):
    folder = tmp_path / file
    folder.mkdir()
    path = folder / f"{file}.jpg"
    path.touch()
    assert find_photo(tmp_path, f"{name}/{name}.jpg") == path
    assert find_photo(tmp_path, f"{name}/{name}") == path
    captions, names = tmp_path / "t.csv", tmp_path / "list.txt"
    for written in (f"{name}/{name}.jpg", f"{name}.jpg", f"{name}.png", name):
        captions.write_text(f"image,text\n{written},p\n")
        [(_, found)] = find_photos(tmp_path, CaptionSource(captions))
        assert found == path
        names.write_text(f"{written}\n")
        ids = [f"{file}/{file}.jpg", "other.jpg"]
        assert listed_rows(ids, names).tolist() == [0]


SOME = ["1.jpg", "x/12_0ab.jpg", "12a.jpg"]
LINES = ["x/12_0ab.jpg", "12_0ab.jpg", "12_0ab", "12", " 12.jpg "]


@pytest.mark.parametrize(
    "ids, lines, rows",
    [
        *((SOME, f"99\n\n{line}\n", [1]) for line in LINES),
        # A line that is an id names no other photo.
        (["red/1.jpg", "blue/1.jpg", "2.jpg"], "red/1.jpg\n2\n", [0, 2]),
        (["12.jpg", "12_0ab.jpg"], "12.jpg\n", [0]),
        (["red/1.jpg", "blue/1.jpg"], "a/blue/1.png\ngreen/1.jpg\n", [1]),
        # A photo with the suffix in the list is preferred.
        (["red/1.jpg", "red/1.png"], "1.png\n", [1]),
        # What looks like a suffix may be none.
        (["a.png", "a.b.jpg"], "a.b\n", [1]),
    ],
)
def test_list_may_name_a_photo_in_several_ways(tmp_path, ids, lines, rows):
    (tmp_path / "list.txt").write_text(lines)
    assert listed_rows(ids, tmp_path / "list.txt").tolist() == rows


TWO = ["red/1.jpg", "blue/1_0a.jpg", "2.jpg"]


@pytest.mark.parametrize(
    "ids, lines, line",
    [
        *((TWO, f"2\n{line}\n", 2) for line in ("1", "1.png")),
        (["12x_0ab.jpg", "1234.jpg"], "12\n123\n1\n", None),
    ],
)
def test_ambiguous_lines_and_lists_without_photos_are_refused(
    tmp_path, ids, lines, line
):
    path = tmp_path / "list.txt"
    path.write_text(lines)
    with refusals.at(path, line):
        listed_rows(ids, path)


@pytest.mark.parametrize(
    "name, photo",
    [
        ("a.jpg", "a.jpg"),  # As it is.
        ("c", "more/c.png"),
        ("c.jpg", "more/c.png"),
        ("x/more/c.png", "more/c.png"),
        ("less/c.png", None),  # Another folder.
        ("more\\c.png", "more/c.png"),
        ("d", None),  # Two photos.
        ("C", None),
        ("v1.5", None),
    ],
)
def test_a_name_is_matched_to_the_only_photo_that_fits(tmp_path, name, photo):
    for path in ("a.jpg", "more/c.png", "d.jpg", "more/d.png", "v1.jpg"):
        (tmp_path / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / path).touch()
    (tmp_path / "photos" / "stray.tar").write_bytes(b"not an archive")
    captions = CaptionSource(tmp_path / "t.csv")
    other = "" if name == "a.jpg" else "a.jpg,p\n"
    captions.path.write_text(f"image,text\n{other}{name},p\n")
    [*_, (key, path)] = find_photos(tmp_path / "photos", captions)
    assert (key, path) == (name, tmp_path / "photos" / (photo or name))


def test_photo_is_not_matched_to_two_names(tmp_path):
    (tmp_path / "0.jpg").touch()
    path = tmp_path / "t.csv"
    path.write_text("image,text\ntrain/0.jpg,p\ntest/0.jpg,q\n")
    assert CaptionSource(path, images=tmp_path).matches == {}


@pytest.fixture
def captions(tmp_path):
    """Returns a table of four photos in two splits."""
    path = tmp_path / "captions.csv"
    rows = ["a,x,train", "b,y,test", "c,z,train", "d,w,test"]
    path.write_text("\n".join(["image,caption,split", *rows, ""]))
    return path


def test_lists_replace_the_splits_of_captions(tmp_path, captions):
    (tmp_path / "train.txt").write_text("d\na\n")
    (tmp_path / "validation.txt").write_text("b\nelsewhere\n")
    source = CaptionSource(captions, lists=tmp_path / "{split}.txt")
    train = source.read("train")
    assert train.image_ids == ("a", "d")
    assert train.captions == ("x", "w")
    assert train.split == "train"
    assert source.read("dev").image_ids == ("b",)
    with pytest.raises(NoSuchSplit, match="'train', 'validation'"):
        source.read("test")
    with pytest.raises(InputError, match="{split}"):
        CaptionSource(captions, lists=tmp_path / "train.txt").read("train")
