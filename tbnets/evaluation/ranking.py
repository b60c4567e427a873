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

import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

FLOAT32_ROUNDOFF = 2.0**-24
FLOAT64_ROUNDOFF = 2.0**-53
FLOAT32_SMALLEST_NORMAL = 2.0**-126
# Counts are summed in the eight byte lanes of a 64-bit word: neither a strip's
# rows nor a block's words (eight columns each) may be more than 255.
MAX_STRIP = 255
MAX_BLOCK = 8 * 255
# Rows compared at a time, so that a strip stays in a core's own cache.
SCAN_STRIP = 64
# A block with more undecided pairs than one in so many is done in float64.
DENSE_SHARE = 32


class Ranks(NamedTuple):
    """Ranks of the queries of one direction.

    Attributes:
      queries: int64 [num_queries], rows of the queries (images or captions
        that have at least one positive), ascending.
      ranks: int64 [num_queries], 1-based rank of the best positive; a
        candidate with the same score is placed before it.
      tied: bool [num_queries], whether such a candidate exists.
    """

    queries: np.ndarray
    ranks: np.ndarray
    tied: np.ndarray


class Side:
    """Embeddings in both roles, and what is counted for them as queries.

    Args:
      embeddings: float32 [n, dim].
      norms: float64 [n], Euclidean norms of the rows.
      groups: int64 [n], the image of each row. A row and a candidate of the
        same group are positives of each other.
    """

    def __init__(self, embeddings, norms, groups):
        self.embeddings = embeddings
        self.norms = norms
        self.groups = groups
        # Nothing scores as high as +inf: a row without positives counts none.
        self.best = np.full(len(groups), np.inf, np.float32)
        self.low = self.high = self.best
        self.better = np.zeros(len(groups), np.int64)
        self.tied = np.zeros(len(groups), bool)

    def set_best(self, best, candidate_norm):
        """Sets each row's best positive score and the band of doubt around.

        Args:
          best: float32 [n], -inf for a row that has no positive.
          candidate_norm: the largest norm among the candidates.
        """
        has_positive = best > -np.inf
        self.best = np.where(has_positive, best, np.float32(np.inf))
        dim = self.embeddings.shape[1]
        # |float32 product - exact| <= dim u / (1 - dim u) |x| |y| in whatever
        # order it is summed (Higham 2002, Sec. 3.1); 2 u covers the rounding
        # of the score itself, the last term products that underflow.
        relative = dim * FLOAT32_ROUNDOFF / (1 - dim * FLOAT32_ROUNDOFF)
        relative += 2 * FLOAT32_ROUNDOFF
        slack = relative * self.norms * candidate_norm
        slack += dim * FLOAT32_SMALLEST_NORMAL
        low = (self.best - slack).astype(np.float32)
        high = (self.best + slack).astype(np.float32)
        self.low = np.nextafter(low, np.float32(-np.inf))
        self.high = np.nextafter(high, np.float32(np.inf))

    def result(self):
        """Returns the `Ranks` of the rows that have a positive."""
        queries = np.flatnonzero(self.best < np.inf)
        return Ranks(queries, 1 + self.better[queries], self.tied[queries])


def row_norms(embeddings):
    """Returns float64 [n]: norms of float32 rows, non-finite where they are."""
    norms = np.empty(len(embeddings))
    step = max(1, 2**18 // embeddings.shape[1])
    for start in range(0, len(embeddings), step):
        block = embeddings[start : start + step].astype(np.float64)
        squares = np.einsum("ij,ij->i", block, block)
        norms[start : start + step] = np.sqrt(squares)
    return norms


def _round_scores(products, slack):
    """Rounds float64 inner products to float32 scores.

    Returns:
      The float32 scores, and the flat indices of those that the error of the
      products (`slack`) leaves between two float32 numbers.
    """
    scores = products.astype(np.float32)
    below = (products - slack).astype(np.float32)
    above = (products + slack).astype(np.float32)
    return scores, np.flatnonzero(below != above)


def _float64_error(dim):
    return 1.01 * (dim + 2) * FLOAT64_ROUNDOFF


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
        slack = _float64_error(dim) * rows.norms[i] * columns.norms[j]
        rounded, doubtful = _round_scores(products, slack)
        for k in doubtful:
            # Products of two float32 numbers are exact in float64, and fsum
            # adds them without error in any order.
            rounded[k] = math.fsum(x[k].astype(np.float64) * y[k])
        scores[start : start + step] = rounded
    return scores


def _strip_scores(rows, columns, strip, block):
    """Returns the exact scores of a strip of rows and a block of columns."""
    x = rows.embeddings[strip].astype(np.float64)
    y = columns.embeddings[block].astype(np.float64)
    slack = _float64_error(x.shape[1]) * np.outer(
        rows.norms[strip], columns.norms[block]
    )
    scores, doubtful = _round_scores(x @ y.T, slack)
    if doubtful.size:
        i, j = np.divmod(doubtful, scores.shape[1])
        scores.flat[doubtful] = pair_scores(
            rows, columns, i + strip.start, j + block.start
        )
    return scores


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
        for start, part in _strips(scores, SCAN_STRIP):
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
        self.side.better[self.place] += totals
        i, j = np.divmod(np.concatenate(doubtful), scores.shape[1])
        self._count_pairs(i + self.rows[1].start, j + self.columns[1].start)
        return True

    def _count_pairs(self, i, j):
        """Counts single pairs by their exact scores."""
        scores = pair_scores(self.rows[0], self.columns[0], i, j)
        query = (i, j)[self.axis]
        best = self.side.best[query]
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
        self.side.better[self.place][queries] += better
        ties = better != self._totals(above, scores.shape[1])
        self.side.tied[self.place][queries] |= ties


def _strips(scores, height):
    for start in range(0, len(scores), height):
        yield start, scores[start : start + height]


def _count_block(scores, directions, threads):
    """Counts one block of approximate scores.

    Args:
      scores: float32 [rows of the block, columns of the block]; overwritten.
      directions: the `_Direction`s to count.
      threads: executor for the directions.
    """
    (row_side, row_slice) = directions[0].rows
    (column_side, column_slice) = directions[0].columns
    groups = _ColumnGroups(column_side.groups[column_slice])
    row_groups = row_side.groups[row_slice]
    for start, part in _strips(scores, MAX_STRIP):
        part[groups.pairs(row_groups[start : start + len(part)])] = -np.inf
    pending = list(threads.map(lambda d: d.count_clear(scores), directions))
    directions = [d for d, counted in zip(directions, pending) if not counted]
    if not directions:
        return
    for start, part in _strips(scores, MAX_STRIP):
        first = row_slice.start + start
        strip = slice(first, first + len(part))
        exact = _strip_scores(row_side, column_side, strip, column_slice)
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


def count_better(rows, columns, memory_limit_mb):
    """Counts for every query the candidates that beat or tie its positive.

    Adds to `better` and `tied` of both sides. `rows` and `columns` may be the
    same `Side`; each pair of rows is then scored once, and no row is its own
    candidate, because it is of its own group.

    Args:
      rows: `Side` with its best positives set.
      columns: `Side` with its best positives set.
      memory_limit_mb: MiB for tiles and their temporaries.
    """
    block = block_size(rows.embeddings.shape[1], memory_limit_mb)
    masks = (_Masks(block), _Masks(block))
    memory = np.empty(block * block, np.float32)
    num_rows, num_columns = len(rows.groups), len(columns.groups)
    with ThreadPoolExecutor(2) as threads:
        for row_slice, column_slice in _blocks(
            num_rows, num_columns, block, rows is columns
        ):
            shape = (
                row_slice.stop - row_slice.start,
                column_slice.stop - column_slice.start,
            )
            scores = memory[: shape[0] * shape[1]].reshape(shape)
            np.matmul(
                rows.embeddings[row_slice],
                columns.embeddings[column_slice].T,
                out=scores,
            )
            mirrored = rows is columns and row_slice == column_slice
            directions = [
                _Direction(
                    axis, (rows, row_slice), (columns, column_slice), mask
                )
                for axis, mask in enumerate(masks[: 1 if mirrored else 2])
            ]
            _count_block(scores, directions, threads)
