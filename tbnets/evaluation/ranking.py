"""Computes exact ranks of cross-modal retrieval, tile by tile.

The last bit of an entry of a float32 matrix product depends on the library, the
machine and the entry's position, so it would break ties at random. The product
is therefore used only if a candidate's score differs from the query's best
positive score by more than the error bound. All other candidates are scored
exactly (see `checks`). If there are many, as for a collapsed model, their rows
are first recomputed in float64.
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

from tbnets.checks import checked_array, checked_number
from tbnets.errors import InputError
from tbnets.evaluation import checks
from tbnets.evaluation.checks import finite_scores, pair_scores, strip_scores
from tbnets.evaluation.ranks import (
    Queries,
    Ranks,
    Side,
    best_ranks,
    positive_pairs,
    precisions,
    summarize_direction,
)
from tbnets.evaluation.score_tiles import row_blocks, spread
from tbnets.progress import progress_bar
from tbnets.startup import usable_cores

# Ranks with any number of positives per query and candidate. A region may have
# several phrases, and a phrase may describe regions in several photos.

SCORES_AT_ONCE = 1 << 22
"""Maximum number of scores in memory: 16 MiB, and about 16 MiB for masks."""


class EmbeddingScores:
    """A table of exact scores, computed on demand, that can replace an array.

    Queries and candidates are `[n, dim]`, L2-normalised. Error messages use
    `names` for the two arguments.
    """

    def __init__(self, queries, candidates, names=("queries", "candidates")):
        arrays = dict(zip(names, (queries, candidates)))
        self._sides = [
            checks.finite_side(name, rows, np.arange(len(rows)))
            for name, rows in zip(names, checks.checked_embeddings(**arrays))
        ]

    @property
    def shape(self):
        """Numbers of queries and candidates."""
        return tuple(len(side.embeddings) for side in self._sides)

    @property
    def T(self):  # noqa: N802 (as NumPy calls it)
        """The table with queries and candidates exchanged."""
        turned = copy.copy(self)
        turned._sides = self._sides[::-1]
        return turned

    def __getitem__(self, rows):
        queries, candidates = self._sides
        query_side = Side(queries.embeddings[rows], queries.norms[rows], rows)
        strip, starts = slice(0, len(rows)), range(0, self.shape[1], MAX_BLOCK)
        blocks = [slice(start, start + MAX_BLOCK) for start in starts]
        parts = [
            strip_scores(query_side, candidates, strip, part) for part in blocks
        ]
        return np.concatenate(parts, axis=1)


def pairs_of(name, pairs, shape, least=0):
    """Returns the matching pairs, int64 `[n, 2]`, sorted by the first column.

    `pairs` is a bool mask of the given shape, or int `[n, 2]`. Raises
    ValueError if there are fewer than `least` pairs.
    """
    pairs = checked_array(name, pairs)
    if pairs.dtype == bool and pairs.shape == shape:
        pairs = np.argwhere(pairs)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), np.int64)
    fit = pairs.dtype.kind in "iu" and pairs.shape[1:] == (2,)
    fit = fit and ((pairs >= 0) & (pairs < shape)).all()
    if not fit or len(pairs) < least:
        raise InputError(
            name,
            f"be bool {shape}, or 0-based rows, integers [n, 2] with n >= "
            f"{least}",
            f"{pairs.dtype} {pairs.shape}, or a row out of range",
            "Pass one pair of rows per match.",
        )
    return pairs[np.argsort(pairs[:, 0], kind="stable")].astype(np.int64)


def pair_ranks(scores, pairs, rank=best_ranks) -> Ranks:
    """Returns the `Ranks` of the queries that have a positive.

    `scores`, `[num_queries, num_candidates]`, is an array, which may be
    memory-mapped, or `EmbeddingScores`. `pairs`, int `[n, 2]`, contains rows of
    matching queries and candidates. `rank` is called like `ranks.best_ranks`.
    """
    parts = [(rows, *rank(*strip)) for rows, *strip in _strips(scores, pairs)]
    empty = [np.zeros(0, kind) for kind in (np.int64, np.int64, bool)]
    return Ranks(*map(np.concatenate, zip(empty, *parts)))


def precise_ranks(scores, pairs):
    """Returns the results of `pair_ranks` and of `ranks.precisions`."""
    precise = {}

    def rank(values, positive):
        for name, query_values in precisions(values, positive).items():
            precise.setdefault(name, []).append(query_values)
        return best_ranks(values, positive)

    ranks = pair_ranks(scores, pairs, rank)
    return ranks, {k: np.concatenate(parts) for k, parts in precise.items()}


def _strips(scores, pairs):
    """Yields blocks of queries with positives: rows, scores and a mask."""
    pairs = pairs_of("pairs", pairs, scores.shape)
    queries, starts = np.unique(pairs[:, 0], return_index=True)
    ends = np.append(starts, len(pairs))
    step = max(1, SCORES_AT_ONCE // max(1, scores.shape[1]))
    for first in range(0, len(queries), step):
        query_rows = queries[first : first + step]
        values = checks.finite_scores(scores[query_rows], query_rows)
        positive = np.zeros(values.shape, bool)
        own_pairs = pairs[ends[first] : ends[first + len(query_rows)]]
        positive[
            np.searchsorted(query_rows, own_pairs[:, 0]), own_pairs[:, 1]
        ] = True
        yield query_rows, values, positive


def evaluate_region_phrase_ranking(scores, pairs) -> dict:
    """Evaluates rankings of phrases for regions and of regions for phrases.

    Unlike in localization, candidates are from all photos, and the regions are
    annotated boxes. Each key is the prefix `true_region_to_phrase/` or
    `phrase_to_true_region/`, followed by a name from
    `ranks.summarize_direction`.

    Args:
        scores: `[num_regions, num_phrases]` as in `pair_ranks`. The phrases
            must be unique, because ties count as misses.
        pairs: int `[n, 2]`, the row of each region and the row of its phrase;
            or a bool mask `[num_regions, num_phrases]`.

    Source: Niu et al. 2017, Sec. 5.2 and Table 4 (regions to phrases).
    Departures: both directions are evaluated; ties count as misses.
    """
    pairs = pairs_of("pairs", pairs, scores.shape)
    directions = {
        "true_region_to_phrase": pair_ranks(scores, pairs),
        "phrase_to_true_region": pair_ranks(scores.T, pairs[..., ::-1]),
    }
    return {
        f"{direction}/{name}": value
        for direction, ranks in directions.items()
        for name, value in summarize_direction(ranks).items()
    }


NO_QUERIES = evaluate_region_phrase_ranking(np.zeros((0, 0)), [])
"""The metrics if there are no true regions."""


# Correction of scores by a bank of queries.
#
# In an embedding space a few candidates are close to every query, so they are
# returned too often. A bank of other queries b defines a level for each
# candidate c, which is subtracted from the score::
#
#     s'(q, c) = s(q, c) - T log mean_b exp(s(b, c) / T)
#
# A query q then ranks candidates by the inverted softmax over queries,
# `exp(s(q, c) / T) / sum_b exp(s(b, c) / T)`. The split's other queries are not
# used.
#
# Source: Smith et al. 2017 (the inverted softmax); Bogolin et al. 2022 (its sum
# over a bank of training queries). Departures: the temperature T is in standard
# deviations of the scores, so that one value works for cosines, distances and
# logits. All queries are corrected, not only queries whose first result is also
# a first result of the bank.

TEMPERATURE = 0.4
"""Default temperature, in standard deviations of the scores."""


def level(scores, num_images, num_texts, temperature=TEMPERATURE):
    """Subtracts from each score the level of its candidate.

    The level of a candidate is a soft mean of its scores with a bank of
    queries. The bank's texts give the levels of images, and its images give the
    levels of texts.

    `scores` is the `PairScores` of `num_images` images followed by the bank's
    images, and `num_texts` texts followed by the bank's texts. `temperature` is
    in units of the scores' standard deviation.
    """
    checked_number("temperature", temperature, 0, above=True)
    images, texts = map(np.arange, scores[:2])
    split_scores = scores.subset(images[:num_images], texts[:num_texts])
    bank = images[num_images:], texts[num_texts:]
    if not all(map(len, bank)):
        raise InputError(
            "scores",
            "include a bank of images and texts",
            f"{len(bank[0])} images and {len(bank[1])} texts",
            "Pass training queries as the bank.",
        )
    unit = temperature * spread(split_scores)

    def of_texts(texts, images):
        return scores.tile(images, texts).T

    return split_scores._replace(
        image_levels=_levels(scores.tile, images[:num_images], bank[1], unit),
        text_levels=_levels(of_texts, texts[:num_texts], bank[0], unit),
    )


def _levels(tile, candidates, queries, unit):
    """Returns each candidate's level `unit * log(mean(exp(scores / unit)))`."""
    levels = np.full(len(candidates), -np.inf)
    blocks = row_blocks(len(candidates), len(queries))
    bar = progress_bar(len(blocks), "scoring the bank", "tile", iterable=blocks)
    for rows, columns in bar:
        logits = finite_scores(tile(candidates[rows], queries[columns])) / unit
        maxima = logits.max(axis=1)
        total = np.log(np.exp(logits - maxima[:, None]).sum(axis=1)) + maxima
        levels[rows] = np.logaddexp(levels[rows], total)
    return (unit * (levels - np.log(len(queries)))).astype(np.float32)


MAX_STRIP = 255
MAX_BLOCK = 8 * MAX_STRIP
# A strip with more than 1 in 32 undecided pairs is computed in float64.
DENSE_SHARE = 32
FLOAT32_ROUNDOFF = 2.0**-24
FLOAT32_SMALLEST_NORMAL = 2.0**-126


def queries_of(side, best, candidates):
    """Returns the `Queries` of a `Side`, with bounds for uncertain scores.

    `best`, float32 `[n]`, is each row's best positive score; infinity if none.
    """
    dim = side.embeddings.shape[1]
    # |float32 product - exact| <= dim u / (1 - dim u) |x| |y| in any order of
    # summation (Higham 2002, Sec. 3.1). 2 u bounds the rounding of the score
    # itself, and the last term bounds products that underflow.
    relative = dim * FLOAT32_ROUNDOFF / (1 - dim * FLOAT32_ROUNDOFF)
    relative += 2 * FLOAT32_ROUNDOFF
    slack = relative * side.norms * candidates.norms.max()
    slack += dim * FLOAT32_SMALLEST_NORMAL
    low = np.nextafter((best - slack).astype(np.float32), np.float32(-np.inf))
    high = np.nextafter((best + slack).astype(np.float32), np.float32(np.inf))
    return Queries(best, low, high)


def _count_block(sides, queries, row_slice, column_slice):
    """Scores a block of pairs, and updates the counts in both directions."""
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
    """Returns the masks `score >= low` and `score > high`, and their sums."""
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
