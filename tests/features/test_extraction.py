"""Tests of the extraction of features into a store."""

import hashlib
import threading
import types

import numpy as np
import pytest

from tbnets import files
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import extraction
from tbnets.features.photo_features import PhotoFeatures
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


def run(photos, features, path, **options):
    writer = FeatureWriter(path, features.description(), features.dim)
    failures = extraction.extract_photos(
        photos, features, writer, batch_size=3, shard_images=4, **options
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


@pytest.mark.parametrize(
    ("cpus_alone", "crops", "most"),
    [(True, "one", 2), (True, "ten", 1), (False, "one", 1)],
)
def test_how_many_passes_are_at_work_at_once(
    monkeypatch, tmp_path, photos, features, cpus_alone, crops, most
):
    monkeypatch.setattr(extraction, "no_accelerator", lambda: cpus_alone)
    at_work, second, told = [], threading.Event(), []

    def forward(batch):
        at_work.append(batch)
        told.append(len(at_work))
        second.set() if len(told) > 1 else second.wait(10 if most > 1 else 0.3)
        at_work.pop()
        return features.compiled_forward(batch)

    spied = types.SimpleNamespace(
        description=features.description,
        dim=features.dim,
        decode=features.decode,
        crops=crops,
        compiled_forward=forward,
    )
    run(photos, spied, tmp_path / "spied")
    run(photos, features, tmp_path / "plain")
    assert max(told) == most
    assert content_of(tmp_path / "spied") == content_of(tmp_path / "plain")


def test_broken_photos_are_told_and_the_rest_goes_on(
    tmp_path, photos, features
):
    photos[2][1].write_bytes(photos[2][1].read_bytes()[:-700])
    photos[5][1].write_bytes(b"no photo")
    photos[9][1].unlink()
    failures = run(photos, features, tmp_path / "s")
    assert [path for path, _ in failures] == [photos[i][1] for i in (2, 5, 9)]
    reasons = [reason for _, reason in failures]
    assert reasons[0].startswith("does not decode: ")
    assert reasons[1:] == ["is of another kind", "is not there"]
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


def test_killed_at_any_write_goes_on_to_the_same_bytes(
    tmp_path, photos, features, monkeypatch
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
    run(photos, features, straight)
    # A few of the writes: files of shards and manifests.
    for i, stop in enumerate(range(2, writes, max(3, writes // 4))):
        stopped = tmp_path / f"stopped {i}"
        writes, stop_at = 0, stop
        with pytest.raises(Killed):
            run(photos, features, stopped)
        stop_at = -1
        run(photos, features, stopped)
        assert content_of(stopped) == content_of(straight)
