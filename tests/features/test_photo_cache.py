"""Tests of features that are kept by the content of photos."""

import hashlib
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data import archives
from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError
from tbnets.features import photo_cache
from tbnets.features.photo_features import PhotoFeatures
from tests.features.test_photo_features import photo, vector
from tests.features.tiny_cnn import tiny_cnn

NAMES = ["a.jpg", "more/b.jpg", "c.png"]


@pytest.fixture
def folder(tmp_path):
    """A folder of three photos, an hour old."""
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for seed, name in enumerate(NAMES):
        write(folder / name, photo(seed))
    return folder


def write(path, content, age=3600):
    path.write_bytes(content)
    time = path.stat().st_mtime - age
    os.utime(path, (time, time))


@pytest.fixture(scope="module")
def features():
    features = PhotoFeatures(tiny_cnn())
    content = [tf.TensorSpec([], tf.string)]
    features.decode = tf.function(features.decode, content)  # Traced once.
    return features


class Counted:
    """A cache that notes what it extracts.

    Args:
        folder: of the photos.
        features: a `PhotoFeatures`.
    """

    def __init__(self, folder, features):
        self.folder, self.features = folder, features
        self.place = folder.with_name("photos.tbnets")
        self.cache = photo_cache.PhotoCache(
            folder, self.place, features.description(), lambda: features
        )

    def update(self, names):
        """Returns (what is wrong, names that were extracted)."""
        extracted, extract = [], photo_cache.extraction.extract_photos

        def noted(photos, *rest, **options):
            paths = [path.relative_to(self.folder) for _, path in photos]
            extracted.extend(path.as_posix() for path in paths)
            return extract(photos, *rest, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(photo_cache.extraction, "extract_photos", noted)
            return self.cache.update(names), extracted

    def assert_right(self, names):
        """Every photo has the features of its content."""
        found, rows = self.cache.load(names)
        contents = [(self.folder / name).read_bytes() for name in names]
        expected = [vector(self.features, content) for content in contents]
        np.testing.assert_allclose(found.take(rows), expected, atol=1e-5)


def test_new_and_changed_photos_alone_are_extracted(folder, features):
    folder.chmod(0o700)
    cache = Counted(folder, features)
    assert cache.update(NAMES) == ({}, NAMES)
    cache.assert_right(NAMES)
    again = Counted(folder, features)
    assert again.update(NAMES) == ({}, [])
    again.assert_right(NAMES[::-1])
    write(folder / "c.png", photo(7))
    write(folder / "new.jpg", photo(8))
    (folder / "a.jpg").unlink()
    write(folder / "copy.jpg", photo(8))
    names = ["new.jpg", "copy.jpg", "c.png", "more/b.jpg"]
    assert again.update(names) == ({}, ["copy.jpg", "c.png"])
    again.assert_right(names)
    # A renamed photo and a copy are the same photo.
    (folder / "new.jpg").rename(folder / "renamed.jpg")
    names = ["renamed.jpg", "copy.jpg"]
    assert again.update(names) == ({}, [])
    again.assert_right(names)
    # The cache of a private folder is private.
    assert cache.place.stat().st_mode & 0o7777 == 0o700


def write_store(cache, features, names, failed=()):
    """Writes features of photos and failures to the store of a cache."""
    description = features.description()
    writer = photo_cache.FeatureWriter(
        cache.cache.store, description, features.dim
    )
    keys = [file_sha256(cache.folder / name) for name in names]
    rows = np.zeros((len(keys), features.dim), np.float32)
    writer.add(keys, rows, failed=failed)
    return writer


def test_each_network_has_its_store(folder, features):
    networks = features, PhotoFeatures(tiny_cnn(seed=1))
    stores = {Counted(folder, one).cache.store for one in networks}
    assert len(stores) == 2


def test_broken_photos_are_told_and_tried_when_they_are_others(
    folder, features
):
    write(folder / "cut.jpg", photo(4)[:-700])
    (folder / "folder.jpg").mkdir()
    cache = Counted(folder, features)
    names = [*NAMES, "cut.jpg", "folder.jpg", "absent.jpg"]
    problems, _ = cache.update(names)
    assert problems.pop("cut.jpg").startswith("does not decode: ")
    others = {"folder.jpg": "is not a file", "absent.jpg": "does not exist"}
    assert problems == others
    cache.assert_right(NAMES)
    problems, extracted = Counted(folder, features).update(names)
    assert problems.keys() == {"cut.jpg", *others} and extracted == []
    write(folder / "cut.jpg", photo(5))
    problems, extracted = cache.update(["cut.jpg"])
    assert (problems, extracted) == ({}, ["cut.jpg"])


def test_a_failure_that_was_none_of_the_photos_is_tried_again(folder, features):
    cache = Counted(folder, features)
    failed = {file_sha256(folder / "c.png"): "cannot be read: disk"}
    write_store(cache, features, NAMES[:1], failed)
    problems, extracted = cache.update(NAMES)
    assert problems == {} and sorted(extracted) == sorted(NAMES[1:])
    cache.assert_right(NAMES[1:])


def test_files_are_read_when_size_or_time_changed(folder, monkeypatch):
    index = folder / photo_cache.INDEX
    first = photo_cache.photo_checksums(folder, NAMES, index)
    assert [reason for _, reason in first] == [None] * 3
    read = []
    monkeypatch.setattr(
        archives, "read_bytes", lambda path: read.append(path) or b"new"
    )
    assert photo_cache.photo_checksums(folder, NAMES, index) == first
    assert read == []
    os.utime(folder / "a.jpg", (1e9, 1e9))
    again = photo_cache.photo_checksums(folder, NAMES, index)
    assert again == [(hashlib.sha256(b"new").hexdigest(), None), *first[1:]]
    assert read == [folder / "a.jpg"]

    def fail(path):
        raise OSError(5, "disk")

    monkeypatch.setattr(archives, "read_bytes", fail)
    os.utime(folder / "a.jpg", (1e9, 1e9 + 1))
    failed, *_ = photo_cache.photo_checksums(folder, NAMES, index)
    assert failed == (None, "cannot be read: disk")


def test_a_file_of_this_moment_is_read_again(folder):
    write(folder / "a.jpg", photo(0), age=0)
    photo_cache.photo_checksums(folder, NAMES, folder / photo_cache.INDEX)
    known = json.loads((folder / photo_cache.INDEX).read_text())
    assert sorted(known) == ["c.png", "more/b.jpg"]


def test_an_index_that_is_none_is_made_anew(folder):
    index = folder / photo_cache.INDEX
    for content in (
        *(b"", b"[]", b"\xff", b'{"a.jpg": 3}', b'{"a.jpg": [1, 2, 3]}'),
        *(b'{"a.jpg": [1, 2]}', b'{"a.jpg": [1, 2, "../x"]}'),
    ):
        index.write_bytes(content)
        found = photo_cache.photo_checksums(folder, ["a.jpg"], index)
        assert found == [(file_sha256(folder / "a.jpg"), None)]


def test_a_damaged_store_can_be_removed(folder, features):
    cache = Counted(folder, features)
    write_store(cache, features, NAMES[:1]).finish()
    path = cache.cache.store / "features.npy"
    path.write_bytes(path.read_bytes()[:-4])
    for read in (cache.cache.update, cache.cache.load):
        with pytest.raises(InputError, match=f"remove {cache.cache.store}"):
            read(NAMES[:1])


def test_a_cache_that_can_not_be_written_is_named(folder, features):
    cache = Counted(folder, features)
    cache.place.write_text("a file")
    with pytest.raises(OSError, match=cache.place.name):
        cache.update(NAMES)
