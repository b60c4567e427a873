"""Tests of writing feature stores."""

import errno
import os
import re

import numpy as np
import pytest

from tbnets import files
from tbnets.data.store.opening import open_features
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tests import refusals

EXTRACTION = {"model": "Tiny", "layers": ["conv1"], "low": -0.25}
IDS = [f"{i}.jpg" for i in range(7)]
BROKEN = {"2.jpg": "is cut", "4.jpg": "no image", "5.jpg": "no image"}


class Killed(BaseException):
    """What stands for `kill -9`."""


def extract(path, kind="images", dtype="float32", ids=IDS, **told):
    """Extracts ids, two a shard, going on where an earlier call stopped."""
    writer = FeatureWriter(path, EXTRACTION | told, 3, dtype, kind)
    for start in range(0, len(ids), 2):
        seen = writer.done | set(writer.failed)
        wanted = [k for k in ids[start : start + 2] if k not in seen]
        good = [key for key in wanted if key not in BROKEN]
        failed = [(key, BROKEN[key]) for key in wanted if key in BROKEN]
        if not wanted:
            continue
        if kind == "images":
            rows = np.asarray([[int(key[0]), 0.5, -1] for key in good])
            writer.add_shard(good, rows, failed=failed)
        else:
            counts = [int(key[0]) % 3 for key in good]
            rows = np.ones((sum(counts), 3))
            boxes = np.ones((sum(counts), 4))
            writer.add_shard(good, rows, boxes, counts, failed=failed)
    writer.finish()


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("moment", ["half", "after"])
def test_killed_at_any_file_it_goes_on_to_the_same_bytes(
    tmp_path, monkeypatch, moment
):
    extract(tmp_path / "straight", "regions", ids=IDS[:5])
    expected = content_of(tmp_path / "straight")
    write = files.write_atomically
    for last in range(100):
        calls = []

        def killed(path, function, calls=calls, last=last):
            calls.append(path)
            if len(calls) <= last:
                return write(path, function)
            if moment == "half":
                partial = path.with_name(f".{path.name}.{12 * '0'}.partial")
                partial.write_bytes(b"half")
            if moment == "after":
                write(path, function)
            raise Killed

        path = tmp_path / f"killed{last}"
        monkeypatch.setattr(files, "write_atomically", killed)
        try:
            extract(path, "regions", ids=IDS[:5])
        except Killed:
            monkeypatch.setattr(files, "write_atomically", write)
        else:
            break
        if (path / "manifest.json").exists():
            store = open_store(path, incomplete=True)
            store.verify()
            assert (
                store.ids
                == tuple(key for key in IDS if key not in BROKEN)[: len(store)]
            )
        extract(path, "regions", ids=IDS[:5])
        assert content_of(path) == expected
    # 2 shards of 4 files; 4 manifests on the way, as the last photo failed, and
    # the last manifest.
    assert last == 2 * 4 + 4 + 1


def test_a_complete_extraction_stays_and_what_failed_may_be_stored_later(
    tmp_path,
):
    extract(tmp_path / "s")
    before = content_of(tmp_path / "s")
    extract(tmp_path / "s")  # Nothing is left to do.
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    assert writer.done == set(IDS) - set(BROKEN)
    assert writer.failed == open_features(tmp_path / "s").failed == BROKEN
    assert before == content_of(tmp_path / "s")
    writer.add_shard(["4.jpg"], np.ones((1, 3)), failed=[("5.jpg", "again")])
    assert writer.failed == {"2.jpg": "is cut", "5.jpg": "again"}
    assert "4.jpg" in writer.done
    assert not open_store(tmp_path / "s", incomplete=True).complete
    writer.finish()
    store = open_features(tmp_path / "s")
    assert store.failed == writer.failed
    rows = store.take(store.rows(["4.jpg", "6.jpg"]))
    assert rows.tolist() == [[1, 1, 1], [6, 0.5, -1]]
    store.verify()


def test_leftovers_are_removed_and_other_files_stay(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    for name in ("00007.npy", f".00007.scores.npy.{12 * '0'}.partial"):
        (tmp_path / "s" / name).write_bytes(b"half")
    (tmp_path / "s" / "README.md").write_text("mine")
    (tmp_path / "s" / "photos.npy").write_text("mine")
    writer.finish()
    names = ["README.md", "manifest.json", "photos.npy"]
    assert sorted(os.listdir(tmp_path / "s")) == names


@pytest.mark.parametrize(
    "changes",
    [
        {"extraction": {**EXTRACTION, "model": "Big"}},
        {"extraction": {}},
        {"dim": 4},
        {"dtype": "float16"},
        {"kind": "regions"},
    ],
)
def test_another_extraction_does_not_go_on(tmp_path, changes):
    extract(tmp_path / "s")
    before = content_of(tmp_path / "s")
    with refusals.refused("path"):
        FeatureWriter(
            tmp_path / "s", **{"extraction": EXTRACTION, "dim": 3, **changes}
        )
    assert content_of(tmp_path / "s") == before


def test_extraction_compares_as_json_stores_it(tmp_path):
    for _ in range(2):
        FeatureWriter(tmp_path, {"size": (224, 224)}, 3).finish()
    assert open_store(tmp_path).extraction == {"size": [224, 224]}


@pytest.mark.parametrize(
    "argument, changes",
    [
        ("kind", {"kind": "video"}),
        ("dtype", {"dtype": "float64"}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": -1, "kind": "regions"}),
        ("extraction", {"extraction": {"a": float("nan")}}),
        ("extraction", {"extraction": {"a": np.float32(1)}}),
        ("extraction", {"extraction": ["a"]}),
    ],
)
def test_bad_arguments_make_no_folder(tmp_path, argument, changes):
    with refusals.refused(argument):
        FeatureWriter(tmp_path / "s", **{"extraction": {}, "dim": 3, **changes})
    assert not (tmp_path / "s").exists()


def test_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "00000.npy").write_text("mine")
    for path in (tmp_path, tmp_path / "00000.npy"):
        with refusals.refused("path"):
            FeatureWriter(path, EXTRACTION, 3)
    assert (tmp_path / "00000.npy").read_text() == "mine"


@pytest.mark.parametrize(
    "bad", ["b\nc", "b\r", "", 3, "\ufeffb", "\ud800", "a", "old"]
)
def test_bad_ids_are_refused(tmp_path, bad):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["old"], np.ones((1, 1)))
    before = content_of(tmp_path / "s")
    for ids, failed in ((["a", bad], ()), (["a", "c"], [(bad, "cut")])):
        with pytest.raises(InputError, match=re.escape(repr(bad))):
            writer.add_shard(ids, np.ones((2, 1)), failed=failed)
    assert content_of(tmp_path / "s") == before
    assert writer.done == {"old"} and writer.failed == {}


def test_ids_keep_every_other_character(tmp_path):
    ids = [" a ", "b\u2028c", "é\t", "x/y.jpg", "日本", "\x0b"]
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(iter(ids), np.ones((6, 1)), failed=iter([("c", "cut")]))
    writer.finish()
    assert open_features(tmp_path / "s").ids == tuple(ids)
    assert writer.failed == {"c": "cut"}


ROWS = np.ones((2, 3), np.float32)
LARGE = np.asarray([[1, 1, 1], [1, 70000, 1]], np.float32)
NAN = np.asarray([[1, 1, np.nan], [1, 1, 1]], np.float32)


BOXES = np.ones((2, 4))
NO_SIZE = [[4, 3], [4, 0]]


# The argument that is refused, what is wrong with it, what is named.
IMAGES = [
    ("features", {"features": ROWS[:1]}, "(1, 3)"),
    ("features", {"features": ROWS[:, :2]}, "(2, 2)"),
    ("features", {"features": None}, ""),
    ("features", {"features": ROWS.astype(object)}, "object"),
    ("features", {"features": ROWS.astype(bool)}, "bool"),
    ("features", {"features": NAN}, "'a'"),
    ("features", {"features": [[3e38] * 3, [4e38] * 3]}, "'b'"),
    ("features", {"features": LARGE, "dtype": "float16"}, "'b'"),
    ("sizes", {"sizes": [[4, 3]] * 2}, ""),
]
REGIONS = [
    ("features", {"counts": [1, 2]}, "(2, 3)"),
    ("counts", {"counts": [2]}, ""),
    ("counts", {"counts": [3, -1]}, ""),
    ("counts", {"counts": [1.0, 1.0]}, ""),
    ("counts", {"counts": None}, ""),
    ("boxes", {"boxes": None}, ""),
    ("boxes", {"boxes": BOXES[:1]}, "(1, 4)"),
    ("boxes", {"boxes": BOXES * np.nan}, "'a'"),
    ("boxes", {"boxes": [[1, 1, 1, 1], [5, 1, 4, 9]]}, "boxes[1]"),
    ("scores", {"scores": [1]}, "(1,)"),
    ("sizes", {"sizes": [[4, 3]]}, ""),
    ("sizes", {"sizes": NO_SIZE}, ""),
    ("sizes", {"sizes": NO_SIZE, "counts": [2, 0]}, "'b'"),
    ("sizes", {"sizes": NO_SIZE, "counts": [0, 2]}, "'b'"),
    ("sizes", {"sizes": [[4.0, 3], [4, 3]]}, ""),
    ("features", {"features": NAN}, "'a'"),
    ("features", {"features": NAN, "counts": [0, 2]}, "'b'"),
    # Boxes alone need scores, and have no features.
    ("scores", {"dim": 0, "features": None}, ""),
    ("scores", {"dim": 0, "features": None, "scores": [1, np.inf]}, "'b'"),
    ("features", {"dim": 0, "scores": [1, 0.5]}, ""),
]


@pytest.mark.parametrize(
    "kind, argument, changes, found",
    [
        *(("images", *one) for one in IMAGES),
        *(("regions", *one) for one in REGIONS),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path, kind, argument, changes, found
):
    given = {"dim": 3, "dtype": "float32", "features": ROWS}
    if kind == "regions":
        given |= {"boxes": BOXES, "counts": [1, 1]}
    given |= changes
    made = {name: given.pop(name) for name in ("dim", "dtype")}
    writer = FeatureWriter(tmp_path, EXTRACTION, kind=kind, **made)
    with refusals.refused(argument) as error:
        writer.add_shard(["a", "b"], **given)
    assert found in error.value.fields[2]
    assert writer.done == set()
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_shards_of_regions_have_the_same_parts(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3, kind="regions")
    given = {"features": ROWS, "boxes": BOXES, "counts": [2]}
    writer.add_shard(["a"], **given, sizes=[[4, 3]])
    with refusals.refused("sizes"):
        writer.add_shard(["b"], **given)
    again = FeatureWriter(tmp_path / "s", EXTRACTION, 3, kind="regions")
    with refusals.refused("scores"):
        again.add_shard(["b"], **given, sizes=[[4, 3]], scores=[1, 1])
    assert again.done == {"a"}


def test_full_disk_leaves_the_earlier_shards(tmp_path, monkeypatch):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["a"], np.ones((1, 1)))
    replace = os.replace

    def full(source, target):
        if str(target).endswith("00001.npy"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="00001.npy"):
        writer.add_shard(["b"], np.ones((1, 1)))
    store = open_store(tmp_path / "s", incomplete=True)
    store.verify()
    assert store.ids == ("a",) and writer.done == {"a"}
    monkeypatch.undo()
    writer.add_shard(["b"], np.full((1, 1), 2))
    writer.finish()
    assert open_features(tmp_path / "s").take([1]).tolist() == [[2]]


def test_two_writers_at_once_are_noticed(tmp_path):
    one = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    other = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    one.add_shard(["a"], np.ones((1, 1)))
    with refusals.refused("path"):
        other.add_shard(["b"], np.zeros((1, 1)))
    with refusals.refused("path"):
        other.finish()
    one.finish()
    open_features(tmp_path / "s").verify()
