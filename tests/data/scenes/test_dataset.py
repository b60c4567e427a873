"""Tests of the written data set: bytes, formats, refusals."""

import dataclasses
import hashlib
import json

import pytest

from tbnets.data.scenes.dataset import (
    VERSION,
    annotation_xml,
    draw_scenes,
    ensure_scenes,
    scene_record,
    sentences_text,
)
from tbnets.data.scenes.layout import (
    SPLITS,
    SceneSettings,
)

SETTINGS = SceneSettings(6, 2, 2, image_size=64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenes") / "made"
    ensure_scenes(path, SETTINGS)
    return path


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def entries_of(folder):
    return json.loads((folder / "dataset.json").read_text())["images"]


@pytest.mark.parametrize(
    "seed, expected",
    [(0, "e87089687c6cdf2d"), (1, "0937d171a2add4b6"), (2, "959878d7fd0b36ce")],
)
def test_scenes_of_a_version_are_always_the_same(seed, expected):
    """If another digest is right, VERSION has to be incremented."""
    assert VERSION == 1
    digest = hashlib.sha256()
    for split in SPLITS:
        for one in draw_scenes(split, SceneSettings(20, 5, 5, seed=seed)):
            digest.update(one.image.tobytes())
            digest.update(json.dumps(scene_record(one)).encode())
            digest.update(sentences_text(one).encode())
            digest.update(annotation_xml(one).encode())
    assert digest.hexdigest()[:16] == expected


def test_ensure_scenes_fewer_training_scenes_leave_the_others(folder, tmp_path):
    fewer = dataclasses.replace(SETTINGS, num_train=3)
    ensure_scenes(tmp_path / "fewer", fewer)
    all_files, some = files_of(folder), files_of(tmp_path / "fewer")
    shared = [name for name in some if "/" in name]
    assert len(shared) == 4 * 7
    assert all(some[name] == all_files[name] for name in shared)
    ensure_scenes(tmp_path / "b", dataclasses.replace(SETTINGS, seed=1))
    name = "images/1000000.jpg"
    assert files_of(tmp_path / "b")[name] != all_files[name]


def test_existing_scenes_are_not_written_again(tmp_path):
    (tmp_path / "empty").mkdir()
    settings = SceneSettings(2, 1, 0, image_size=48)
    for path in (tmp_path / "empty", tmp_path / "deep" / "absent"):
        drawn = []
        summary = ensure_scenes(path, settings, drawn.append)
        assert drawn == [1, 1, 1] and summary["reused"] is False
        before = files_of(path)
        assert len(before) == 3 * 4 + 4
        again = ensure_scenes(path, settings, drawn.append)
        assert again == {**summary, "reused": True}
        assert len(drawn) == 3 and files_of(path) == before
    assert (summary["num_train"], summary["num_dev"]) == (2, 1)
    assert summary["version"] == VERSION
    count = sum(len(entry["sentids"]) for entry in entries_of(path))
    assert summary["num_captions"] == count


def test_folder_with_other_content_is_refused(folder, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError, match="clutter: .* 0.5 in the command"):
        ensure_scenes(folder, dataclasses.replace(SETTINGS, clutter=0.5))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        ensure_scenes(tmp_path, SETTINGS)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    monkeypatch.setattr("tbnets.data.scenes.dataset.VERSION", VERSION + 1)
    with pytest.raises(FileExistsError):
        ensure_scenes(folder, SETTINGS)


def test_scenes_of_another_process_are_used(tmp_path):
    def meanwhile(count):
        ensure_scenes(tmp_path / "scenes", SETTINGS)

    summary = ensure_scenes(tmp_path / "scenes", SETTINGS, meanwhile)
    assert summary["reused"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["scenes"]
