"""Tests of reading feature stores."""

import itertools
import json
import shutil

import numpy as np
import pytest

from tbnets.data.store.features import check_finite
from tbnets.data.store.manifest import extraction_differences
from tbnets.data.store.opening import open_features
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tests import refusals

EXTRACTION = {"model": "Tiny", "layers": ["conv1"], "crops": 1}
MANIFEST, FIRST_IDS = "manifest.json", "00000.ids.txt"


IDS = tuple("cabdef")
COUNTS = np.array([2, 0, 1, 3, 0, 1])
EDGES = np.cumsum([0, *COUNTS])
SIZES = np.arange(1, 13).reshape(6, 2)
# Kind of store -> dim of its features, whether it has scores and sizes.
KINDS = {
    "images": (3, False, False),
    "regions": (3, False, False),
    "scored": (3, True, True),
    "boxes": (0, True, False),
}


def write(path, kind="images", dtype="float32"):
    """Writes six images in three shards; returns the arrays."""
    dim, has_scores, has_sizes = KINDS[kind]
    generator, number = np.random.default_rng(0), COUNTS.sum()
    edges, arrays = EDGES, {"features": None}
    if dim:
        arrays["features"] = generator.integers(0, 99, (number, dim))
    if kind == "images":
        edges, arrays["features"] = range(7), arrays["features"][:6]
    else:
        boxes = generator.integers(0, 9, (number, 2, 2)).cumsum(axis=1)
        arrays["boxes"] = boxes.reshape(number, 4)
    if has_scores:
        arrays["scores"] = generator.integers(0, 9, number)
    made = "images" if kind == "images" else "regions"
    writer = FeatureWriter(path, EXTRACTION, dim, dtype, made)
    for first, end in ((0, 2), (2, 5), (5, 6)):
        rows = slice(edges[first], edges[end])
        given = {k: v if v is None else v[rows] for k, v in arrays.items()}
        if kind != "images":
            given["counts"] = COUNTS[first:end]
        if has_sizes:
            given["sizes"] = SIZES[first:end]
        failed = {"x": "is cut"} if first == 2 else {}
        writer.add_shard(IDS[first:end], **given, failed=failed)
    writer.finish()
    return arrays


@pytest.fixture
def path(tmp_path):
    """Returns the folder of a store of images."""
    write(tmp_path / "s")
    return tmp_path / "s"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read(tmp_path, monkeypatch, kind, dtype):
    arrays, (dim, *_) = write(tmp_path / "s", kind, dtype), KINDS[kind]
    store = open_features(tmp_path / "s")
    assert (store.ids, store.dim, len(store)) == (IDS, dim, 6)
    assert (store.path, store.has_ids) == (str(tmp_path / "s"), True)
    assert store.failed == {"x": "is cut"}
    assert store.missing(["b", "x", "y"]) == ["x", "y"]
    assert store.rows(["b", "c", "b"]).tolist() == [2, 0, 2]
    rows, features = [4, 1, 2, 4], arrays["features"]
    if kind == "images":
        assert store.counts.tolist() == [1] * 6 and store.sizes is None
        take = store.take
    else:
        assert store.counts.tolist() == COUNTS.tolist()
        assert store.first_regions.tolist() == EDGES.tolist()
        assert_regions(store, arrays)
        take = store.take_regions
    if dim:
        for some in (rows, []):
            assert take(some).dtype == np.float32
            np.testing.assert_array_equal(take(some), features[some])
        # A row a chunk, as it is stored.
        monkeypatch.setattr("tbnets.data.store.features.CHUNK_BYTES", 1)
        places, chunks = zip(*store.chunks())
        assert [(p.start, p.stop) for p in places] == [
            (row, row + 1) for row in range(len(features))
        ]
        assert {chunk.dtype for chunk in chunks} == {np.dtype(dtype)}
        np.testing.assert_array_equal(np.concatenate(chunks), features)
    else:
        assert list(store.chunks()) == []
        assert not list((tmp_path / "s").glob("0000?.npy"))
    assert check_finite(store) == 0
    store.verify()


def assert_regions(store, arrays):
    """Asserts that each image has its regions, scores and size."""
    for row, (first, end) in enumerate(itertools.pairwise(EDGES)):
        boxes, scores = store.boxes(row)
        np.testing.assert_array_equal(boxes, arrays["boxes"][first:end])
        assert (scores is None) == ("scores" not in arrays)
        if scores is not None:
            np.testing.assert_array_equal(scores, arrays["scores"][first:end])
        if store.dim:
            features, boxes = store.regions(row)
            assert features.dtype == boxes.dtype == np.float32
            np.testing.assert_array_equal(boxes, arrays["boxes"][first:end])
            wanted = arrays["features"][first:end]
            np.testing.assert_array_equal(features, wanted)
    if store.sizes is not None:
        assert store.sizes.tolist() == SIZES.tolist()


def test_why_an_image_is_missing_is_told(path):
    with refusals.refused("image_ids") as error:
        open_store(path).rows(["a", "x", "z"])
    assert all(text in str(error.value) for text in ("'x', 'z'", "is cut"))


def test_store_where_everything_failed(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 2)
    writer.add_shard([], np.zeros((0, 2)), failed={"a": "is cut"})
    writer.finish()
    store = open_features(tmp_path / "s")
    assert (len(store), list(store.chunks())) == (0, [])
    assert store.take([]).shape == (0, 2)
    with refusals.refused("image_ids"):
        store.rows(["a"])


def test_a_store_of_another_kind_is_refused(tmp_path):
    for kind in ("images", "regions", "boxes"):
        write(tmp_path / kind, kind)
    images = open_store(tmp_path / "images")
    boxes = open_store(tmp_path / "boxes")
    for read in (
        images.regions,
        images.boxes,
        lambda row: images.take_regions([row]),
        boxes.regions,
        lambda row: boxes.take_regions([row]),
        lambda row: open_store(tmp_path / "regions").take([row]),
    ):
        with refusals.refused("path"):
            read(0)


def test_rows_that_are_not_there_are_refused(path, tmp_path):
    write(tmp_path / "regions", "regions")
    images, regions = open_store(path), open_store(tmp_path / "regions")
    for take, count in ((images.take, 6), (regions.take_regions, 7)):
        for row in (-1, count):
            with pytest.raises(IndexError):
                take([0, row])
    with pytest.raises(IndexError):
        regions.regions(6)


def test_incomplete_store_is_refused(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["a", "b"], np.ones((2, 1)))
    with refusals.refused("path"):
        open_features(tmp_path / "s")
    store = open_store(tmp_path / "s", incomplete=True)
    assert store.ids == ("a", "b") and not store.complete


def rename_first(manifest, name):
    shard = manifest["shards"][0]
    sums = shard["sha256"].items()
    shard["sha256"] = {key.replace("00000", name): s for key, s in sums}
    shard["name"] = name


FINE = [("extraction", {"a": "b"}), ("complete", True)]


@pytest.mark.parametrize(
    "value", [None, "other", -1, True, 1.5, ["a"], {"a": "b"}], ids=repr
)
def test_manifest_with_any_other_value_is_refused(path, value):
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
        (MANIFEST, lambda m: m.update(more=1)),
        (MANIFEST, lambda m: m.pop("dim")),
        (MANIFEST, lambda m: m.update(dim=0)),
        (MANIFEST, lambda m: m.update(kind="regions")),
        (MANIFEST, lambda m: m["shards"][0]["sha256"].update(x="0")),
        (MANIFEST, lambda m: rename_first(m, "../x")),
        (MANIFEST, lambda m: rename_first(m, "/x")),
        (MANIFEST, lambda m: m["shards"].append(m["shards"][0])),
        (MANIFEST, lambda m: m["failed"].update(a="cut")),
        ("00000.npy", lambda m: m.update(dim=4)),
        ("00000.npy", lambda m: m.update(dtype="float16")),
        ("00001.ids.txt", lambda m: m["shards"][1].update(rows=2, images=2)),
        ("7.ids.txt", lambda m: rename_first(m, "7")),
    ],
)
def test_manifest_that_lies_is_refused(path, named, change):
    manifest = json.loads((path / MANIFEST).read_text())
    change(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises((InputError, FileNotFoundError), match=named):
        open_features(path)


@pytest.mark.parametrize(
    "name, content, named, line",
    [
        (MANIFEST, b"", MANIFEST, 1),
        (MANIFEST, b"{", MANIFEST, 1),
        (MANIFEST, b"[]", MANIFEST, None),
        (MANIFEST, b"\xff", MANIFEST, 1),
        (MANIFEST, b"1", MANIFEST, None),
        (FIRST_IDS, b"c\n", FIRST_IDS, 1),
        (FIRST_IDS, b"", FIRST_IDS, 0),
        (FIRST_IDS, b"c\na\nb\n", FIRST_IDS, 3),
        (FIRST_IDS, b"c\na", FIRST_IDS, 2),
        (FIRST_IDS, b"c\n\xff\n", FIRST_IDS, 2),
        # An id twice, in one shard and in two.
        (FIRST_IDS, b"c\nc\n", MANIFEST, None),
        (FIRST_IDS, b"c\nb\n", MANIFEST, None),
    ],
)
def test_bad_lines_of_a_store_are_named(path, name, content, named, line):
    (path / name).write_bytes(content)
    with refusals.at(path / named, line):
        open_features(path)


@pytest.mark.parametrize(
    "kind, name, array",
    [
        ("images", "00000.npy", np.full((2, 3), {}, object)),
        ("images", "00000.npy", np.zeros((2, 3))),
        ("images", "00000.npy", np.zeros((2, 3), ">f4")),
        ("images", "00000.npy", np.zeros((1, 6), np.float32)),
        ("images", "00000.npy", np.zeros(6, np.float32)),
        ("images", "00000.npy", np.zeros((2, 3), np.float32, "F")),
        ("regions", "00000.counts.npy", np.array([1, 0])),
        ("regions", "00000.counts.npy", np.array([3, -1])),
        ("regions", "00000.counts.npy", np.array([2**62, 2**62])),
        ("scored", "00002.sizes.npy", np.array([[50, 0]])),
        ("scored", "00002.sizes.npy", np.array([[50, 0, 1]])),
    ],
)
def test_other_arrays_are_refused(tmp_path, kind, name, array):
    write(tmp_path / "s", kind)
    np.save(tmp_path / "s" / name, array)
    with pytest.raises(InputError, match=name):
        open_features(tmp_path / "s")


def test_array_of_another_size_or_none_is_refused(path):
    file = path / "00000.npy"
    content = file.read_bytes() + b"more"  # 128 + 2 rows of 12 bytes = 152
    for end in (0, 6, 60, 128, 151, 153):
        file.write_bytes(content[:end])
        with pytest.raises(InputError, match=r"00000\.npy"):
            open_features(path)
    for name in (file.name, FIRST_IDS, MANIFEST):
        (path / name).unlink()
        with pytest.raises(FileNotFoundError, match=name):
            open_features(path)


def test_every_flipped_byte_is_noticed(tmp_path):
    good = tmp_path / "good"
    write(good, "regions")
    names = sorted(p.name for p in good.iterdir() if p.name[0] == "0")
    assert len(names) == 12
    for name in names:
        path = shutil.copytree(good, tmp_path / name)
        content = bytearray((path / name).read_bytes())
        content[-1 - name.endswith("txt")] ^= 8
        (path / name).write_bytes(content)
        with refusals.at(path / name):
            store = open_features(path)  # Counts do not sum up.
            assert "counts" not in name
            store.verify()


def test_rows_that_are_not_finite_are_named(path, tmp_path):
    np.save(path / "00002.npy", np.asarray([[5, np.nan, 0]], np.float32))
    with pytest.raises(InputError, match=r"row 5 \(id 'f'\).*column 1"):
        check_finite(open_store(path))
    write(tmp_path / "r", "regions")
    infinite = np.full((1, 3), np.inf, np.float32)
    np.save(tmp_path / "r" / "00000.npy", np.float32([[0] * 3, [np.inf] * 3]))
    np.save(tmp_path / "r" / "00002.npy", infinite)
    problems = []
    assert check_finite(open_store(tmp_path / "r"), problems) == 2
    for problem, place in zip(problems, ("1 of id 'c'", "0 of id 'f'")):
        assert problem.message.startswith(f"region {place}: ")


def test_differences_name_both_sides():
    a = {
        "layers": "fire9_concat",
        "crops": 10,
        "thresholds": {"low": -0.25, "high": 0.15},
        "size": [224, 224],
        "taps": ["a", "b"],
    }
    assert extraction_differences(a, json.loads(json.dumps(a)), "A", "B") == []
    b = {
        "layers": "conv1",
        "crops": 10.0,
        "thresholds": {"low": -0.5},
        "size": [224, 256],
        "taps": ["a"],
        "new": None,
    }
    assert extraction_differences(a, b, "A", "B") == [
        "layers: fire9_concat in A, conv1 in B",
        "new: nothing in A, null in B",
        "size[1]: 224 in A, 256 in B",
        "taps[1]: b in A, nothing in B",
        "thresholds.high: 0.15 in A, nothing in B",
        "thresholds.low: -0.25 in A, -0.5 in B",
    ]
