"""Rows read from files that are open only while they are read."""

import itertools
import os

import numpy as np
import pytest

from tbnets.data.store.npy import RowFile, copy_rows
from tbnets.data.store.opening import load_features
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tests import refusals

ARRAY = np.arange(24, dtype=np.float32).reshape(8, 3)


def write(path, array=ARRAY):
    """Returns the `RowFile` of an array that is saved there."""
    np.save(path, array)
    start = os.path.getsize(path) - array.nbytes
    return RowFile(os.fspath(path), array.shape, array.dtype, start)


@pytest.mark.parametrize("dtype", ["<f4", "<f2", ">f4"])
@pytest.mark.parametrize(
    "rows",
    [
        [0, 1, 2, 3, 4, 5, 6, 7],  # One run, in three files.
        [5, 6, 1, 2],
        [3, 4, 4, 5],  # A row twice.
        [2, 6, 3, 7],  # Runs that are torn apart.
        [7, 6, 5, 0],
        [4],
        [],
    ],
)
def test_rows_of_several_files_come_in_order(tmp_path, dtype, rows):
    edges = [0, 3, 3, 4, 8]
    files = [
        write(tmp_path / f"{number}.npy", ARRAY[a:b].astype(dtype))
        for number, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    taken = np.empty((len(rows), 3), np.float32)
    copy_rows(files, np.array(edges), np.array(rows, np.int64), taken)
    np.testing.assert_array_equal(taken, ARRAY[rows])


def test_rows_that_follow_each_other_are_read_at_once(tmp_path, monkeypatch):
    sizes, fill = [], RowFile.fill
    file = write(tmp_path / "a.npy")
    monkeypatch.setattr(
        RowFile, "fill", lambda *a: sizes.append(a[3].nbytes) or fill(*a)
    )
    # A row has 12 bytes: 2 to 4 at once, then 6 alone.
    rows, out = np.array([6, 2, 3, 4]), np.empty((4, 3), np.float32)
    copy_rows([file], np.array([0, 8]), rows, out)
    assert sizes == [36, 12]


def test_a_run_is_read_as_it_is_stored(tmp_path):
    file = write(tmp_path / "a.npy", ARRAY.astype("<f2"))
    found = file.read(2, 3)
    assert found.dtype == "<f2"
    np.testing.assert_array_equal(found, ARRAY[2:5])
    assert file.read(8, 0).shape == (0, 3)
    scores = write(tmp_path / "b.npy", ARRAY[:, 0].copy())
    flat = RowFile(scores.path, (8,), scores.dtype, scores.start)
    np.testing.assert_array_equal(flat.read(6, 2), [18, 21])


def test_file_that_is_cut_after_it_was_opened_is_named(tmp_path):
    file = write(tmp_path / "a.npy")
    os.truncate(tmp_path / "a.npy", file.start + 5 * 12 + 1)
    assert file.read(0, 5).tolist() == ARRAY[:5].tolist()
    with refusals.at(tmp_path / "a.npy"):
        file.read(5, 1)
    rows, out = np.array([4, 5]), np.empty((2, 3), "f4")
    with refusals.at(tmp_path / "a.npy"):
        copy_rows([file], np.array([0, 8]), rows, out)


def write_store(path, shards=20):
    """Writes a store of many shards; row i holds i."""
    writer = FeatureWriter(path, {}, 1)
    for row in range(0, 2 * shards, 2):
        writer.add_shard([str(row), str(row + 1)], [[row], [row + 1]])
    writer.finish()
    return path


@pytest.fixture
def few_descriptors():
    """Lets this process open a dozen files more than it has open."""
    resource = pytest.importorskip("resource")
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not list what is open")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 12, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_stores_of_many_shards_need_few_descriptors(tmp_path, few_descriptors):
    paths = [write_store(tmp_path / name) for name in "ab"]
    keys = [str(row) for row in np.random.default_rng(0).permutation(40)]
    both, rows = load_features(paths, keys)
    np.testing.assert_array_equal(
        both.take(rows), [[int(key)] * 2 for key in keys]
    )
    for path in paths:
        store = open_store(path)
        store.verify()
        assert sum(len(array) for _, array in store.chunks()) == 40
    with open("/proc/self/maps") as maps:  # Nothing stays mapped.
        assert str(tmp_path) not in maps.read()
