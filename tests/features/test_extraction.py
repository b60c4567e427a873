"""Tests of the extraction of features into a store."""

import hashlib

import numpy as np
import pytest

from tbnets import files
from tbnets.features import extraction
from tbnets.features.photo_features import PhotoFeatures
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter
from tests.features.test_full_network import oracle
from tests.features.test_photo_features import photo
from tests.features.tiny_cnn import tiny_cnn

COUNT = 11


@pytest.fixture(scope="module")
def features():
    return PhotoFeatures(tiny_cnn(), ["full_network"])


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    found = []
    for i in range(COUNT):
        path = folder / f"{i}.jpg"
        path.write_bytes(photo(i, size=(20 + i, 30)))
        found.append((f"photo {i}", path))
    return found


def open_writer(path, features, dtype="float32"):
    return FeatureWriter(path, features.description(), features.dim, dtype)


def run(photos, features, path, **options):
    writer = open_writer(path, features)
    failures = extraction.extract(
        photos, features, writer, batch_size=3, shard_images=4, **options
    )
    writer.finish()
    return failures


def run_ternary(photos, features, path):
    writer = open_writer(path, features, "int8")
    failures = extraction.extract_ternary(
        photos,
        {key for key, _ in photos[::2]},
        "train",
        features,
        writer,
        (-0.25, 0.15),
        batch_size=3,
        shard_images=4,
    )
    writer.finish()
    return failures


def content_of(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def test_rows_are_the_features_of_the_photos(tmp_path, photos, features):
    told = []
    failures = run(photos, features, tmp_path / "s", progress=told.append)
    assert failures == [] and sum(told) == COUNT
    store = open_store(tmp_path / "s")
    assert store.ids == tuple(key for key, _ in photos)
    expected = features([path.read_bytes() for _, path in photos])
    np.testing.assert_allclose(
        store.take(range(COUNT)), expected, rtol=1e-4, atol=1e-6
    )
    # Shards of 4, 4 and 3.
    assert [shard.images for shard in store.manifest.shards] == [4, 4, 3]


def test_broken_photos_are_told_and_the_rest_goes_on(
    tmp_path, photos, features
):
    photos[2][1].write_bytes(photos[2][1].read_bytes()[:-700])
    photos[5][1].write_bytes(b"no photo")
    photos[9][1].unlink()
    failures = run(photos, features, tmp_path / "s")
    assert [path for path, _ in failures] == [photos[i][1] for i in (2, 5, 9)]
    assert "does not decode" in failures[0][1]
    assert failures[2][1] == "is not there"
    store = open_store(tmp_path / "s")
    assert len(store) == COUNT - 3
    assert set(store.failed) == {"photo 2", "photo 5", "photo 9"}
    kept = [path for i, (_, path) in enumerate(photos) if i not in (2, 5, 9)]
    np.testing.assert_allclose(
        store.take(range(COUNT - 3)),
        features([path.read_bytes() for path in kept]),
        rtol=1e-4,
        atol=1e-6,
    )


def test_a_shard_of_broken_photos_alone(tmp_path, photos, features):
    for _, path in photos[4:8]:
        path.write_bytes(b"")
    assert len(run(photos, features, tmp_path / "s")) == 4
    assert len(open_store(tmp_path / "s")) == COUNT - 4


def test_mended_photos_are_added(tmp_path, photos, features):
    content = photos[2][1].read_bytes()
    photos[2][1].write_bytes(content[:-700])
    run(photos, features, tmp_path / "s")
    photos[2][1].write_bytes(content)
    assert run(photos, features, tmp_path / "s") == []
    store = open_store(tmp_path / "s")
    assert store.failed == {} and len(store) == COUNT
    assert store.ids[-1] == "photo 2"


def test_nothing_is_extracted_twice(tmp_path, photos, features):
    run(photos[:6], features, tmp_path / "s")
    told = []
    run(photos, features, tmp_path / "s", progress=told.append)
    assert sum(told) == COUNT - 6
    before = content_of(tmp_path / "s")
    run(photos, features, tmp_path / "s", progress=told.append)
    assert sum(told) == COUNT - 6
    assert content_of(tmp_path / "s") == before


class Killed(BaseException):
    """Nothing in between may catch it."""


@pytest.mark.parametrize("extract", [run, run_ternary])
def test_killed_at_any_write_goes_on_to_the_same_bytes(
    tmp_path, photos, features, monkeypatch, extract
):
    photos[1][1].write_bytes(b"no photo")
    straight = tmp_path / "straight"
    writes = 0
    write = files.write_atomically

    def counted(path, function):
        nonlocal writes
        writes += 1
        if writes == stop_at:
            raise Killed
        write(path, function)

    monkeypatch.setattr(files, "write_atomically", counted)
    stop_at = -1
    extract(photos, features, straight)
    # A few of the writes: files of shards, manifests, statistics.
    for i, stop in enumerate(range(2, writes, max(3, writes // 4))):
        stopped = tmp_path / f"stopped {i}"
        writes, stop_at = 0, stop
        with pytest.raises(Killed):
            extract(photos, features, stopped)
        stop_at = -1
        extract(photos, features, stopped)
        assert content_of(stopped) == content_of(straight)


def test_raw_features_are_removed_and_nothing_else(tmp_path, photos, features):
    run_ternary(photos, features, tmp_path / "s")
    writer = open_writer(tmp_path / "s", features, "int8")
    raw = tmp_path / "s.raw"
    (raw / "mine.txt").write_text("not of the store")
    extraction.remove_raw(writer)
    assert [path.name for path in raw.iterdir()] == ["mine.txt"]
    extraction.remove_raw(writer)  # no store any more
    assert (raw / "mine.txt").is_file()


def test_killed_while_raw_features_are_removed(tmp_path, photos, features):
    photos[2][1].write_bytes(b"a training photo that never decodes")
    run_ternary(photos, features, tmp_path / "s")
    before = content_of(tmp_path / "s")
    (tmp_path / "s.raw" / "00000.npy").unlink()
    failures = run_ternary(photos, features, tmp_path / "s")
    assert [path for path, _ in failures] == [photos[2][1]]
    assert content_of(tmp_path / "s") == before


def test_ternary_agrees_with_the_oracle(tmp_path, photos, features):
    run_ternary(photos, features, tmp_path / "s")
    store = open_store(tmp_path / "s")
    assert store.manifest.dtype == "int8"
    assert store.manifest.statistics.of == "train"
    assert store.manifest.statistics.images == 6
    run(photos, features, tmp_path / "floats")
    floats = open_store(tmp_path / "floats")
    rows = floats.take(floats.rows(store.ids))
    train = floats.take(floats.rows([key for key, _ in photos[::2]]))
    np.testing.assert_array_equal(store.take(range(COUNT)), oracle(train, rows))


def test_ternary_uses_the_training_photos_alone(tmp_path, photos, features):
    run_ternary(photos, features, tmp_path / "a")
    photos[1][1].write_bytes(photo(99))  # not of the training photos
    run_ternary(photos, features, tmp_path / "b")
    a, b = (open_store(tmp_path / name) for name in "ab")
    for name in ("mean", "deviation"):
        np.testing.assert_array_equal(a.statistics[name], b.statistics[name])
    changed = (a.take(a.rows(["photo 1"])) != b.take(b.rows(["photo 1"]))).any()
    assert changed


def test_measured_statistics_are_those_of_numpy(tmp_path, photos, features):
    run(photos, features, tmp_path / "s")
    store = open_store(tmp_path / "s")
    rows = store.take(range(COUNT)).astype(np.float64)
    found = extraction.measure(store)
    np.testing.assert_allclose(found["mean"], rows.mean(axis=0))
    np.testing.assert_allclose(found["deviation"], rows.std(axis=0), atol=1e-12)
