"""Tests of the way from paths to features that are in order."""

import os

import numpy as np
import pytest

from tbnets.data.store import opening, shards
from tbnets.data.store.opening import load_features, open_features, read_made_by
from tbnets.data.store.writer import FeatureWriter


def write_store(path):
    """Two shards: a -> [1, 2] and b -> [3, 4]."""
    writer = FeatureWriter(path, {"model": "Tiny"}, 2)
    writer.add_shard(["a"], [[1, 2]])
    writer.add_shard(["b"], [[3, 4]])
    writer.finish()
    return path


def write_array(path, values):
    np.save(path, np.asarray(values, np.float32))
    ids = path.with_name(path.name.replace(".npy", "_ids.txt"))
    ids.write_text("b\na\n")
    return path


@pytest.fixture
def read(monkeypatch):
    """Returns the names of the files that are hashed and scanned."""
    names = []
    sha256, finite = shards.file_sha256, opening.check_finite

    def hashed(path):
        names.append(os.path.basename(path))
        return sha256(path)

    def scanned(features):
        names.append(f"numbers of {os.path.basename(features.path)}")
        return finite(features)

    monkeypatch.setattr(shards, "file_sha256", hashed)
    monkeypatch.setattr(opening, "check_finite", scanned)
    return names


def test_rows_are_found_by_id(tmp_path):
    paths = [
        write_store(tmp_path / "s"),
        write_array(tmp_path / "x.npy", [[5], [6]]),
    ]
    features, rows = load_features(paths, ["b", "a", "b"])
    taken = features.take(rows)
    assert taken.tolist() == [[3, 4, 5], [1, 2, 6], [3, 4, 5]]
    features, rows = load_features(paths)
    assert features.take(rows).tolist() == [[1, 2, 6], [3, 4, 5]]
    assert read_made_by(*paths) == features.made_by


def test_each_file_is_checked_once(tmp_path, read):
    path = write_store(tmp_path / "s")
    other = write_array(tmp_path / "x.npy", [[5], [6]])
    load_features([path], ["a"])
    expected = [
        *("00000.ids.txt", "00000.npy", "00001.ids.txt", "00001.npy"),
        "numbers of s",
    ]
    assert read == expected
    load_features([path], ["b"])
    load_features([path, other], ["b"])
    load_features([other])
    assert read == [*expected, "numbers of x.npy"]


def test_opening_checks_nothing(tmp_path, read):
    open_features(write_store(tmp_path / "s"))
    assert read == []


def test_missing_images_are_told_before_anything_is_read(tmp_path, read):
    with pytest.raises(ValueError, match="1 of 2 missing there, first 'c'"):
        load_features([write_store(tmp_path / "s")], ["a", "c"])
    assert read == []


def test_a_file_that_is_written_again_is_checked_again(tmp_path):
    path = write_store(tmp_path / "s")
    load_features([path])
    shard = path / "00001.npy"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + b"A")
    os.utime(shard, ns=(0, 0))
    for _ in range(2):  # What failed is not taken for good.
        with pytest.raises(ValueError, match="00001.npy: .*sha256.*00001"):
            load_features([path])
    shard.write_bytes(content)
    load_features([path])
    other = write_array(tmp_path / "x.npy", [[5], [6]])
    load_features([other])
    write_array(other, [[5], [np.nan]])
    os.utime(other, ns=(0, 0))
    with pytest.raises(ValueError, match=r"x.npy: row 1 \(id 'a'\)"):
        load_features([other])
