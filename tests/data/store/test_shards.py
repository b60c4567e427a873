import dataclasses
import io
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
    for row in (-1, 3):
        with pytest.raises(IndexError, match=r"\[0, 3\)"):
            store.take([row])
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
    with pytest.raises(ValueError) as error:
        store.rows(["a", "x", "z"])
    message = str(error.value)
    assert "2 of 3 missing there, first 'x', 'z'" in message
    assert "1 failed when features were extracted, first 'x': is cut" in message
    with pytest.raises(ValueError, match="Extract their features too"):
        store.rows(["z"])


def test_store_where_everything_failed(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 2)
    writer.add_shard([], np.zeros((0, 2)), failed={"a": "is cut"})
    writer.finish()
    store = open_features(tmp_path / "s")
    assert (len(store), list(store.chunks())) == (0, [])
    assert store.take([]).shape == (0, 2)
    with pytest.raises(ValueError, match="has no features of any image"):
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
    with pytest.raises(IndexError, match=r"\[0, 3\)"):
        store.regions(3)
    with pytest.raises(ValueError, match="holds regions. Name one of whole im"):
        store.take([0])
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
    with pytest.raises(ValueError, match="which holds boxes alone"):
        store.regions(0)
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


@pytest.mark.parametrize("row", [-1, 5])
def test_regions_that_are_not_there_are_refused(tmp_path, row):
    store = open_store(write_scored(tmp_path / "s"))
    with pytest.raises(IndexError, match=r"`rows` must lie in \[0, 5\)"):
        store.take_regions([0, row])


def test_images_and_boxes_alone_have_no_regions_to_take(tmp_path):
    images = open_store(write_images(tmp_path / "images"))
    with pytest.raises(ValueError, match="holds whole images"):
        images.take_regions([0])
    writer = FeatureWriter(tmp_path / "boxes", EXTRACTION, 0, kind="regions")
    writer.add_shard(["a"], None, [[0, 0, 1, 1]], [1], [1])
    writer.finish()
    with pytest.raises(ValueError, match="holds boxes alone"):
        open_store(tmp_path / "boxes").take_regions([0])


def test_sizes_that_can_not_be_are_refused(tmp_path):
    path = write_scored(tmp_path / "s")
    np.save(path / "00001.sizes.npy", np.array([[50, 0]]))
    with pytest.raises(ValueError, match="00001.sizes.npy.*smallest of 0"):
        open_store(path)
    np.save(path / "00001.sizes.npy", np.array([[50, 0, 1]]))
    with pytest.raises(ValueError, match=r"expected shape \(1, 2\)"):
        open_store(path)


def test_images_have_no_regions(tmp_path):
    store = open_store(write_images(tmp_path / "s"))
    with pytest.raises(ValueError, match="holds whole images"):
        store.regions(0)
    with pytest.raises(ValueError, match="holds whole images"):
        store.boxes(0)


def header(shape, dtype="<f4"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def test_incomplete_store_is_refused(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["a", "b"], np.ones((2, 1)))
    with pytest.raises(ValueError, match="after 2 images. Run the extraction"):
        open_features(tmp_path / "s")
    store = open_store(tmp_path / "s", incomplete=True)
    assert store.ids == ("a", "b") and not store.complete


def test_folder_that_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError, match="without manifest.json"):
        open_features(tmp_path)
    with pytest.raises(FileNotFoundError, match="must be an existing file"):
        open_features(tmp_path / "absent")


def edit(path, change):
    """Applies a function to the parsed manifest of a store."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def rename_first(manifest, name):
    shard = manifest["shards"][0]
    shard["sha256"] = {
        key.replace("00000", name): value
        for key, value in shard["sha256"].items()
    }
    shard["name"] = name


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: m.update(format="other"), "expected 'format'.*'other'"),
        (lambda m: m.pop("dim"), "dim .int.*found .'dim': None"),
        (lambda m: m.update(more=1), "found .'more': 1."),
        (lambda m: m.update(dim="2"), "dim .int.*'dim': '2'"),
        (lambda m: m.update(dim=True), "found .'dim': True"),
        (lambda m: m.update(dim=-1), "found .'dim': -1"),
        (lambda m: m.update(dim=0), "'dim' from 1, or 0 for boxes"),
        (lambda m: m.update(dim=3), r"expected shape \(2, 3\)"),
        (lambda m: m.update(dtype="object"), "'dtype' float32 or float16"),
        (lambda m: m.update(dtype="float16"), "dtype float16; found"),
        (lambda m: m.update(kind="video"), "expected 'kind' images or regions"),
        (lambda m: m.update(kind="regions"), "'shards.0..sha256': expected"),
        (lambda m: m.update(complete=1), "complete .bool.*'complete': 1"),
        (lambda m: m.update(extraction=[]), "found .'extraction': "),
        (lambda m: m.update(shards={}), "found .'shards': "),
        (lambda m: m.update(shards=["a"]), "'shards.0.': expected an obj"),
        (lambda m: m["shards"][0].update(images=1), "'shards.0..rows'"),
        (lambda m: m["shards"][1].update(rows=9), "'shards.1..rows'"),
        (
            lambda m: m["shards"][1].update(rows=2, images=2),
            "00001.ids.txt:1: expected 2 ids.*found 1",
        ),
        (lambda m: m["shards"][0].update(sha256="x"), "'shards.0.': expected"),
        (
            lambda m: m["shards"][0]["sha256"].update({"../x": "0"}),
            "'shards.0..sha256'",
        ),
        (
            lambda m: rename_first(m, "../x"),
            "plain names inside the folder; found",
        ),
        (
            lambda m: rename_first(m, "/x"),
            "plain names inside the folder; found",
        ),
        (lambda m: rename_first(m, "7"), "7.ids.txt"),
        (lambda m: m["shards"].append(m["shards"][0]), "each name once"),
        (lambda m: m.update(failed=[["x", "y"]]), "'failed.0.': expected"),
        (lambda m: m.update(failed=[{"id": "x"}]), "'failed.0.': expected"),
        (
            lambda m: m.update(failed=[{"id": "a", "reason": "r"}]),
            "in 'failed'; found 'a'",
        ),
    ],
)
def test_manifest_that_lies_is_refused(tmp_path, change, message):
    path = write_images(tmp_path / "s")
    edit(path, change)
    with pytest.raises((ValueError, OSError), match=message) as error:
        open_features(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"1"])
def test_manifest_that_is_none_is_refused(tmp_path, content):
    path = write_images(tmp_path / "s")
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match="manifest.json:?[0-9]*: expected"):
        open_features(path)


@pytest.mark.parametrize("end", [0, 6, 60, 128, 143, 145])
def test_array_of_another_size_is_refused(tmp_path, end):
    path = write_images(tmp_path / "s") / "00000.npy"
    content = path.read_bytes() + b"more"  # 128 + 2 rows of 8 bytes = 144
    path.write_bytes(content[:end])
    with pytest.raises(ValueError, match="00000.npy: expected shape") as error:
        open_features(tmp_path / "s")
    if end > 128:
        assert f"takes 144 bytes, in a file of {end}." in str(error.value)


@pytest.mark.parametrize(
    "array, message",
    [
        (np.asarray([[{}, {}], [1, 2]], object), "dtype object"),
        (np.zeros((2, 2)), "dtype float64"),
        (np.zeros((2, 2), ">f4"), "dtype >f4"),
        (np.zeros((1, 4), np.float32), r"shape \(1, 4\)"),
        (np.zeros(4, np.float32), r"shape \(4,\)"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, message):
    path = write_images(tmp_path / "s")
    np.save(path / "00000.npy", array)
    with pytest.raises(ValueError, match=f"00000.npy: .*found.*{message}"):
        open_features(path)


@pytest.mark.parametrize(
    "content, message",
    [
        (header((-2, -2)), r"found the shape \(-2, -2\)"),
        (header((10**12, 2)), r"found shape \(1000000000000, 2\)"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "a header of 4294967295 bytes"),
        (b"\x93NUMPY\x01\x00\x10\x27" + b"-" * 10**4, "a broken header"),
    ],
)
def test_forged_headers_are_refused(tmp_path, content, message):
    path = write_images(tmp_path / "s")
    (path / "00000.npy").write_bytes(content)
    with pytest.raises(ValueError, match=f"00000.npy: expected.*{message}"):
        open_features(path)


def test_header_that_promises_too_much_allocates_nothing(tmp_path):
    path = write_images(tmp_path / "s")
    edit(path, lambda m: m.update(dim=10**18))
    (path / "00000.npy").write_bytes(header((2, 10**18)))
    with pytest.raises(ValueError, match="takes 8000000000000000128 bytes"):
        open_features(path)


@pytest.mark.parametrize("name", ["00001.npy", "00000.ids.txt"])
def test_missing_file_is_named(tmp_path, name):
    path = write_images(tmp_path / "s")
    (path / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        open_features(path)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"c\n", ":1: expected 2 ids.*found 1"),
        (b"", ":0: expected 2 ids.*found 0"),
        (b"c\na\nb\n", ":3: expected 2 ids.*found 3"),
        (b"c\na", ":2: expected 2 ids.*the last one cut off"),
        (b"c\nc\n", "in one shard once.* found 'c'"),
        (b"c\nb\n", "in one shard once.* found 'b'"),
        (b"c\n\xff\n", ":2: expected UTF-8"),
    ],
)
def test_ids_that_do_not_fit_are_refused(tmp_path, content, message):
    path = write_images(tmp_path / "s")
    (path / "00000.ids.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_features(path)


@pytest.mark.parametrize("counts", [[1, 0], [3, -1], [2**62, 2**62]])
def test_counts_that_do_not_sum_up_are_refused(tmp_path, counts):
    path = write_regions(tmp_path / "s")
    np.save(path / "00000.counts.npy", np.asarray(counts, np.int64))
    with pytest.raises(ValueError, match="counts.npy: .*sum up to 2"):
        open_features(path)


def test_array_by_columns_is_refused(tmp_path):
    path = write_images(tmp_path / "s")
    array = np.asfortranarray(np.load(path / "00000.npy"))
    np.save(path / "00000.npy", array)
    with pytest.raises(ValueError, match="00000.npy: .*column by column"):
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
        if "counts" in name:  # Noticed earlier: they do not sum up.
            with pytest.raises(ValueError, match=name):
                open_features(path)
            continue
        store = open_features(path)
        with pytest.raises(ValueError, match=f"of shard {name[:5]}") as error:
            store.verify()
        assert str(error.value).startswith(f"{path / name}: expected the sha")


def test_rows_that_are_not_finite_are_named(tmp_path):
    path = write_images(tmp_path / "s")
    array = np.asarray([[5, np.nan]], np.float32)
    np.save(path / "00001.npy", array)
    with pytest.raises(ValueError, match=r"row 2 \(id 'b'\).*nan in column 1"):
        check_finite(open_store(path))
    path = write_regions(tmp_path / "r")
    np.save(path / "00001.npy", np.full((1, 3), np.inf, np.float16))
    with pytest.raises(ValueError, match="region 0 of id 'c': .*inf in col"):
        check_finite(open_store(path))
    np.save(path / "00000.npy", np.asarray([[0] * 3, [np.inf] * 3], "f2"))
    with pytest.raises(ValueError, match="region 1 of id 'a'"):
        check_finite(open_store(path))


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
