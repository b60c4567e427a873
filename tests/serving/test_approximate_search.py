"""Tests of an index's cells: what is found there is told exactly."""

import shutil
import sys

import numpy as np
import pytest

from tbnets.serving import search_index
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import open_approximate, open_index
from tests.data.store.test_writer import Killed, kill_at
from tests.refusals import refused

MODEL = {"model": "1f00"}


def rows_of(count, seed=0):
    rows = np.random.default_rng(seed).normal(size=[count, 8])
    return np.float32(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Returns the folder of an index of 90 rows."""
    pytest.importorskip("faiss", reason="needs the extra: tbnets[faiss]")
    monkeypatch.setattr(search_index, "_ROWS_A_CELL", 10)
    with IndexWriter(tmp_path, MODEL, 8, approximate=True) as writer:
        writer.put([f"{row}" for row in range(90)], rows_of(90))
    return tmp_path


def test_search_in_all_cells_equals_exact_search(path):
    queries = rows_of(5, seed=1)
    index = open_approximate(path)
    wanted, best = open_index(path).search(queries, 90)
    for k, count in ((2, 2), (2**40, 90)):
        rows, values = index.search(queries, k)
        np.testing.assert_array_equal(rows, wanted[:, :count])
        np.testing.assert_allclose(values, best[:, :count], atol=1e-6)
        assert (rows.dtype, values.dtype) == (np.int64, np.float32)


def test_cells_with_too_few_rows_are_searched_exactly(path, monkeypatch):
    monkeypatch.setattr(search_index, "CELLS_LOOKED_INTO", 1)
    index, exact = open_approximate(path), open_index(path)
    queries = rows_of(20, seed=1)
    rows, values = index.search(queries, 3)
    wanted, best = exact.search(queries, 3)
    assert (values <= best + 1e-6).all() and (rows != wanted).any()
    all_rows = (queries @ rows_of(90).T)[np.arange(20)[:, None], rows]
    np.testing.assert_allclose(values, all_rows, atol=1e-6)
    for k in (80, 99):
        found = index.search(queries, k)
        np.testing.assert_array_equal(found[0], exact.search(queries, k)[0])


def test_each_change_computes_the_cells_again(path):
    [cells] = path.glob("*.faiss")
    with IndexWriter(path, MODEL, 8, approximate=True):
        pass
    assert [cells] == list(path.glob("*.faiss"))
    old = open_approximate(path)
    with IndexWriter(path, MODEL, 8) as writer:
        writer.put(["new"], rows_of(1, seed=9))
        writer.remove(["0"])
    [[row]], _ = open_approximate(path).search(rows_of(1, seed=9), 1)
    assert open_index(path).ids[row] == "new"
    assert [cells] != list(path.glob("*.faiss"))
    assert len(old.search(rows_of(1), 90)[0][0]) == 90
    with IndexWriter(path, MODEL, 8) as writer:
        writer.remove_others()
    assert not list(path.glob("*.faiss"))


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_killed_update_leaves_cells_of_the_index(path, monkeypatch, moment):
    queries, sizes = rows_of(3), set()
    for last in range(100):
        copy = shutil.copytree(path, path / f"copy{last}")
        with monkeypatch.context() as patch:
            kill_at(patch, last, moment)
            try:
                with IndexWriter(copy, MODEL, 8) as writer:
                    writer.put(["x", "y"], rows_of(2, seed=9))
                    writer.remove(["0"])
                break
            except Killed:
                pass
        index = open_approximate(copy)
        index.search(queries, 5)
        sizes.add(len(index))
    # The new rows, the remaining ones, the cells and the manifest.
    assert last == 2 + 2 + 1 + 1
    assert sizes == ({90, 91} if moment == "after" else {90})


def test_damaged_cells_raise_an_error(path):
    [cells] = path.glob("*.faiss")
    content = cells.read_bytes()
    for broken in (content[:-1] + b"x", content[:-9], b""):
        cells.write_bytes(broken)
        with refused(cells.name):
            open_approximate(path)


def test_approximate_search_needs_cells_and_cosines(
    path, tmp_path_factory, monkeypatch
):
    index = open_approximate(path)
    with refused("--approximate"):
        index.search(rows_of(1), 1, lambda rows, queries: rows @ queries.T)
    empty = tmp_path_factory.mktemp("empty")
    with IndexWriter(empty, MODEL, 8):
        pass
    with refused("--approximate"):
        open_approximate(empty)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"tbnets\[faiss\]"):
        open_approximate(path)
