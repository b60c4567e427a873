"""Tests of writing feature stores."""

import os
import re

import numpy as np
import pytest

from tbnets import files
from tbnets.data.store.reader import open_features, open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tests import refusals

EXTRACTION = {"model": "Tiny", "layers": ["conv1"], "low": -0.25}
IDS = [f"{i}.jpg" for i in range(7)]
BROKEN = {"2.jpg": "is cut", "4.jpg": "no image", "5.jpg": "no image"}


class Killed(BaseException):
    """Stands for `kill -9`."""


def extract(path, kind="images", dtype="float32", ids=IDS, **told):
    """Extracts ids, two at a time, and continues an earlier call."""
    with FeatureWriter(path, EXTRACTION | told, 3, dtype, kind) as writer:
        add_all(writer, kind, ids)
        writer.finish()


def add_all(writer, kind, ids):
    for start in range(0, len(ids), 2):
        seen = writer.done | set(writer.failed)
        wanted = [k for k in ids[start : start + 2] if k not in seen]
        good = [key for key in wanted if key not in BROKEN]
        failed = [(key, BROKEN[key]) for key in wanted if key in BROKEN]
        if not wanted:
            continue
        if kind == "images":
            rows = np.asarray([[int(key[0]), 0.5, -1] for key in good])
            writer.add(good, rows, failed=failed)
        else:
            counts = [int(key[0]) % 3 for key in good]
            rows = np.ones((sum(counts), 3))
            boxes = np.ones((sum(counts), 4))
            writer.add(good, rows, boxes, counts, failed=failed)


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def kill_at(monkeypatch, last, moment):
    """Makes the write number `last` raise `Killed`; returns the done writes."""
    calls = []
    append, replace = FeatureWriter._write, files.write_atomically

    def is_last(name):
        calls.append(name)
        return len(calls) > last

    def appending(self, name, header, start, content):
        if not is_last(name):
            return append(self, name, header, start, content)
        if moment != "before":
            half = memoryview(content).tobytes()
            half = half[: len(half) // 2] if moment == "half" else half
            append(self, name, b"" if moment == "half" else header, start, half)
        raise Killed

    def replacing(path, function):
        if not is_last(path.name):
            return replace(path, function)
        if moment == "half":
            partial = path.with_name(f".{path.name}.{12 * '0'}.partial")
            partial.write_bytes(b"half")
        if moment == "after":
            replace(path, function)
        raise Killed

    monkeypatch.setattr(FeatureWriter, "_write", appending)
    monkeypatch.setattr(files, "write_atomically", replacing)
    return calls


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_extraction_killed_at_any_write_continues_to_the_same_bytes(
    tmp_path, monkeypatch, moment
):
    extract(tmp_path / "straight", "regions", ids=IDS[:5])
    expected = content_of(tmp_path / "straight")
    for last in range(100):
        path = tmp_path / f"killed{last}"
        with monkeypatch.context() as patch:
            kill_at(patch, last, moment)
            try:
                extract(path, "regions", ids=IDS[:5])
                break
            except Killed:
                pass
        if (path / "manifest.json").exists():
            store = open_store(path, incomplete=True)
            stored = tuple(key for key in IDS if key not in BROKEN)
            assert store.ids == stored[: len(store)]
            rows = store.take_regions(range(store.manifest.rows))
            assert (rows == 1).all()
        extract(path, "regions", ids=IDS[:5])
        assert content_of(path) == expected
    # Two calls append to 4 files. There are 5 manifests: a new one, one for
    # each of 3 calls, of which the last has only a failed photo, and one from
    # `finish`.
    assert last == 2 * 4 + 5


def test_files_of_killed_writers_are_removed_and_other_files_are_kept(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    for name in ("scores-1.npy", f".ids.txt.{12 * '0'}.partial"):
        (tmp_path / "s" / name).write_bytes(b"half")
    (tmp_path / "s" / "README.md").write_text("mine")
    (tmp_path / "s" / "photos.npy").write_text("mine")
    writer.finish()
    names = ["README.md", "manifest.json", "photos.npy"]
    assert sorted(os.listdir(tmp_path / "s")) == names


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "video"},
        {"dtype": "float64"},
        {"dim": 0},
        {"extraction": {"a": float("nan")}},
    ],
)
def test_invalid_arguments_create_no_folder(tmp_path, changes):
    with pytest.raises((TypeError, ValueError)):
        FeatureWriter(tmp_path / "s", **{"extraction": {}, "dim": 3, **changes})
    assert not (tmp_path / "s").exists()


def test_folder_with_other_files_is_not_changed(tmp_path):
    (tmp_path / "features.npy").write_text("mine")
    for path in (tmp_path, tmp_path / "features.npy"):
        with refusals.refused("path"):
            FeatureWriter(path, EXTRACTION, 3)
    assert (tmp_path / "features.npy").read_text() == "mine"


@pytest.mark.parametrize(
    "bad", ["b\nc", "b\r", "", 3, "\ufeffb", "\ud800", "a", "old"]
)
def test_invalid_or_repeated_ids_raise_an_error(tmp_path, bad):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add(["old"], np.ones((1, 1)))
    before = content_of(tmp_path / "s")
    for ids, failed in ((["a", bad], ()), (["a", "c"], [(bad, "cut")])):
        with pytest.raises(InputError, match=re.escape(repr(bad))):
            writer.add(ids, np.ones((2, 1)), failed=failed)
    assert content_of(tmp_path / "s") == before
    assert writer.done == {"old"} and writer.failed == {}


def test_ids_keep_all_characters(tmp_path):
    ids = [" a ", "b\u2028c", "é\t", "x/y.jpg", "日本", "\x0b"]
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add(iter(ids), np.ones((6, 1)), failed=iter([("c", "cut")]))
    writer.finish()
    assert open_features(tmp_path / "s").ids == tuple(ids)
    assert writer.failed == {"c": "cut"}


ROWS = np.ones((2, 3), np.float32)
LARGE = np.asarray([[1, 1, 1], [1, 70000, 1]], np.float32)
NAN = np.asarray([[1, 1, np.nan], [1, 1, 1]], np.float32)


BOXES = np.ones((2, 4))
NO_SIZE = [[4, 3], [4, 0]]


# The argument in the error, the changes, a part of the message.
IMAGES = [
    ("features", {"features": ROWS[:1]}, "(1, 3)"),
    ("features", {"features": NAN}, "'a'"),
    ("features", {"features": LARGE, "dtype": "float16"}, "'b'"),
    ("sizes", {"sizes": [[4, 3]] * 2}, ""),
]
REGIONS = [
    ("counts", {"counts": [3, -1]}, ""),
    ("boxes", {"boxes": [[1, 1, 1, 1], [5, 1, 4, 9]]}, "boxes[1]"),
    ("sizes", {"sizes": NO_SIZE, "counts": [0, 2]}, "'b'"),
]


@pytest.mark.parametrize(
    "kind, argument, changes, found",
    [("images", *row) for row in IMAGES]
    + [("regions", *row) for row in REGIONS],
)
def test_arrays_of_wrong_shape_or_value_raise_an_error(
    tmp_path, kind, argument, changes, found
):
    given = {"dim": 3, "dtype": "float32", "features": ROWS}
    if kind == "regions":
        given |= {"boxes": BOXES, "counts": [1, 1]}
    given |= changes
    made = {name: given.pop(name) for name in ("dim", "dtype")}
    writer = FeatureWriter(tmp_path, EXTRACTION, kind=kind, **made)
    with refusals.refused(argument) as error:
        writer.add(["a", "b"], **given)
    assert found in error.value.fields[2]
    assert writer.done == set()
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_two_writers_at_once_raise_an_error(tmp_path):
    one = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    with pytest.raises(FileExistsError, match="path"):
        FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    one.add(["a"], np.ones((1, 1)))
    one.finish()
    with refusals.refused("writer"):
        one.add(["b"], np.ones((1, 1)))
    with FeatureWriter(tmp_path / "s", EXTRACTION, 1) as other:
        other.add(["b"], np.zeros((1, 1)))
