"""Tests of exact search: a loop, arrays, a graph and `search.best` agree."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.serving import search, search_index
from tests import reference

# Whole numbers: sums are exact in any order, and many are equal.
ROWS = np.random.default_rng(0).integers(-2, 3, [23, 4]).astype(np.float32)
QUERIES = np.random.default_rng(1).integers(-2, 3, [5, 4]).astype(np.float32)


@pytest.mark.parametrize(
    ("sizes", "k", "dtype", "at_once"),
    [
        ([23], 1, "float32", 100),
        ([23], 4, "bfloat16", 3),
        ([1, 0, 22], 4, "float32", 3),
        ([1, 0, 22], 99, "bfloat16", 100),
        ([7, 7, 7, 2], 23, "float32", 3),
        ([7, 7, 7, 2], 1, "bfloat16", 3),
    ],
)
def test_top_k_equals_the_loop(monkeypatch, sizes, k, dtype, at_once):
    monkeypatch.setattr(search_index, "CAST_AT_ONCE", at_once)
    blocks = np.split(
        ROWS.astype(tf.as_dtype(dtype).as_numpy_dtype), np.cumsum(sizes)[:-1]
    )
    rows, values = search_index.top_k(QUERIES, blocks, k, rows_at_once=at_once)
    found = [list(zip(*pair)) for pair in zip(rows.numpy(), values.numpy())]
    assert found == reference.best_rows(QUERIES, ROWS, k)
    order, similarities = search.best(QUERIES @ ROWS.T, k)
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_array_equal(values, similarities)


def test_top_k_without_queries_or_rows_is_empty():
    none = np.zeros([0, 4], np.float32)
    for queries, blocks, shape in (
        (none, [ROWS], (0, 3)),
        (QUERIES, [], (5, 0)),
        (QUERIES, [none], (5, 0)),
    ):
        rows, values = search_index.top_k(queries, blocks, 3)
        assert (rows.shape, rows.dtype) == (shape, tf.int32)
        assert (values.shape, values.dtype) == (shape, tf.float32)
