"""Tests of reading feature stores."""

import itertools
import json
import shutil

import numpy as np
import pytest

from tbnets.data.store.features import check_finite
from tbnets.data.store.reader import (
    open_features,
    open_store,
)
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tests import refusals

EXTRACTION = {"model": "Tiny", "layers": ["conv1"], "crops": 1}
MANIFEST = "manifest.json"


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
    """Writes six images in three calls; returns the arrays."""
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
        writer.add(IDS[first:end], **given, failed=failed)
    writer.finish()
    return arrays


@pytest.fixture
def path(tmp_path):
    """Returns the folder of a store of images."""
    write(tmp_path / "s")
    return tmp_path / "s"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_store_returns_what_was_written(tmp_path, monkeypatch, kind, dtype):
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
        assert not (tmp_path / "s" / "features.npy").exists()
    check_finite(store)
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


def test_error_about_missing_images_contains_the_reason(path):
    with refusals.refused("image_ids") as error:
        open_store(path).rows(["a", "x", "z"])
    assert all(text in str(error.value) for text in ("'x', 'z'", "is cut"))


def test_store_in_which_all_images_failed(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 2)
    writer.add([], np.zeros((0, 2)), failed={"a": "is cut"})
    writer.finish()
    store = open_features(tmp_path / "s")
    assert (len(store), list(store.chunks())) == (0, [])
    assert store.take([]).shape == (0, 2)
    with refusals.refused("image_ids"):
        store.rows(["a"])


def test_reading_rows_of_another_kind_raises_an_error(
    tmp_path,
):
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


def test_incomplete_store_is_opened_only_on_request(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add(["a", "b"], np.ones((2, 1)))
    with refusals.refused("path"):
        open_features(tmp_path / "s")
    store = open_store(tmp_path / "s", incomplete=True)
    assert store.ids == ("a", "b") and not store.complete


def changed(**fields):
    """Returns a function that changes fields of the manifest."""
    return lambda manifest: manifest.update(fields)


def without(key):
    return lambda manifest: manifest.pop(key)


COUNTS_FILE, FEATURES = "counts.npy", "features.npy"
DAMAGES = [
    # A manifest of other types, or one that contradicts the files.
    (MANIFEST, changed(format=["a"])),
    (MANIFEST, changed(more=1)),
    (MANIFEST, without("dim")),
    (MANIFEST, changed(kind="regions")),
    (MANIFEST, changed(failed={"a": "cut"})),
    (FEATURES, changed(dtype="float16")),
    (FEATURES, changed(images=2**60, rows=2**60)),
    # The content of a file.
    ("ids.txt", b"c\na\n"),
    (FEATURES, np.full((6, 3), {}, object)),
    (FEATURES, np.zeros((5, 3), np.float32)),
    (FEATURES, np.zeros((6, 3), np.float32, "F")),
    # Files of a store of regions.
    (COUNTS_FILE, np.array([2, 0, 1, 3, 2, -1])),
    (COUNTS_FILE, np.array([2**62] * 4 + [7, 0])),
    ("sizes.npy", np.array([[1, 1]] * 5 + [[50, 0]])),
]


@pytest.mark.parametrize("name, damage", DAMAGES)
def test_the_error_of_a_damaged_store_names_the_file(tmp_path, name, damage):
    has_regions = name in (COUNTS_FILE, "sizes.npy")
    write(tmp_path / "s", "scored" if has_regions else "images")
    path = tmp_path / "s" / name
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    elif isinstance(damage, np.ndarray):
        np.save(path, damage)
    else:
        manifest = json.loads((tmp_path / "s" / MANIFEST).read_text())
        damage(manifest)
        (tmp_path / "s" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises((InputError, FileNotFoundError), match=name):
        open_features(tmp_path / "s")


def test_numpy_reads_the_arrays_and_rows_after_the_last_are_ignored(path):
    rows = open_features(path).take(range(6))
    mapped = np.load(path / "features.npy", mmap_mode="r")
    np.testing.assert_array_equal(mapped, rows)
    for name in ("features.npy", "ids.txt"):  # A killed writer leaves these.
        with open(path / name, "ab") as file:
            file.write(b"g\n" * 9)
    store = open_features(path)
    store.verify()
    assert store.ids == IDS
    np.testing.assert_array_equal(store.take(range(6)), rows)


def test_flipped_byte_in_any_file_is_detected(tmp_path):
    good = tmp_path / "good"
    write(good, "scored")
    names = {p.name for p in good.iterdir()} - {MANIFEST}
    assert len(names) == 6
    for name in names:
        path = shutil.copytree(good, tmp_path / name)
        content = bytearray((path / name).read_bytes())
        content[-1 - name.endswith("txt")] ^= 8
        (path / name).write_bytes(content)
        with refusals.at(path / name):
            store = open_features(path)  # Counts do not sum up.
            assert "counts" not in name
            store.verify()


def test_error_about_nan_contains_the_id(path, tmp_path):
    rows = np.zeros((6, 3), np.float32)
    rows[5, 1] = np.nan
    np.save(path / "features.npy", rows)
    with pytest.raises(InputError, match=r"row 5 \(id 'f'\).*column 1"):
        check_finite(open_store(path))
    write(tmp_path / "r", "regions")
    rows = np.zeros((7, 3), np.float32)
    rows[1, 2] = np.inf
    np.save(tmp_path / "r" / "features.npy", rows)
    with pytest.raises(InputError, match="region 1 of id 'c': "):
        check_finite(open_store(tmp_path / "r"))
