"""Computes exact ranks of cross-modal retrieval, tile by tile.

The last bit of an entry of a float32 matrix product depends on the library, the
machine and the entry's position, so it would break ties at random. The product
is therefore used only if a candidate's score differs from the query's best
positive score by more than the error bound. All other candidates are scored
exactly. If there are many, as for a collapsed model, their rows are first
recomputed in float64.
"""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import threadpoolctl

from tbnets.checks import finite_scores, warn_of_bfloat16
from tbnets.errors import InputError
from tbnets.evaluation.ranks import (
    best_scores,
    group_pairs,
    positive_pairs,
    ranks_of,
)
from tbnets.startup import usable_cores


class Side(NamedTuple):
    """Embeddings of images or of captions.

    Attributes:
        embeddings: float32 `[n, dim]`.
        norms: float64 `[n]`, Euclidean norms of the rows.
        groups: int64 `[n]`, each row's image. Rows of one image are positives.
    """

    embeddings: np.ndarray
    norms: np.ndarray
    groups: np.ndarray

    def take(self, rows):
        """Returns the `Side` of some rows."""
        return Side(*(values[rows] for values in self))


# A pair's score is the exact inner product of float32 rows, rounded to float64
# and then to float32. It does not depend on the library, machine or position.

FLOAT64_ROUNDOFF = 2.0**-53


def row_norms(embeddings):
    """Returns the Euclidean norms of float32 rows, float64 `[n]`."""
    norms = np.empty(len(embeddings))
    step = max(1, 2**17 // embeddings.shape[1])
    for start in range(0, len(embeddings), step):
        rows = embeddings[start : start + step].astype(np.float64)
        norms[start : start + step] = np.einsum("ij,ij->i", rows, rows)
    return np.sqrt(norms)


def _round_scores(products, norms, dim):
    """Returns float32 scores, and flat indices where rounding is uncertain."""
    slack = np.multiply(norms, 1.01 * (dim + 2) * FLOAT64_ROUNDOFF, out=norms)
    scores = products.astype(np.float32)
    below = (products - slack).astype(np.float32)
    above = (products + slack).astype(np.float32)
    return scores, np.flatnonzero(below != above)


def pair_scores(rows, columns, row_index, column_index):
    """Computes the exact scores of pairs, float32 `[p]`.

    `row_index` and `column_index`, int64 `[p]`, are rows of the two `Side`s.
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
            # adds them without error.
            rounded[k] = math.fsum(x[k].astype(np.float64) * y[k])
        scores[start : start + step] = rounded
    return scores


def strip_scores(rows, columns, strip, block):
    """Returns exact scores between a strip of rows and a block of columns."""
    x = rows.embeddings[strip].astype(np.float64)
    y = columns.embeddings[block].astype(np.float64)
    norms = np.outer(rows.norms[strip], columns.norms[block])
    scores, doubtful = _round_scores(x @ y.T, norms, x.shape[1])
    i, j = np.divmod(doubtful, scores.shape[1])
    pairs = i + strip.start, j + block.start
    scores.flat[doubtful] = pair_scores(rows, columns, *pairs)
    return scores


# Maximum inner product, well within the range of float32.
LARGEST_SCORE = 1e37


def finite_side(name, values, groups):
    """Builds the `Side` of embeddings `[n, dim]`.

    Raises ValueError for the argument `name` if a score may be infinite or NaN.
    """
    warn_of_bfloat16(name, values.dtype)
    with np.errstate(over="ignore"):  # Reported below as non-finite.
        embeddings = np.ascontiguousarray(values, np.float32)
    norms = row_norms(embeddings)
    if not np.isfinite(norms).all():
        finite_scores(values, name=name)
    if norms.max() ** 2 > LARGEST_SCORE:
        raise InputError(
            name,
            "have inner products that fit in float32",
            f"a Euclidean norm {norms.max():.3g}",
        )
    return Side(embeddings, norms, groups)


MAX_STRIP = 255
MAX_BLOCK = 8 * MAX_STRIP
# A strip with more than 1 in 32 undecided pairs is computed in float64.
DENSE_SHARE = 32
FLOAT32_ROUNDOFF = 2.0**-24
FLOAT32_SMALLEST_NORMAL = 2.0**-126


class Queries:
    """Counts the candidates that rank before each row's best positive.

    `best`, float32 `[n]`, contains each row's best positive score; +inf for
    rows of the `Side` that are not queries. A float32 product of at least `low`
    may belong to a score that beats or ties with `best`; a product above `high`
    beats it.
    """

    def __init__(self, side, best, candidates):
        dim = side.embeddings.shape[1]
        # |float32 product - exact| <= dim u / (1 - dim u) |x| |y| in any order
        # of summation (Higham 2002, Sec. 3.1). 2 u bounds the rounding of the
        # score itself, and the last term bounds products that underflow.
        relative = dim * FLOAT32_ROUNDOFF / (1 - dim * FLOAT32_ROUNDOFF)
        relative += 2 * FLOAT32_ROUNDOFF
        slack = relative * side.norms * candidates.norms.max()
        slack += dim * FLOAT32_SMALLEST_NORMAL
        low, high = (best - slack).astype("f4"), (best + slack).astype("f4")
        self.best = best
        self.low = np.nextafter(low, np.float32(-np.inf))
        self.high = np.nextafter(high, np.float32(np.inf))
        self.better = np.zeros(len(best), np.int64)
        self.tied = np.zeros(len(best), bool)
        # Several threads may count for a query.
        self.lock = threading.Lock()

    def ranks(self):
        """Returns the `Ranks` of the rows that are queries."""
        return ranks_of(self.best, self.better, self.tied)


def _count_block(sides, queries, row_slice, column_slice):
    rows, columns = sides
    x, y = rows.embeddings[row_slice], columns.embeddings[column_slice]
    scores = x @ y.T
    order = np.argsort(columns.groups[column_slice], kind="stable")
    groups = columns.groups[column_slice][order]
    mirrored = rows is columns and row_slice == column_slice
    for start in range(0, len(x), MAX_STRIP):
        part = scores[start : start + MAX_STRIP]
        first = row_slice.start + start
        places = slice(first, first + len(part)), column_slice
        pairs = positive_pairs(rows.groups[places[0]], groups)
        part[pairs[0], order[pairs[1]]] = -np.inf
        for axis in range(1 if mirrored else 2):
            _count_strip(sides, queries[axis], axis, places, part)


def _count_strip(sides, queries, axis, places, scores):
    """Counts candidates that beat or tie with positives in a strip of scores.

    The scores of the positives themselves are -inf.
    """
    place = places[axis]
    low, high = queries.low[place], queries.high[place]
    masks, (most, better) = _compare(axis, scores, low, high)
    undecided, ties = most - better, False
    num_pairs = undecided.sum()
    is_dense = num_pairs * DENSE_SHARE > scores.size
    if is_dense:
        exact = strip_scores(*sides, *places)
        exact[np.isneginf(scores)] = -np.inf
        best = queries.best[place]
        _, (better, above) = _compare(axis, exact, best, best)
        ties = better != above
    with queries.lock:
        queries.better[place] += better
        queries.tied[place] |= ties
    if num_pairs and not is_dense:
        # Score the undecided pairs of a few queries.
        doubtful = np.flatnonzero(undecided)
        at_least, above = (mask.take(doubtful, axis) for mask in masks)
        pairs = [*np.nonzero(at_least != above)]
        pairs[axis] = doubtful[pairs[axis]]
        pairs = [rows + part.start for rows, part in zip(pairs, places)]
        exact, rows = pair_scores(*sides, *pairs), pairs[axis]
        best = queries.best[rows]
        with queries.lock:
            np.add.at(queries.better, rows[exact >= best], 1)
            queries.tied[rows[exact == best]] = True


def _compare(axis, scores, low, high):
    shape = (-1, 1) if axis == 0 else (1, -1)
    masks = scores >= low.reshape(shape), scores > high.reshape(shape)
    # A sum in 64 bits would take four times as long.
    return masks, [mask.sum(axis=1 - axis, dtype=np.uint16) for mask in masks]


def block_size(dim, memory_limit_mb):
    """Returns the side of the largest tile that fits in the memory limit."""

    def needed(block):
        strip = min(MAX_STRIP, block)
        exact_strip = 40 * strip * block + 8 * dim * (strip + block)
        return 4 * block * block + exact_strip

    limit, sizes = memory_limit_mb * 2**20, range(MAX_BLOCK, 8, -8)
    return next((size for size in sizes if needed(size) <= limit), 8)


def count_better(sides, queries, memory_limit_mb):
    """Counts the candidates that beat or tie with each query's positive.

    The counts are added to the `Queries`. The candidates for the queries of one
    `Side` are the rows of the other. If both sides are the same object, each
    pair of rows is scored only once. `memory_limit_mb` limits temporary arrays.
    """
    num_threads, (rows, columns) = usable_cores(), sides
    dim = rows.embeddings.shape[1]
    size = block_size(dim, memory_limit_mb / num_threads)
    # If both sides are the same object, only blocks on and above the diagonal.
    blocks = [
        (slice(i, i + size), slice(j, j + size))
        for i in range(0, len(rows.groups), size)
        for j in range(i * (rows is columns), len(columns.groups), size)
    ]
    remaining = iter(blocks)

    def count(_):
        # The buffer size applies to this thread. If the buffer holds a row or
        # more, NumPy fills it with the row's threshold before each comparison,
        # which doubles the time.
        np.setbufsize(1024)
        for slices in remaining:
            _count_block(sides, queries, *slices)

    # Each thread scores and counts its own blocks with a single-threaded matrix
    # product, so the scores remain in the core's cache.
    with threadpoolctl.threadpool_limits(1, "blas"):
        with ThreadPoolExecutor(num_threads) as threads:
            # Reading the results re-raises the threads' errors.
            list(threads.map(count, range(min(num_threads, len(blocks)))))


def cross_ranks(images, texts, memory_limit_mb):
    """Ranks captions for images, and images for captions.

    Returns a dict from direction to `Ranks`.
    """
    pairs = group_pairs(images.groups, texts.groups)
    positives = pair_scores(images, texts, *pairs)
    best = best_scores(len(images.groups), pairs[0], positives)
    by_image = Queries(images, best, texts)
    best = best_scores(len(texts.groups), pairs[1], positives)
    by_text = Queries(texts, best, images)
    count_better((images, texts), (by_image, by_text), memory_limit_mb)
    return {
        "image_to_text": by_image.ranks(),
        "text_to_image": by_text.ranks(),
    }


def caption_ranks(texts, memory_limit_mb):
    """Returns the `Ranks` of captions among the other captions."""
    queries = Queries(texts, _best_other_caption(texts), texts)
    count_better([texts] * 2, [queries] * 2, memory_limit_mb)
    return queries.ranks()


def _best_other_caption(side):
    """Returns captions' best scores with others of their image, else inf."""
    order = np.argsort(side.groups, kind="stable")
    groups, place = side.groups[order], np.arange(len(order))
    first = np.searchsorted(groups, groups, "left")
    counts = np.searchsorted(groups, groups, "right") - first
    best = np.full(len(order), -np.inf, np.float32)
    # Compare each caption with the s-th next caption of its image, cyclically.
    for step in range(1, counts.max()):
        here = np.flatnonzero(counts > step)
        there = first[here] + (place[here] - first[here] + step) % counts[here]
        scores = pair_scores(side, side, order[here], order[there])
        best[order[here]] = np.maximum(best[order[here]], scores)
    return np.where(best > -np.inf, best, np.float32(np.inf))
