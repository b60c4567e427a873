"""Tests of features of several sources put side by side."""

import numpy as np
import pytest

from tbnets.data.store.arrays import check_finite, ids_file
from tbnets.data.store.opening import open_features


def save(folder, array, ids, name):
    path = folder / name
    np.save(path, array)
    ids_path = ids_file(path)
    with open(ids_path, "w", encoding="utf-8") as stream:
        stream.writelines(f"{key}\n" for key in ids)
    return path


@pytest.fixture
def two(tmp_path):
    """Two files with the ids b, a, d and a, b, c, and their arrays."""
    first = np.arange(6.0).reshape(3, 2)
    second = np.arange(9.0).reshape(3, 3) - 4
    paths = (
        save(tmp_path, first, ["b", "a", "d"], "first_ims.npy"),
        save(tmp_path, second, ["a", "b", "c"], "second_ims.npy"),
    )
    return paths, first, second


def test_features_are_joined_by_id(two):
    paths, first, second = two
    features = open_features(*paths)
    assert features.ids == ("b", "a") and features.dim == 5
    expected = {"a": [*first[1], *second[0]], "b": [*first[0], *second[1]]}
    for asked in (["a"], ["a", "b", "a"], []):
        taken = features.take(features.rows(asked))
        assert taken.tolist() == [expected[key] for key in asked]
        assert taken.dtype == np.float32 and taken.shape == (len(asked), 5)
    assert [part.path for part in features.parts] == list(map(str, paths))
    assert features.path == f"{paths[0]}, {paths[1]}"


def test_features_come_in_chunks(two, monkeypatch):
    features = open_features(*two[0])
    for size in (1, 20, 1000):
        monkeypatch.setattr("tbnets.data.store.arrays.CHUNK_BYTES", size)
        rows, arrays = zip(*features.chunks())
        assert rows[-1].stop == 2 and len(rows) == (1 if size == 1000 else 2)
        np.testing.assert_array_equal(
            np.concatenate(arrays), features.take([0, 1])
        )


def test_a_missing_id_names_its_file(two):
    paths, *_ = two
    features = open_features(*paths)
    assert features.missing(["a", "c", "d"]) == ["c", "d"]
    for path, other, key in (paths[::-1] + ("d",), paths + ("c",)):
        with pytest.raises(ValueError, match=f"{path.name}.*'{key}'") as error:
            features.rows(["a", key])
        assert other.name not in str(error.value)
    with pytest.raises(IndexError, match=r"\[0, 2\)"):
        features.take([2])


def test_ids_must_be_in_common(two, tmp_path):
    other = save(tmp_path, np.ones((1, 1)), ["x.jpg"], "other_ims.npy")
    with pytest.raises(ValueError, match="in common.*'b'.*other_ims.*'x.jpg'"):
        open_features(two[0][0], other)


def test_features_without_ids_are_not_joined(two, tmp_path):
    bare = tmp_path / "bare_ims.npy"
    np.save(bare, np.ones((3, 1)))
    other = tmp_path / "other.npy"
    np.save(other, np.ones((3, 1)))
    for paths in ((bare, other), (two[0][0], bare), (bare, bare)):
        with pytest.raises(ValueError) as error:
            open_features(*paths)
        assert (
            f"{bare}: expected ids, by which features are put side by side; "
            f"found no file {tmp_path / 'bare_ids.txt'}."
        ) in str(error.value)
    assert open_features(bare).ids == ("0", "1", "2")  # Alone it may be.


def test_a_bad_number_names_its_file(two, tmp_path):
    bad = np.ones((3, 1))
    bad[1] = np.nan
    path = save(tmp_path, bad, ["c", "b", "a"], "bad_ims.npy")
    with pytest.raises(ValueError, match=r"bad_ims.npy: row 1 \(id 'b'\)"):
        check_finite(open_features(two[0][0], path))
    problems = []
    check_finite(open_features(two[0][0], path, path), problems)
    assert len(problems) == 2
