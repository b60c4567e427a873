import errno
import os

import numpy as np
import pytest

from tbnets import files
from tbnets.data.store.opening import open_features
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter

EXTRACTION = {"model": "Tiny", "layers": ["conv1"], "low": -0.25}
IDS = [f"{i}.jpg" for i in range(7)]
BROKEN = {"2.jpg": "is cut", "4.jpg": "no image", "5.jpg": "no image"}


class Killed(BaseException):
    """What stands for `kill -9`."""


def features_of(key):
    return [int(key[0]), 0.5, -1]


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
            rows = np.asarray([features_of(key) for key in good])
            writer.add_shard(good, rows, failed=failed)
        else:
            counts = [int(key[0]) % 3 for key in good]
            rows = np.ones((sum(counts), 3))
            boxes = np.ones((sum(counts), 4))
            writer.add_shard(good, rows, boxes, counts, failed=failed)
    writer.finish()


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["images", "regions"])
@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_killed_at_any_file_it_goes_on_to_the_same_bytes(
    tmp_path, monkeypatch, kind, moment
):
    extract(tmp_path / "straight", kind)
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
            extract(path, kind)
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
        extract(path, kind)
        assert content_of(path) == expected
    # 3 shards of 2 or 4 files; 5 manifests on the way, as one pair failed
    # wholly, and the last manifest.
    assert last == 3 * (2 if kind == "images" else 4) + 5 + 1


def test_the_same_extraction_gives_the_same_bytes(tmp_path):
    extract(tmp_path / "a")
    extract(tmp_path / "b")
    before = content_of(tmp_path / "a")
    assert before == content_of(tmp_path / "b")
    extract(tmp_path / "a")  # Nothing is left to do.
    assert before == content_of(tmp_path / "a")
    store = open_features(tmp_path / "a")
    rows = store.take(store.rows(["6.jpg", "0.jpg"]))
    assert rows.tolist() == [[6, 0.5, -1], [0, 0.5, -1]]
    assert store.failed == BROKEN
    assert sorted(before) == [
        "00000.ids.txt",
        "00000.npy",
        "00001.ids.txt",
        "00001.npy",
        "00002.ids.txt",
        "00002.npy",
        "manifest.json",
    ]


def test_opening_a_store_to_write_changes_nothing(tmp_path):
    extract(tmp_path / "s")
    before = content_of(tmp_path / "s")
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    assert writer.done == set(IDS) - set(BROKEN)
    assert writer.failed == BROKEN
    assert content_of(tmp_path / "s") == before


def test_what_failed_may_be_stored_later(tmp_path):
    extract(tmp_path / "s")
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    writer.add_shard(["4.jpg"], np.ones((1, 3)), failed=[("5.jpg", "again")])
    assert writer.failed == {"2.jpg": "is cut", "5.jpg": "again"}
    assert "4.jpg" in writer.done
    assert not open_store(tmp_path / "s", incomplete=True).complete
    writer.finish()
    store = open_features(tmp_path / "s")
    assert store.failed == writer.failed
    assert store.take(store.rows(["4.jpg"])).tolist() == [[1, 1, 1]]
    store.verify()


def test_order_of_failures_does_not_count(tmp_path):
    for name, order in (("a", "xyz"), ("b", "zyx")):
        writer = FeatureWriter(tmp_path / name, EXTRACTION, 3)
        writer.add_shard([], None, failed=[(key, "cut") for key in order])
        writer.finish()
    assert content_of(tmp_path / "a") == content_of(tmp_path / "b")


def test_leftovers_are_removed_and_other_files_stay(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    for name in ("00007.npy", f".00007.scores.npy.{12 * '0'}.partial"):
        (tmp_path / "s" / name).write_bytes(b"half")
    (tmp_path / "s" / "README.md").write_text("mine")
    (tmp_path / "s" / "photos.npy").write_text("mine")
    writer.finish()
    assert sorted(os.listdir(tmp_path / "s")) == [
        "README.md",
        "manifest.json",
        "photos.npy",
    ]


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"extraction": {**EXTRACTION, "model": "Big"}},
            "model: Tiny in .*/s, Big in this extraction",
        ),
        ({"extraction": {}}, "low: -0.25 in .*, nothing in this"),
        ({"dim": 4}, "store.dim: 3 in .*, 4 in this"),
        ({"dtype": "float16"}, "store.dtype: float32 in .*, float16 in this"),
        ({"kind": "regions"}, "store.kind: images in .*, regions in this"),
    ],
)
def test_another_extraction_does_not_go_on(tmp_path, changes, message):
    extract(tmp_path / "s")
    before = content_of(tmp_path / "s")
    arguments = {"extraction": EXTRACTION, "dim": 3, **changes}
    with pytest.raises(ValueError, match=message):
        FeatureWriter(tmp_path / "s", **arguments)
    assert content_of(tmp_path / "s") == before


def test_extraction_compares_as_json_stores_it(tmp_path):
    writer = FeatureWriter(tmp_path / "s", {"size": (224, 224)}, 3)
    writer.finish()
    FeatureWriter(tmp_path / "s", {"size": (224, 224)}, 3)
    assert open_store(tmp_path / "s").extraction == {"size": [224, 224]}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"kind": "video"}, "`kind` must be one of images, regions"),
        ({"dtype": "float64"}, "`dtype` must be one of float32, float16"),
        ({"dim": 0}, "`dim` must be at least 1"),
        ({"dim": -1, "kind": "regions"}, "`dim` must be at least 1, or 0"),
        ({"extraction": {"a": float("nan")}}, "`extraction` must be a dict"),
        ({"extraction": {"a": np.float32(1)}}, "`extraction` must be a dict"),
        ({"extraction": ["a"]}, "`extraction` must be a dict.*type list"),
    ],
)
def test_bad_arguments_make_no_folder(tmp_path, changes, message):
    arguments = {"extraction": {}, "dim": 3, **changes}
    with pytest.raises(ValueError, match=message):
        FeatureWriter(tmp_path / "s", **arguments)
    assert not (tmp_path / "s").exists()


def test_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "00000.npy").write_text("mine")
    with pytest.raises(ValueError, match="holds 00000.npy but no manifest"):
        FeatureWriter(tmp_path, EXTRACTION, 3)
    with pytest.raises(ValueError, match="which is a file"):
        FeatureWriter(tmp_path / "00000.npy", EXTRACTION, 3)
    assert (tmp_path / "00000.npy").read_text() == "mine"


@pytest.mark.parametrize(
    "ids, failed, message",
    [
        (["a", "b\nc"], (), "'b.nc', which is no line of"),
        (["a", "b\r"], (), "which is no line of"),
        (["a", ""], (), "'', which is no line of"),
        (["a", 3], (), "3, which is no line of"),
        (["a", "\ufeffb"], (), "is no line of Unicode"),
        (["a", "\ud800"], (), "is no line of Unicode"),
        (["a", "a"], (), "'a', which stands twice"),
        (["a", "b"], [("b", "cut")], "'b', which stands twice"),
        (["a", "old"], (), "'old', which .*is in .*/s already"),
        (["a", "b"], [("old", "cut")], "'old', which .*is in .*/s already"),
        (["a", "b"], [("", "cut")], "'', which is no line of"),
    ],
)
def test_bad_ids_are_refused(tmp_path, ids, failed, message):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["old"], np.ones((1, 1)))
    before = content_of(tmp_path / "s")
    with pytest.raises(ValueError, match=message):
        writer.add_shard(ids, np.ones((2, 1)), failed=failed)
    assert content_of(tmp_path / "s") == before
    assert writer.done == {"old"} and writer.failed == {}


def test_ids_keep_every_other_character(tmp_path):
    ids = [" a ", "b\u2028c", "é\t", "x/y.jpg", "日本", "\x0b"]
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(ids, np.ones((6, 1)))
    writer.finish()
    assert open_features(tmp_path / "s").ids == tuple(ids)


ROWS = np.ones((2, 3), np.float32)
LARGE = np.asarray([[1, 1, 1], [1, 70000, 1]], np.float32)
NAN = np.asarray([[1, 1, np.nan], [1, 1, 1]], np.float32)


@pytest.mark.parametrize(
    "dtype, features, message",
    [
        ("float32", ROWS[:1], r"numbers of shape \(2, 3\). Received.*\(1, 3\)"),
        ("float32", ROWS[:, :2], r"Received: shape \(2, 2\)"),
        ("float32", None, "`features` must be given for a store of images"),
        (
            "float32",
            ROWS.astype(object),
            "must be finite numbers.*dtype object",
        ),
        ("float32", ROWS.astype(bool), "must be finite numbers.*dtype bool"),
        ("float32", NAN, "Received: nan for the image 'a'"),
        ("float16", LARGE, "finite numbers as float16.*70000.0 .*image 'b'"),
    ],
)
def test_features_that_do_not_fit_are_refused(
    tmp_path, dtype, features, message
):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3, dtype)
    with pytest.raises(ValueError, match=message):
        writer.add_shard(["a", "b"], features)
    assert writer.done == set()
    assert os.listdir(tmp_path / "s") == ["manifest.json"]


@pytest.mark.parametrize("count, named", [(1, {"features": ROWS}), (6, {})])
def test_an_array_is_given_once(tmp_path, count, named):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    with pytest.raises(ValueError, match=f"each once. Received: {count} in"):
        writer.add_shard(["a", "b"], *[ROWS] * count, **named)


def test_large_doubles_overflow_float32(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    with pytest.raises(ValueError, match=r"4e\+38 for the image 'b'"):
        writer.add_shard(["a", "b"], np.asarray([[3e38], [4e38]]))


BOXES = np.ones((2, 4))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"counts": [1, 2]},
            r"`features` must be finite numbers of shape \(3, 3\)",
        ),
        ({"counts": [2]}, "`counts` must be whole numbers from 0"),
        ({"counts": [3, -1]}, "`counts` must be whole numbers from 0"),
        ({"counts": [1.0, 1.0]}, "`counts` must be whole numbers from 0"),
        ({"counts": None}, "`counts` must be given for a store of regions"),
        ({"boxes": None}, "`boxes` must be given for a store of regions"),
        (
            {"boxes": BOXES[:1]},
            r"`boxes` must be finite numbers of shape \(2, 4\)",
        ),
        ({"boxes": BOXES * np.nan}, "`boxes` must be finite.*nan.*image 'a'"),
        (
            {"boxes": [[1, 1, 1, 1], [5, 1, 4, 9]]},
            r"boxes\[1\]=\[5.0, 1.0, 4.0",
        ),
        ({"scores": [1]}, r"`scores` must be finite numbers of shape \(2,\)"),
        ({"sizes": [[4, 3]]}, "`sizes` must be whole numbers from 1"),
        ({"sizes": [[4, 3], [4, 0]]}, "`sizes` must be whole numbers from 1"),
        ({"sizes": [[4, 3], [4, 0]], "counts": [2, 0]}, "0 for the image 'b'"),
        ({"sizes": [[4, 3], [4, 0]], "counts": [0, 2]}, "0 for the image 'b'"),
        ({"sizes": [[4.0, 3], [4, 3]]}, "`sizes` must be whole numbers from 1"),
        ({"features": NAN}, "nan for the image 'a'"),
        ({"features": NAN, "counts": [0, 2]}, "nan for the image 'b'"),
    ],
)
def test_regions_that_do_not_fit_are_refused(tmp_path, changes, message):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3, kind="regions")
    given = {"features": ROWS, "boxes": BOXES, "counts": [1, 1], **changes}
    with pytest.raises(ValueError, match=message):
        writer.add_shard(["a", "b"], **given)
    assert os.listdir(tmp_path / "s") == ["manifest.json"]


def test_boxes_alone_need_scores_and_no_features(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 0, kind="regions")
    with pytest.raises(ValueError, match="`scores` must be given"):
        writer.add_shard(["a"], None, BOXES, [2])
    with pytest.raises(ValueError, match="`features` must be None"):
        writer.add_shard(["a"], ROWS, BOXES, [2], [1, 1])
    with pytest.raises(ValueError, match="`scores` must be finite.*inf"):
        writer.add_shard(["a"], None, BOXES, [2], [1, np.inf])
    writer.add_shard(["a"], None, BOXES, [2], [1, 0.5])
    writer.finish()
    boxes, scores = open_features(tmp_path / "s").boxes(0)
    assert boxes.tolist() == BOXES.tolist() and scores.tolist() == [1, 0.5]


def test_shards_of_regions_have_the_same_parts(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3, kind="regions")
    given = {"features": ROWS, "boxes": BOXES, "counts": [2]}
    writer.add_shard(["a"], **given, sizes=[[4, 3]])
    with pytest.raises(ValueError, match="`sizes` must be given"):
        writer.add_shard(["b"], **given)
    again = FeatureWriter(tmp_path / "s", EXTRACTION, 3, kind="regions")
    with pytest.raises(ValueError, match="`scores` must be None"):
        again.add_shard(["b"], **given, sizes=[[4, 3]], scores=[1, 1])
    assert again.done == {"a"}


def test_images_have_no_sizes(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 3)
    with pytest.raises(ValueError, match="`sizes` must be None"):
        writer.add_shard(["a"], ROWS[:1], sizes=[[4, 3]])


def test_full_disk_leaves_the_earlier_shards(tmp_path, monkeypatch):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(["a"], np.ones((1, 1)))
    replace = os.replace

    def full(source, target):
        if str(target).endswith("00001.npy"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="00001.npy could not be written: No sp"):
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
    with pytest.raises(ValueError, match="by one process at a time"):
        other.add_shard(["b"], np.zeros((1, 1)))
    with pytest.raises(ValueError, match="by one process at a time"):
        other.finish()
    one.finish()
    open_features(tmp_path / "s").verify()


def test_ids_are_read_once_from_an_iterator(tmp_path):
    writer = FeatureWriter(tmp_path / "s", EXTRACTION, 1)
    writer.add_shard(iter(["a", "b"]), [[1], [2]], failed=iter([("c", "cut")]))
    assert writer.done == {"a", "b"} and writer.failed == {"c": "cut"}
