"""Tests of reading feature stores."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tbnets.data.store.arrays import check_finite
from tbnets.data.store.manifest import (
    extraction_differences,
    read_manifest,
    write_manifest,
)
from tbnets.data.store.opening import open_features
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tests import refusals

EXTRACTION = {"model": "Tiny", "layers": ["conv1"], "crops": 1}


def write_images(path, dtype="float32"):
    """Two shards: c -> [1, 2], a -> [3, 4] and b -> [5, 6]; x failed."""
    writer = FeatureWriter(path, EXTRACTION, 2, dtype)
    rows = np.asarray([[1, 2], [3, 4], [5, 6]], dtype)
    writer.add_shard(["c", "a"], rows[:2], failed=[("x", "is cut")])
    writer.add_shard(["b"], rows[2:])
    writer.finish()
    return path


def write_regions(path):
    """Three images with 2, 0 and 1 regions, in two shards."""
    writer = FeatureWriter(path, EXTRACTION, 3, "float16", "regions")
    boxes = np.arange(12, dtype=np.float32).reshape(3, 4)
    features = np.arange(9).reshape(3, 3)
    writer.add_shard(["a", "b"], features[:2], boxes[:2], [2, 0])
    writer.add_shard(["c"], features[2:], boxes[2:], [1])
    writer.finish()
    return path


def write_proposals(path):
    writer = FeatureWriter(path, {}, 0, kind="regions")
    boxes = np.asarray([[0, 0, 5, 5], [1, 1, 2, 3]])
    writer.add_shard(["a"], None, np.zeros((0, 4)), [0], [])
    writer.add_shard(["b", "c"], None, boxes, [1, 1], [0.5, 0.25])
    writer.finish()
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_are_found_by_id(tmp_path, dtype):
    store = open_features(write_images(tmp_path / "s", dtype))
    assert store.ids == ("c", "a", "b")
    assert (len(store), store.dim, store.has_ids) == (3, 2, True)
    assert store.path == str(tmp_path / "s")
    assert store.missing(["b", "x", "y"]) == ["x", "y"]
    rows = store.rows(["b", "c", "a", "b"])
    assert rows.tolist() == [2, 0, 1, 2]
    taken = store.take(rows)
    assert taken.tolist() == [[5, 6], [1, 2], [3, 4], [5, 6]]
    assert taken.dtype == np.float32
    assert store.take([]).shape == (0, 2)
    assert store.counts.tolist() == [1, 1, 1]
    assert check_finite(store) == 0
    store.verify()


def test_many_shards_agree_with_one_array(tmp_path):
    generator = np.random.default_rng(0)
    array = generator.normal(size=(40, 3)).astype(np.float32)
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    for start, stop in ((0, 1), (1, 17), (17, 18), (18, 40)):
        writer.add_shard(map(str, range(start, stop)), array[start:stop])
    writer.finish()
    store = open_store(tmp_path / "s")
    rows = generator.integers(0, 40, 100)
    np.testing.assert_array_equal(store.take(rows), array[rows])
    np.testing.assert_array_equal(
        np.concatenate([part for _, part in store.chunks()]), array
    )


def test_chunks_are_the_rows_in_order_as_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tbnets.data.store.arrays.CHUNK_BYTES", 1
    )  # A row a chunk.
    store = open_store(write_images(tmp_path / "s", "float16"))
    found = [(r.start, r.stop, a.tolist()) for r, a in store.chunks()]
    assert found == [(0, 1, [[1, 2]]), (1, 2, [[3, 4]]), (2, 3, [[5, 6]])]
    assert {array.dtype for _, array in store.chunks()} == {np.dtype("f2")}


def test_what_failed_is_kept_and_told(tmp_path):
    store = open_store(write_images(tmp_path / "s"))
    assert store.failed == {"x": "is cut"}
    with refusals.of("image_ids") as error:
        store.rows(["a", "x", "z"])
    assert all(text in str(error.value) for text in ("'x', 'z'", "is cut"))


def test_store_where_everything_failed(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 2)
    writer.add_shard([], np.zeros((0, 2)), failed={"a": "is cut"})
    writer.finish()
    store = open_features(tmp_path / "s")
    assert (len(store), list(store.chunks())) == (0, [])
    assert store.take([]).shape == (0, 2)
    with refusals.of("image_ids"):
        store.rows(["a"])


def test_regions_come_with_their_boxes(tmp_path):
    store = open_features(write_regions(tmp_path / "s"))
    assert (len(store), store.kind) == (3, "regions")
    assert store.counts.tolist() == [2, 0, 1]
    features, boxes = store.regions(0)
    assert features.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert boxes.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert features.dtype == boxes.dtype == np.float32
    features, boxes = store.regions(1)
    assert (features.shape, boxes.shape) == ((0, 3), (0, 4))
    features, boxes = store.regions(store.rows(["c"])[0])
    assert features.tolist() == [[6, 7, 8]]
    assert boxes.tolist() == [[8, 9, 10, 11]]
    boxes, scores = store.boxes(2)
    assert boxes.tolist() == [[8, 9, 10, 11]] and scores is None
    rows = [(r.start, r.stop) for r, _ in store.chunks()]
    assert rows == [(0, 2), (2, 3)]
    store.verify()


def test_proposals_have_scores_and_no_features(tmp_path):
    store = open_features(write_proposals(tmp_path / "s"))
    assert (store.dim, store.counts.tolist()) == (0, [0, 1, 1])
    boxes, scores = store.boxes(2)
    assert boxes.tolist() == [[1, 1, 2, 3]] and scores.tolist() == [0.25]
    boxes, scores = store.boxes(0)
    assert (boxes.shape, scores.shape) == ((0, 4), (0,))
    assert list(store.chunks()) == [] and check_finite(store) == 0
    assert not list((tmp_path / "s").glob("0000?.npy"))
    store.verify()


def write_scored(path):
    """Images of 2, 0 and 3 regions; the last ones in a shard of their own."""
    writer = FeatureWriter(path, EXTRACTION, 2, "float16", "regions")
    boxes = np.arange(5).reshape(5, 1) + np.array([0, 0, 1, 1])
    rows = np.arange(10).reshape(5, 2)
    writer.add_shard(
        ["a", "b"],
        rows[:2],
        boxes[:2],
        [2, 0],
        [0.5, 0.25],
        sizes=[[40, 30], [20, 10]],
    )
    writer.add_shard(
        ["c"], rows[2:], boxes[2:], [3], [4, 3, 2], sizes=[[50, 60]]
    )
    writer.finish()
    return path


def test_regions_tell_scores_and_sizes_of_photos(tmp_path):
    store = open_store(write_scored(tmp_path / "s"))
    assert store.sizes.tolist() == [[40, 30], [20, 10], [50, 60]]
    boxes, scores = store.boxes(2)
    assert scores.tolist() == [4, 3, 2] and boxes.shape == (3, 4)
    assert store.boxes(1)[1].shape == (0,)
    store.verify()
    assert open_store(write_images(tmp_path / "images")).sizes is None


def test_some_regions_are_taken_in_the_order_asked_for(tmp_path):
    store = open_store(write_scored(tmp_path / "s"))
    assert store.first_regions.tolist() == [0, 2, 2, 5]
    # Row i holds 2 i and 2 i + 1; rows 2 to 4 are those of c.
    found = store.take_regions([4, 1, 2, 4])
    assert found.tolist() == [[8, 9], [2, 3], [4, 5], [8, 9]]
    assert found.dtype == np.float32
    assert store.take_regions([]).shape == (0, 2)
    for row in range(3):
        first, end = store.first_regions[row : row + 2]
        features, _ = store.regions(row)
        assert (features == store.take_regions(np.arange(first, end))).all()


def test_a_store_of_another_kind_is_refused(tmp_path):
    images = open_store(write_images(tmp_path / "images"))
    boxes = open_store(write_proposals(tmp_path / "boxes"))
    regions = open_store(write_regions(tmp_path / "regions"))
    for read in (
        images.regions,
        images.boxes,
        lambda row: images.take_regions([row]),
        boxes.regions,
        lambda row: boxes.take_regions([row]),
        lambda row: regions.take([row]),
    ):
        with refusals.of("path"):
            read(0)


def test_rows_that_are_not_there_are_refused(tmp_path):
    images = open_store(write_images(tmp_path / "images"))
    scored = open_store(write_scored(tmp_path / "scored"))
    for take, row in (
        (images.take, 3),
        (images.take, -1),
        (scored.take_regions, 5),
        (scored.take_regions, -1),
    ):
        with pytest.raises(IndexError):
            take([0, row])
    with pytest.raises(IndexError):
        scored.regions(3)


def test_incomplete_store_is_refused(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["a", "b"], np.ones((2, 1)))
    with refusals.of("path"):
        open_features(tmp_path / "s")
    store = open_store(tmp_path / "s", incomplete=True)
    assert store.ids == ("a", "b") and not store.complete


def rename_first(manifest, name):
    shard = manifest["shards"][0]
    sums = shard["sha256"].items()
    shard["sha256"] = {key.replace("00000", name): s for key, s in sums}
    shard["name"] = name


def edit(path, change):
    """Applies a function to the parsed manifest of a store."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


FINE = [("extraction", {"a": "b"}), ("complete", True)]


@pytest.mark.parametrize(
    "value", [None, "other", -1, True, 1.5, ["a"], {"a": "b"}], ids=repr
)
def test_manifest_with_any_other_value_is_refused(tmp_path, value):
    path = write_images(tmp_path / "s")
    manifest = json.loads((path / "manifest.json").read_text())
    for holder in (manifest, manifest["shards"][0]):
        for key, good in holder.items():
            if (key, value) not in FINE:
                holder[key] = value
                (path / "manifest.json").write_text(json.dumps(manifest))
                with pytest.raises(InputError, match=r"manifest\.json"):
                    open_features(path)
                holder[key] = good


@pytest.mark.parametrize(
    "named, change",
    [
        ("manifest.json", lambda m: m.update(more=1)),
        ("manifest.json", lambda m: m.pop("dim")),
        ("manifest.json", lambda m: m.update(dim=0)),
        ("manifest.json", lambda m: m.update(kind="regions")),
        ("manifest.json", lambda m: m["shards"][0]["sha256"].update(x="0")),
        ("manifest.json", lambda m: rename_first(m, "../x")),
        ("manifest.json", lambda m: rename_first(m, "/x")),
        ("manifest.json", lambda m: m["shards"].append(m["shards"][0])),
        ("manifest.json", lambda m: m["failed"][0].update(id="a")),
        ("00000.npy", lambda m: m.update(dim=3)),
        ("00000.npy", lambda m: m.update(dtype="float16")),
        ("00001.ids.txt", lambda m: m["shards"][1].update(rows=2, images=2)),
        ("7.ids.txt", lambda m: rename_first(m, "7")),
    ],
)
def test_manifest_that_lies_is_refused(tmp_path, named, change):
    path = write_images(tmp_path / "s")
    edit(path, change)
    with pytest.raises((InputError, FileNotFoundError), match=named):
        open_features(path)


# File -> (line that is named, content).
BAD_FILES = {
    "manifest.json": [
        (1, b""),
        (1, b"{"),
        (None, b"[]"),
        (1, b"\xff"),
        (None, b"1"),
    ],
    "00000.ids.txt": [
        (1, b"c\n"),
        (0, b""),
        (3, b"c\na\nb\n"),
        (2, b"c\na"),
        (2, b"c\n\xff\n"),
    ],
}


@pytest.mark.parametrize(
    "name, line, content",
    [(name, *one) for name, some in BAD_FILES.items() for one in some],
)
def test_bad_lines_of_a_store_are_named(tmp_path, name, line, content):
    path = write_images(tmp_path / "s")
    (path / name).write_bytes(content)
    with refusals.at(path / name, line):
        open_features(path)


@pytest.mark.parametrize("again", [b"c\nc\n", b"c\nb\n"])
def test_an_id_that_stands_twice_is_refused(tmp_path, again):
    path = write_images(tmp_path / "s")
    (path / "00000.ids.txt").write_bytes(again)
    with refusals.at(path / "manifest.json"):
        open_features(path)


@pytest.mark.parametrize(
    "write, name, array",
    [
        (write_images, "00000.npy", np.full((2, 2), {}, object)),
        (write_images, "00000.npy", np.zeros((2, 2))),
        (write_images, "00000.npy", np.zeros((2, 2), ">f4")),
        (write_images, "00000.npy", np.zeros((1, 4), np.float32)),
        (write_images, "00000.npy", np.zeros(4, np.float32)),
        (write_images, "00000.npy", np.zeros((2, 2), np.float32, "F")),
        (write_regions, "00000.counts.npy", np.array([1, 0])),
        (write_regions, "00000.counts.npy", np.array([3, -1])),
        (write_regions, "00000.counts.npy", np.array([2**62, 2**62])),
        (write_scored, "00001.sizes.npy", np.array([[50, 0]])),
        (write_scored, "00001.sizes.npy", np.array([[50, 0, 1]])),
    ],
)
def test_other_arrays_are_refused(tmp_path, write, name, array):
    path = write(tmp_path / "s")
    np.save(path / name, array)
    with pytest.raises(InputError, match=name):
        open_features(path)


@pytest.mark.parametrize("end", [0, 6, 60, 128, 143, 145])
def test_array_of_another_size_is_refused(tmp_path, end):
    path = write_images(tmp_path / "s") / "00000.npy"
    content = path.read_bytes() + b"more"  # 128 + 2 rows of 8 bytes = 144
    path.write_bytes(content[:end])
    with pytest.raises(InputError, match=r"00000\.npy"):
        open_features(tmp_path / "s")


@pytest.mark.parametrize(
    "name", ["00001.npy", "00000.ids.txt", "manifest.json"]
)
def test_missing_file_is_named(tmp_path, name):
    path = write_images(tmp_path / "s")
    (path / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        open_features(path)


def test_every_flipped_byte_is_noticed(tmp_path):
    good = write_regions(tmp_path / "good")
    names = sorted(p.name for p in good.iterdir() if p.name[0] == "0")
    assert len(names) == 8
    for name in names:
        path = shutil.copytree(good, tmp_path / name)
        content = bytearray((path / name).read_bytes())
        content[-1 - name.endswith("txt")] ^= 8
        (path / name).write_bytes(content)
        with refusals.at(path / name):
            store = open_features(path)  # Counts do not sum up.
            assert "counts" not in name
            store.verify()


def test_rows_that_are_not_finite_are_named(tmp_path):
    path = write_images(tmp_path / "s")
    array = np.asarray([[5, np.nan]], np.float32)
    np.save(path / "00001.npy", array)
    with pytest.raises(ValueError, match=r"row 2 \(id 'b'\).*column 1"):
        check_finite(open_store(path))
    path = write_regions(tmp_path / "r")
    np.save(path / "00001.npy", np.full((1, 3), np.inf, np.float16))
    np.save(path / "00000.npy", np.asarray([[0] * 3, [np.inf] * 3], "f2"))
    problems = []
    assert check_finite(open_store(path), problems) == 2
    for problem, place in zip(problems, ("1 of id 'a'", "0 of id 'c'")):
        assert problem.message.startswith(f"region {place}: ")


def test_differences_name_both_sides():
    a = {
        "layers": "fire9_concat",
        "crops": 10,
        "thresholds": {"low": -0.25, "high": 0.15},
        "size": [224, 224],
        "flag": True,
        "taps": ["a", "b"],
    }
    assert extraction_differences(a, json.loads(json.dumps(a)), "A", "B") == []
    b = {
        "layers": "conv1",
        "crops": 10.0,
        "thresholds": {"low": -0.5},
        "size": [224, 256],
        "flag": 1,
        "taps": ["a"],
        "new": None,
    }
    assert extraction_differences(a, b, "A", "B") == [
        "flag: true in A, 1 in B",
        "layers: fire9_concat in A, conv1 in B",
        "new: nothing in A, null in B",
        "size[1]: 224 in A, 256 in B",
        "taps: [a, b] (2) in A, [a] (1) in B",
        "thresholds.high: 0.15 in A, nothing in B",
        "thresholds.low: -0.25 in A, -0.5 in B",
    ]


def test_another_dtype_is_another_making(tmp_path):
    store = open_store(write_images(tmp_path / "s"))
    half = dataclasses.replace(store.manifest, dtype="float16")
    assert extraction_differences(store.made_by, half.made_by, "A", "B") == [
        "store.dtype: float32 in A, float16 in B"
    ]


def test_manifest_reads_as_it_was_written(tmp_path):
    path = write_images(tmp_path / "s")
    manifest = read_manifest(path)
    before = (path / "manifest.json").read_bytes()
    write_manifest(path, manifest)
    assert (path / "manifest.json").read_bytes() == before
    assert manifest.extraction == EXTRACTION
    assert [shard.images for shard in manifest.shards] == [2, 1]
