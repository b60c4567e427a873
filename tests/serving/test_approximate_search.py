"""Tests of an index's cells: what is found there is told exactly."""

import sys

import numpy as np
import pytest

from tbnets.errors import MissingFileError
from tbnets.serving import index_writer as writing
from tbnets.serving import search_index
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import (
    build_index,
    open_approximate,
    open_index,
)
from tests.refusals import refused

MODEL = {"model": "1f00"}


def rows_of(count, seed=0):
    rows = np.random.default_rng(seed).normal(size=[count, 8])
    return np.float32(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Returns the folder of an index of 90 rows, in shards of 40."""
    pytest.importorskip("faiss", reason="needs the extra: tbnets[faiss]")
    monkeypatch.setattr(writing, "SHARD_ROWS", 40)
    monkeypatch.setattr(search_index, "_ROWS_A_CELL", 10)
    with IndexWriter(tmp_path, MODEL, 8) as writer:
        writer.put([f"{row}" for row in range(90)], rows_of(90))
    build_index(tmp_path)
    return tmp_path


def test_what_is_found_in_all_cells_is_what_there_is(path):
    queries = rows_of(5, seed=1)
    index = open_approximate(path)
    wanted, best = open_index(path).search(queries, 90)
    for k, count in ((2, 2), (2**40, 90)):
        rows, values = index.search(queries, k)
        np.testing.assert_array_equal(rows, wanted[:, :count])
        np.testing.assert_allclose(values, best[:, :count], atol=1e-6)
        assert (rows.dtype, values.dtype) == (np.int64, np.float32)


def test_fewer_cells_lose_some_and_too_few_rows_lose_none(path, monkeypatch):
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


def test_cells_are_of_the_rows_that_there_are(path):
    [cells] = path.glob("*.faiss")
    build_index(path)
    with IndexWriter(path, MODEL, 8):
        pass
    assert [cells] == list(path.glob("*.faiss"))
    with IndexWriter(path, MODEL, 8) as writer:
        writer.put(["new"], rows_of(1, seed=9))
    assert not list(path.glob("*.faiss"))
    with pytest.raises(MissingFileError):
        open_approximate(path)
    build_index(path)
    [[row]], _ = open_approximate(path).search(rows_of(1, seed=9), 1)
    assert open_index(path).ids[row] == "new"


def test_damaged_cells_are_named(path):
    [cells] = path.glob("*.faiss")
    content = cells.read_bytes()
    for broken in (content[:-1] + b"x", content[:-9], b""):
        cells.write_bytes(broken)
        with refused(cells.name):
            open_approximate(path)


def test_what_has_no_cells_is_refused(path, tmp_path_factory, monkeypatch):
    index = open_approximate(path)
    with refused("--approximate"):
        index.search(rows_of(1), 1, lambda rows, queries: rows @ queries.T)
    empty = tmp_path_factory.mktemp("empty")
    with IndexWriter(empty, MODEL, 8):
        pass
    with refused("--approximate"):
        build_index(empty)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"tbnets\[faiss\]"):
        open_approximate(path)
