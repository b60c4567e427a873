"""Exact scores of pairs: inner products of float32 rows, rounded once.

The score of a pair is the exact inner product, rounded to float64 and then
to float32, whatever library, machine or place in a matrix computed it.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tbnets.cores import usable_cores

FLOAT64_ROUNDOFF = 2.0**-53


def row_norms(embeddings):
    """Returns float64 [n]: norms of float32 rows, non-finite where they are."""
    squares = np.empty(len(embeddings))

    def square(part):
        rows = embeddings[part].astype(np.float64)
        squares[part] = np.einsum("ij,ij->i", rows, rows)

    by_threads(square, len(embeddings), embeddings.shape[1])
    return np.sqrt(squares)


def by_threads(work, count, dim):
    """Does a work on so many rows, by all threads.

    Args:
      work: function of a slice of rows.
      count: how many rows there are.
      dim: how many numbers each has.
    """
    step = max(1, 2**17 // dim)
    parts = [slice(start, start + step) for start in range(0, count, step)]
    with ThreadPoolExecutor(usable_cores()) as threads:
        list(threads.map(work, parts))


def _round_scores(products, norms, dim):
    """Rounds float64 inner products to float32 scores.

    Args:
      products: float64.
      norms: the products of both norms, of the same shape; overwritten.
      dim: how many numbers were multiplied for each.

    Returns:
      The float32 scores, and the flat indices of those that the error of the
      products leaves between two float32 numbers.
    """
    slack = np.multiply(norms, 1.01 * (dim + 2) * FLOAT64_ROUNDOFF, out=norms)
    scores = products.astype(np.float32)
    below = (products - slack).astype(np.float32)
    above = (products + slack).astype(np.float32)
    return scores, np.flatnonzero(below != above)


def pair_scores(rows, columns, row_index, column_index):
    """Scores pairs one by one.

    Args:
      rows: `Side` of the first of each pair.
      columns: `Side` of the second of each pair.
      row_index: int64 [p], into `rows`.
      column_index: int64 [p], into `columns`.

    Returns:
      float32 [p], the exact inner products, rounded.
    """
    dim = rows.embeddings.shape[1]
    scores = np.empty(len(row_index), np.float32)
    step = max(1, 2**17 // dim)
    for start in range(0, len(row_index), step):
        i = row_index[start : start + step]
        j = column_index[start : start + step]
        x, y = rows.embeddings[i], columns.embeddings[j]
        products = np.einsum("ij,ij->i", x, y, dtype=np.float64)
        norms = rows.norms[i] * columns.norms[j]
        rounded, doubtful = _round_scores(products, norms, dim)
        for k in doubtful:
            # Products of two float32 numbers are exact in float64, and fsum
            # adds them without error in any order.
            rounded[k] = math.fsum(x[k].astype(np.float64) * y[k])
        scores[start : start + step] = rounded
    return scores


def strip_scores(rows, columns, strip, block):
    """Returns the exact scores of a strip of rows and a block of columns."""
    x = rows.embeddings[strip].astype(np.float64)
    y = columns.embeddings[block].astype(np.float64)
    norms = np.outer(rows.norms[strip], columns.norms[block])
    scores, doubtful = _round_scores(x @ y.T, norms, x.shape[1])
    i, j = np.divmod(doubtful, scores.shape[1])
    pairs = i + strip.start, j + block.start
    scores.flat[doubtful] = pair_scores(rows, columns, *pairs)
    return scores
