"""Exact ranks of cross-modal retrieval, tile by tile.

The score of a pair is the exact inner product of its two float32 embeddings,
rounded to float64 and then to float32. A float32 matrix product only comes
near it, and the last bit depends on the library, the machine and the place of
the pair in the matrix, which would make ties a matter of luck. So the matrix
product counts every candidate that is clear of the query's best positive by
more than the product's error bound, and the few in between are scored exactly.
Where those are many (a collapsed model ties with itself everywhere) the strip
is computed again in float64, whose error decides all but a vanishing share.

Ranks therefore do not depend on the tile size, and equal embeddings tie.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

from tbnets.cores import usable_cores
from tbnets.evaluation.exact_scores import pair_scores, strip_scores
from tbnets.evaluation.ranks import Queries

# Counts are summed in the eight byte lanes of a 64-bit word: neither a strip's
# rows nor a block's words (eight columns each) may be more than 255.
MAX_STRIP = 255
MAX_BLOCK = 8 * 255
# A strip with more undecided pairs than one in so many is done in float64.
DENSE_SHARE = 32
FLOAT32_ROUNDOFF = 2.0**-24
FLOAT32_SMALLEST_NORMAL = 2.0**-126


def queries_of(side, best, candidates):
    """Returns the `Queries` of a `Side`, with the band of doubt around.

    Args:
      side: `Side` of the queries.
      best: float32 [n], each row's best positive score; -inf for a row that
        has no positive.
      candidates: `Side`.
    """
    best = np.where(best > -np.inf, best, np.float32(np.inf))
    dim = side.embeddings.shape[1]
    # |float32 product - exact| <= dim u / (1 - dim u) |x| |y| in whatever
    # order it is summed (Higham 2002, Sec. 3.1); 2 u covers the rounding of
    # the score itself, the last term products that underflow.
    relative = dim * FLOAT32_ROUNDOFF / (1 - dim * FLOAT32_ROUNDOFF)
    relative += 2 * FLOAT32_ROUNDOFF
    slack = relative * side.norms * candidates.norms.max()
    slack += dim * FLOAT32_SMALLEST_NORMAL
    low = np.nextafter((best - slack).astype(np.float32), np.float32(-np.inf))
    high = np.nextafter((best + slack).astype(np.float32), np.float32(np.inf))
    return Queries(best, low, high)


def _positives(row_groups, column_groups, order):
    """Returns indices (i, j) of all pairs with the same group.

    Args:
      row_groups: int64 [rows].
      column_groups: int64 [columns], sorted.
      order: int64 [columns], j of each.
    """
    first = np.searchsorted(column_groups, row_groups, "left")
    counts = np.searchsorted(column_groups, row_groups, "right") - first
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) + np.repeat(first - ends + counts, counts)
    return np.repeat(np.arange(len(counts)), counts), order[place]


class _Counter:
    """Counts blocks in one thread, with a tile of scores and two masks."""

    def __init__(self, block, sides, queries):
        self._sides, self._queries = sides, queries
        self._scores = np.empty(block * block, np.float32)
        self._masks = np.zeros((2, MAX_STRIP * block), bool)

    def count(self, row_slice, column_slice):
        """Scores one block and counts it in both directions."""
        rows, columns = self._sides
        x, y = rows.embeddings[row_slice], columns.embeddings[column_slice]
        scores = self._scores[: len(x) * len(y)].reshape(len(x), len(y))
        np.matmul(x, y.T, out=scores)
        order = np.argsort(columns.groups[column_slice], kind="stable")
        groups = columns.groups[column_slice][order]
        mirrored = rows is columns and row_slice == column_slice
        for start in range(0, len(x), MAX_STRIP):
            part = scores[start : start + MAX_STRIP]
            first = row_slice.start + start
            places = slice(first, first + len(part)), column_slice
            part[_positives(rows.groups[places[0]], groups, order)] = -np.inf
            self._count_strip(places, part, 1 if mirrored else 2)

    def _count_strip(self, places, scores, num_directions):
        """Counts approximate scores, -inf at positives, where they decide.

        Args:
          places: slices of the rows and of the columns.
          scores: float32 [rows, columns], at most `MAX_STRIP` rows.
          num_directions: 1 if the rows alone are queries here.
        """
        exact = None
        for axis in range(num_directions):
            queries, place = self._queries[axis], places[axis]
            low, high = queries.low[place], queries.high[place]
            masks = self._compare(axis, scores, low, high)
            most, better = (_totals(axis, m, scores.shape[1]) for m in masks)
            undecided = most - better
            num_pairs = undecided.sum()
            is_dense = num_pairs * DENSE_SHARE > scores.size
            ties = False
            if is_dense:
                if exact is None:
                    exact = strip_scores(*self._sides, *places)
                    exact[np.isneginf(scores)] = -np.inf
                best = queries.best[place]
                masks = self._compare(axis, exact, best, best)
                better, above = (
                    _totals(axis, m, scores.shape[1]) for m in masks
                )
                ties = better != above
            with queries.lock:
                queries.better[place] += better
                queries.tied[place] |= ties
            if num_pairs and not is_dense:
                # Of the queries in doubt alone: they are few.
                doubtful = np.flatnonzero(undecided)
                at_least, above = (m.take(doubtful, axis) for m in masks)
                found = np.flatnonzero(at_least != above)
                pairs = [*np.divmod(found, at_least.shape[1])]
                pairs[axis] = doubtful[pairs[axis]]
                self._count_pairs(axis, places, pairs)

    def _count_pairs(self, axis, places, pairs):
        """Counts single pairs of a block by their exact scores."""
        pairs = [one + place.start for one, place in zip(pairs, places)]
        scores = pair_scores(*self._sides, *pairs)
        queries, rows = self._queries[axis], pairs[axis]
        best = queries.best[rows]
        with queries.lock:
            np.add.at(queries.better, rows[scores >= best], 1)
            queries.tied[rows[scores == best]] = True

    def _compare(self, axis, scores, low, high):
        """Returns the masks `score >= low` and `score > high`.

        Args:
          axis: 0 when the rows are the queries, 1 when the columns are.
          scores: float32 [rows, columns].
          low: float32, one a query.
          high: float32, one a query.

        Returns:
          Two bool [rows, columns and more], whole 64-bit words a row, False
          behind the columns.
        """
        num_rows, num_columns = scores.shape
        width = -(-num_columns // 8) * 8
        masks = self._masks[:, : num_rows * width].reshape(2, num_rows, width)
        masks[:, :, num_columns:] = False
        at_least, above = masks[:, :, :num_columns]
        shape = (-1, 1) if axis == 0 else (1, -1)
        np.greater_equal(scores, low.reshape(shape), out=at_least)
        np.greater(scores, high.reshape(shape), out=above)
        return masks


def _totals(axis, mask, num_columns):
    """Counts what is True of each query, see `_Counter._compare`."""
    if axis == 0:
        lanes = np.add.reduce(mask.view(np.uint64), axis=1)
        return lanes[:, None].view(np.uint8).sum(axis=1, dtype=np.int64)
    counts = np.add.reduce(mask.view(np.uint8), axis=0, dtype=np.uint8)
    return counts[:num_columns]


def block_size(dim, memory_limit_mb):
    """Returns the rows and columns of a tile that fit in the memory limit."""

    def needed(block):
        strip = min(MAX_STRIP, block)
        exact_strip = 40 * strip * block + 8 * dim * (strip + block)
        return 4 * block * block + exact_strip

    limit, sizes = memory_limit_mb * 2**20, range(MAX_BLOCK, 8, -8)
    return next((size for size in sizes if needed(size) <= limit), 8)


def count_better(sides, queries, memory_limit_mb):
    """Counts for every query the candidates that beat or tie its positive.

    Adds to `better` and `tied` of both. The sides may be one; each pair of
    rows is then scored once, and no row is its own candidate, because it is
    of its own group.

    Each thread scores and counts blocks of its own, with a matrix product of
    one thread: the scores stay in that core's cache, and no core waits while
    another counts.

    Args:
      sides: two `Side`s, each the candidates of the other.
      queries: the `Queries` of each.
      memory_limit_mb: MiB for tiles and their temporaries.
    """
    num_threads, (rows, columns) = usable_cores(), sides
    dim = rows.embeddings.shape[1]
    size = block_size(dim, memory_limit_mb / num_threads)
    # Where both sides are one: on and above the diagonal.
    blocks = [
        (slice(i, i + size), slice(j, j + size))
        for i in range(0, len(rows.groups), size)
        for j in range(i * (rows is columns), len(columns.groups), size)
    ]
    left = iter(blocks)

    def count(_):
        # For this thread alone. Where NumPy's buffer holds a row or more, it
        # is filled with the row's threshold before each comparison, which
        # then takes twice as long.
        np.setbufsize(1024)
        counter = _Counter(size, sides, queries)
        for slices in left:
            counter.count(*slices)

    with threadpoolctl.threadpool_limits(1, "blas"):
        with ThreadPoolExecutor(num_threads) as threads:
            # Reading the results raises what a thread raised.
            list(threads.map(count, range(min(num_threads, len(blocks)))))
