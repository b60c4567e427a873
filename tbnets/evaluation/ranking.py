"""Exact ranks of cross-modal retrieval, tile by tile.

The score of a pair is the exact inner product of its two float32 embeddings,
rounded to float64 and then to float32. A float32 matrix product only comes
near it, and the last bit depends on the library, the machine and the place of
the pair in the matrix, which would make ties a matter of luck. So the matrix
product counts every candidate that is clear of the query's best positive by
more than the product's error bound, and the few in between are scored exactly.
Where those are many (a collapsed model ties with itself everywhere) the block
is computed again in float64, whose error decides all but a vanishing share.

Ranks therefore do not depend on the tile size, and equal embeddings tie.
"""

import queue
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

from tbnets.cores import usable_cores
from tbnets.evaluation.exact_scores import pair_scores, strip_scores

# Counts are summed in the eight byte lanes of a 64-bit word: neither a strip's
# rows nor a block's words (eight columns each) may be more than 255.
MAX_STRIP = 255
MAX_BLOCK = 8 * 255
# A block with more undecided pairs than one in so many is done in float64.
DENSE_SHARE = 32


class _ColumnGroups:
    """Finds the positives of rows among the columns of a block."""

    def __init__(self, groups):
        self.order = np.argsort(groups, kind="stable")
        self.sorted = groups[self.order]

    def pairs(self, row_groups):
        """Returns indices (i, j) of all pairs with the same group."""
        first = np.searchsorted(self.sorted, row_groups, "left")
        counts = np.searchsorted(self.sorted, row_groups, "right") - first
        ends = np.cumsum(counts)
        place = np.arange(ends[-1]) + np.repeat(first - ends + counts, counts)
        return np.repeat(np.arange(len(counts)), counts), self.order[place]


class _Masks:
    """Two reusable boolean strips, padded to whole 64-bit words."""

    def __init__(self, block):
        self.memory = np.zeros((2, MAX_STRIP * block), bool)

    def shaped(self, num_rows, num_columns):
        """Returns the two masks as [num_rows, whole words], padding False."""
        width = -(-num_columns // 8) * 8
        masks = self.memory[:, : num_rows * width]
        masks = masks.reshape(2, num_rows, width)
        masks[:, :, num_columns:] = False
        return masks


class _Direction:
    """One of the two readings of a block: rows as queries, or columns.

    Args:
      axis: 0 when the rows are the queries, 1 when the columns are.
      rows: (`Side`, slice) of the block's rows.
      columns: (`Side`, slice) of the block's columns.
      masks: `_Masks` that no other direction uses at the same time.
    """

    def __init__(self, axis, rows, columns, masks):
        self.axis = axis
        self.rows = rows
        self.columns = columns
        self.masks = masks
        self.side, self.place = (rows, columns)[axis]

    def _compare(self, scores, low, high):
        """Returns the masks `score >= low` and `score > high`, padded."""
        shape = (-1, 1) if self.axis == 0 else (1, -1)
        at_least, above = self.masks.shaped(*scores.shape)
        width = scores.shape[1]
        np.greater_equal(scores, low.reshape(shape), out=at_least[:, :width])
        np.greater(scores, high.reshape(shape), out=above[:, :width])
        return at_least, above

    def _strip(self, start, scores):
        """Returns which of the block's queries a strip of rows is about."""
        if self.axis == 1:
            return slice(0, scores.shape[1])
        return slice(start, start + len(scores))

    def _totals(self, mask, num_columns):
        """Counts per query."""
        if self.axis == 0:
            lanes = np.add.reduce(mask.view(np.uint64), axis=1)
            return lanes[:, None].view(np.uint8).sum(axis=1, dtype=np.int64)
        counts = np.add.reduce(mask.view(np.uint8), axis=0, dtype=np.uint8)
        return counts[:num_columns]

    def count_clear(self, scores):
        """Counts candidates by approximate scores, those in doubt by exact.

        Args:
          scores: float32 [rows, columns] of the block, -inf at positives.

        Returns:
          False, with nothing counted, when too many pairs are in doubt.
        """
        low, high = self.side.low[self.place], self.side.high[self.place]
        totals = np.zeros(self.place.stop - self.place.start, np.int64)
        num_doubtful, doubtful = 0, [np.empty(0, np.int64)]
        for start, part in _strips(scores, MAX_STRIP):
            queries = self._strip(start, part)
            at_least, above = self._compare(part, low[queries], high[queries])
            found = np.count_nonzero(at_least) - np.count_nonzero(above)
            totals[queries] += self._totals(above, part.shape[1])
            if found:
                np.not_equal(at_least, above, out=at_least)
                i, j = np.divmod(np.flatnonzero(at_least), at_least.shape[1])
                doubtful.append((i + start) * scores.shape[1] + j)
            num_doubtful += found
            if num_doubtful * DENSE_SHARE > scores.size:
                return False
        with self.side.lock:
            self.side.better[self.place] += totals
        i, j = np.divmod(np.concatenate(doubtful), scores.shape[1])
        self._count_pairs(i + self.rows[1].start, j + self.columns[1].start)
        return True

    def _count_pairs(self, i, j):
        """Counts single pairs by their exact scores."""
        scores = pair_scores(self.rows[0], self.columns[0], i, j)
        query = (i, j)[self.axis]
        best = self.side.best[query]
        with self.side.lock:
            np.add.at(self.side.better, query[scores >= best], 1)
            self.side.tied[query[scores == best]] = True

    def count_exact(self, scores, start):
        """Counts a strip by exact scores, -inf at positives.

        Args:
          scores: float32 [strip, columns].
          start: the strip's first row in the block.
        """
        queries = self._strip(start, scores)
        best = self.side.best[self.place][queries]
        at_least, above = self._compare(scores, best, best)
        better = self._totals(at_least, scores.shape[1])
        ties = better != self._totals(above, scores.shape[1])
        with self.side.lock:
            self.side.better[self.place][queries] += better
            self.side.tied[self.place][queries] |= ties


def _strips(scores, height):
    for start in range(0, len(scores), height):
        yield start, scores[start : start + height]


def _count_block(scores, directions):
    """Counts one block of approximate scores.

    Args:
      scores: float32 [rows of the block, columns of the block]; overwritten.
      directions: the `_Direction`s to count.
    """
    (row_side, row_slice) = directions[0].rows
    (column_side, column_slice) = directions[0].columns
    groups = _ColumnGroups(column_side.groups[column_slice])
    row_groups = row_side.groups[row_slice]
    for start, part in _strips(scores, MAX_STRIP):
        part[groups.pairs(row_groups[start : start + len(part)])] = -np.inf
    directions = [d for d in directions if not d.count_clear(scores)]
    if not directions:
        return
    for start, part in _strips(scores, MAX_STRIP):
        first = row_slice.start + start
        strip = slice(first, first + len(part))
        exact = strip_scores(row_side, column_side, strip, column_slice)
        exact[np.isneginf(part)] = -np.inf
        for direction in directions:
            direction.count_exact(exact, start)


def block_size(dim, memory_limit_mb):
    """Returns the rows and columns of a tile that fit in the memory limit."""
    limit = memory_limit_mb * 2**20
    for block in range(MAX_BLOCK, 8, -8):
        strip = min(MAX_STRIP, block)
        tile = 4 * block * block
        exact_strip = 40 * strip * block + 8 * dim * (strip + block)
        if tile + exact_strip <= limit:
            return block
    return 8


def _blocks(num_rows, num_columns, block, symmetric):
    """Yields row and column slices; on and above the diagonal if symmetric."""
    for i in range(0, num_rows, block):
        for j in range(i if symmetric else 0, num_columns, block):
            yield (
                slice(i, min(i + block, num_rows)),
                slice(j, min(j + block, num_columns)),
            )


class _Workspace:
    """The memory of one thread: a tile of scores and two masks."""

    def __init__(self, block):
        self.scores = np.empty(block * block, np.float32)
        self.masks = _Masks(block)

    def count(self, rows, columns, row_slice, column_slice):
        """Scores one block and counts it in both directions."""
        shape = (
            row_slice.stop - row_slice.start,
            column_slice.stop - column_slice.start,
        )
        scores = self.scores[: shape[0] * shape[1]].reshape(shape)
        np.matmul(
            rows.embeddings[row_slice],
            columns.embeddings[column_slice].T,
            out=scores,
        )
        mirrored = rows is columns and row_slice == column_slice
        directions = [
            _Direction(
                axis, (rows, row_slice), (columns, column_slice), self.masks
            )
            for axis in range(1 if mirrored else 2)
        ]
        _count_block(scores, directions)


def count_better(rows, columns, memory_limit_mb):
    """Counts for every query the candidates that beat or tie its positive.

    Adds to `better` and `tied` of both sides. `rows` and `columns` may be the
    same `Side`; each pair of rows is then scored once, and no row is its own
    candidate, because it is of its own group.

    Each thread scores and counts blocks of its own, with a matrix product of
    one thread: the scores stay in that core's cache, and no core waits while
    another counts.

    Args:
      rows: `Side` with its best positives set.
      columns: `Side` with its best positives set.
      memory_limit_mb: MiB for tiles and their temporaries.
    """
    num_threads = usable_cores()
    dim = rows.embeddings.shape[1]
    block = block_size(dim, memory_limit_mb / num_threads)
    blocks = list(
        _blocks(len(rows.groups), len(columns.groups), block, rows is columns)
    )
    free = queue.SimpleQueue()
    for _ in range(min(num_threads, len(blocks))):
        free.put(_Workspace(block))

    def count(slices):
        workspace = free.get()
        try:
            workspace.count(rows, columns, *slices)
        finally:
            free.put(workspace)

    with (
        threadpoolctl.threadpool_limits(1, "blas"),
        ThreadPoolExecutor(num_threads) as threads,
    ):
        # Reading the results raises what a thread raised.
        list(threads.map(count, blocks))
