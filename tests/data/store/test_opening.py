"""Tests of the way from paths to features that are in order."""

import os
import pathlib

import numpy as np
import pytest

from tbnets.data.store import reader
from tbnets.data.store.features import ids_file
from tbnets.data.store.reader import (
    FeatureStore,
    load_features,
    open_features,
)
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tests import refusals


def write_store(path):
    """Writes a store in two calls: a -> [1, 2] and b -> [3, 4]."""
    writer = FeatureWriter(path, {"model": "Tiny"}, 2)
    writer.add(["a"], [[1, 2]])
    writer.add(["b"], [[3, 4]])
    writer.finish()
    return path


def write_array(path, values, ids="ba"):
    np.save(path, np.asarray(values, np.float32))
    pathlib.Path(ids_file(path)).write_text("".join(f"{i}\n" for i in ids))
    return path


@pytest.fixture
def read(monkeypatch):
    """Returns a list of the checks of files."""
    names = []
    verify, finite = FeatureStore.verify, reader.check_finite

    def verified(store):
        names.append(f"checksums of {os.path.basename(store.path)}")
        verify(store)

    def scanned(features):
        names.append(f"numbers of {os.path.basename(features.path)}")
        return finite(features)

    monkeypatch.setattr(FeatureStore, "verify", verified)
    monkeypatch.setattr(reader, "check_finite", scanned)
    return names


def test_each_file_is_checked_once(tmp_path, read):
    path = write_store(tmp_path / "s")
    other = write_array(tmp_path / "x.npy", [[5], [6]])
    load_features(path)
    expected = ["checksums of s", "numbers of s"]
    assert read == expected
    load_features(path, other)
    load_features(other)
    assert read == [*expected, "numbers of x.npy"]


def test_changed_file_is_checked_again(tmp_path):
    path = write_store(tmp_path / "s")
    load_features(path)
    file = path / "features.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"A")
    os.utime(file, ns=(0, 0))
    for _ in range(2):  # A failed check is repeated.
        with refusals.at(file):
            load_features(path)
    file.write_bytes(content)
    load_features(path)
    other = write_array(tmp_path / "x.npy", [[5], [6]])
    load_features(other)
    write_array(other, [[5], [np.nan]])
    os.utime(other, ns=(0, 0))
    with refusals.at(other):
        load_features(other)


# Features of several sources side by side.


@pytest.fixture
def two(tmp_path):
    """Two files with the ids b, a, d and a, b, c, and their arrays."""
    first = np.arange(6.0).reshape(3, 2)
    second = np.arange(9.0).reshape(3, 3) - 4
    paths = (
        write_array(tmp_path / "first_ims.npy", first, "bad"),
        write_array(tmp_path / "second_ims.npy", second, "abc"),
    )
    return paths, first, second


def test_features_are_concatenated_by_id(two, tmp_path):
    paths, first, second = two
    with_store = paths[0], write_store(tmp_path / "s")
    features = load_features(*with_store)
    taken = features.take(features.rows(["a", "b"])).tolist()
    assert taken == [[*first[1], 1, 2], [*first[0], 3, 4]]
    features = open_features(*paths)
    assert features.ids == ("b", "a") and features.dim == 5
    expected = {"a": [*first[1], *second[0]], "b": [*first[0], *second[1]]}
    for asked in (["a"], ["a", "b", "a"], []):
        taken = features.take(features.rows(asked))
        assert taken.tolist() == [expected[key] for key in asked]
        assert taken.dtype == np.float32 and taken.shape == (len(asked), 5)
    assert [part.path for part in features.parts] == list(map(str, paths))
    assert features.path == f"{paths[0]}, {paths[1]}"


def test_error_about_a_missing_id_names_the_file(two, tmp_path):
    paths, *_ = two
    features = open_features(*paths)
    assert features.missing(["a", "c", "d"]) == ["c", "d"]
    with refusals.refused("image_ids") as error:
        features.rows(["a", "c"])
    assert paths[0].name in error.value.fields[1]
    other = write_array(tmp_path / "other_ims.npy", np.ones((1, 1)), "x")
    with refusals.refused("parts"):  # No id is in both.
        open_features(paths[0], other)


def test_features_without_ids_are_not_concatenated(two, tmp_path):
    bare, other = tmp_path / "bare_ims.npy", tmp_path / "other.npy"
    for path in (bare, other):
        np.save(path, np.ones((3, 1)))
    for paths in ((bare, other), (two[0][0], bare), (bare, bare)):
        with pytest.raises(InputError, match=r"bare_ids\.txt"):
            open_features(*paths)
    assert open_features(bare).ids == ("0", "1", "2")  # Alone it may be.
