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
    precisions,
    summarize_direction,
)
from tbnets.evaluation.score_tiles import row_blocks, spread
from tbnets.progress import progress_bar
from tbnets.startup import usable_cores

# Ranks where a query may have many positives, and a candidate too.
#
# Regions and phrases match in many ways: a region has several phrases, and one
# phrase is said of regions in several photos.

SCORES_AT_ONCE = 1 << 22
"""Scores held at a time: 16 MiB, and about as much again for masks."""


class EmbeddingScores:
    """The table of scores of all pairs, never held as a whole.

    A score is the exact inner product of two float32 rows, rounded once, so
    that equal embeddings tie. Stands where a table of scores is asked for.

    Args:
        queries: `[num_queries, dim]`, L2-normalised.
        candidates: `[num_candidates, dim]`, L2-normalised.

    Raises:
        ValueError: an embedding is not finite, or the shapes do not fit.
    """

    def __init__(self, queries, candidates):
        given = {"queries": queries, "candidates": candidates}
        self._sides = [
            checks.finite_side(name, rows, np.arange(len(rows)))
            for name, rows in zip(given, checks.checked_embeddings(**given))
        ]

    @property
    def shape(self):
        """How many queries and candidates there are."""
        return tuple(len(side.embeddings) for side in self._sides)

    @property
    def T(self):  # noqa: N802 (as NumPy calls it)
        """The table with queries and candidates exchanged."""
        turned = copy.copy(self)
        turned._sides = self._sides[::-1]
        return turned

    def __getitem__(self, rows):
        """Returns the scores of some queries, int `[n]`: float32 `[n, m]`."""
        queries, candidates = self._sides
        some = Side(queries.embeddings[rows], queries.norms[rows], rows)
        strip, starts = slice(0, len(rows)), range(0, self.shape[1], MAX_BLOCK)
        blocks = [slice(start, start + MAX_BLOCK) for start in starts]
        parts = [strip_scores(some, candidates, strip, one) for one in blocks]
        return np.concatenate(parts, axis=1)


def pairs_of(name, pairs, shape, least=0):
    """Returns the pairs that match, int64 `[n, 2]`, sorted by the first side.

    Args:
        name: what they are called.
        pairs: bool of a shape, or int `[n, 2]`; a pair may stand twice.
        shape: rows of the one side, and of the other.
        least: how many there must be.

    Raises:
        ValueError: they are neither, too few, or a row is out of range.
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
            f"be bool {shape}, or whole numbers [n, 2], the rows of both "
            f"sides of each match, {least} or more",
            f"{pairs.dtype} {pairs.shape}, or a row out of range",
            "Count rows from 0.",
        )
    return pairs[np.argsort(pairs[:, 0], kind="stable")].astype(np.int64)


def pair_ranks(scores, pairs, rank=best_ranks) -> Ranks:
    """Ranks the best positive of every query that has one.

    Args:
        scores: `[num_queries, num_candidates]`, larger is better: an array
            (a memory-mapped one is read strip by strip) or
            `EmbeddingScores`.
        pairs: int `[n, 2]`, rows of a query and of a candidate that match;
            in any order, any number for each.
        rank: `ranks.best_ranks`, or what does more besides.

    Returns:
        Ranks: a candidate that is no positive of the query and scores the
        same as its best positive is placed before it.

    Raises:
        ValueError: a pair is out of range, or a score is not finite.
    """
    parts = [(rows, *rank(*strip)) for rows, *strip in _strips(scores, pairs)]
    none = [np.zeros(0, kind) for kind in (np.int64, np.int64, bool)]
    return Ranks(*map(np.concatenate, zip(none, *parts)))


def precise_ranks(scores, pairs):
    """Ranks as `pair_ranks`, and measures where all positives stand.

    Returns:
        (Ranks, dict): the latter as of `ranks.precisions`.
    """
    precise = {}

    def rank(values, positive):
        for name, found in precisions(values, positive).items():
            precise.setdefault(name, []).append(found)
        return best_ranks(values, positive)

    ranks = pair_ranks(scores, pairs, rank)
    return ranks, {k: np.concatenate(parts) for k, parts in precise.items()}


def _strips(scores, pairs):
    """Yields queries that have positives, their scores, which are positives.

    Args:
        scores: as of `pair_ranks`.
        pairs: likewise.
    """
    pairs = pairs_of("pairs", pairs, scores.shape)
    queries, starts = np.unique(pairs[:, 0], return_index=True)
    ends = np.append(starts, len(pairs))
    step = max(1, SCORES_AT_ONCE // max(1, scores.shape[1]))
    for first in range(0, len(queries), step):
        wanted = queries[first : first + step]
        values = checks.finite_scores(scores[wanted], wanted)
        positive = np.zeros(values.shape, bool)
        own = pairs[ends[first] : ends[first + len(wanted)]]
        positive[np.searchsorted(wanted, own[:, 0]), own[:, 1]] = True
        yield wanted, values, positive


def evaluate_region_phrase_ranking(scores, pairs) -> dict:
    """Ranks all phrases for each true region, and all regions for a phrase.

    Unlike localization, candidates are those of all photos, and regions are
    the annotated ones. Keys begin with `true_region_to_phrase/` and
    `phrase_to_true_region/`, followed by `recall_at_<k>`, `median_rank`,
    `mean_rank`, `num_queries` and `tie_rate` as in
    `retrieval.evaluate_retrieval`.

    Args:
        scores: `[num_regions, num_phrases]` as for `pair_ranks`. Let each
            phrase stand once: equal phrases tie, and ties are lost.
        pairs: int `[n, 2]`, rows of a region and of a phrase said of it; or
            bool `[num_regions, num_phrases]`.

    Returns:
        Flat dict of floats.

    Source: Niu et al. 2017, Sec. 5.2 and Table 4 (regions to phrases).
        Departures: the other direction too, ties.
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
"""What it returns where no region stands for a true one."""


# Scores less what a candidate scores with any query: query banks.
#
# A few candidates of an embedding space lie near everything and are answered
# far too often. With a bank of queries b that have other answers, all
# candidates c are brought to one level::
#
#     s'(q, c) = s(q, c) - T log mean_b exp(s(b, c) / T)
#
# so that a query q ranks them by the inverted softmax over queries, `exp(s(q,
# c) / T) / sum_b exp(s(b, c) / T)`, and no other query of the split is looked
# at.
#
# Source: Smith et al. 2017 (the inverted softmax); Bogolin et al. 2022 (its sum
#     over a bank of training queries). Departures: the temperature T is told in
#     standard deviations of the scores, which has one value do for cosines,
#     distances and logits; every query is ranked so, not only those whose first
#     answer the bank answers too.

TEMPERATURE = 0.4
"""In standard deviations of the scores."""


def level(scores, num_images, num_texts, temperature=TEMPERATURE):
    """Brings images and texts to the level of a bank, in both directions.

    Texts ask for images, whose level the bank's texts tell; images ask for
    texts, whose level its images tell.

    Args:
      scores: `PairScores` of the images and texts of a split, and behind them
        of those of the bank.
      num_images: how many images are the split's.
      num_texts: how many texts are.
      temperature: T, above 0, in standard deviations of the split's scores.

    Returns:
      The `PairScores` of the split, with the levels.

    Raises:
      ValueError: the bank is empty, or a score is not finite.
    """
    checked_number("temperature", temperature, 0, above=True)
    images, texts = map(np.arange, scores[:2])
    own = scores.subset(images[:num_images], texts[:num_texts])
    bank = images[num_images:], texts[num_texts:]
    if not all(map(len, bank)):
        raise InputError(
            "scores",
            "hold a bank of images and texts",
            f"{len(bank[0])} and {len(bank[1])}",
            "Give queries of training.",
        )
    unit = temperature * spread(own)

    def of_texts(texts, images):
        return scores.tile(images, texts).T

    return own._replace(
        image_levels=_levels(scores.tile, images[:num_images], bank[1], unit),
        text_levels=_levels(of_texts, texts[:num_texts], bank[0], unit),
    )


def _levels(tile, candidates, queries, unit):
    """Returns unit log mean_b exp(s(b, c) / unit) of each candidate c.

    Args:
      tile: function (candidates [a], queries [b]) -> float32 [a, b].
      candidates: int64 [n].
      queries: int64 [b], those of the bank.
      unit: above 0.
    """
    levels = np.full(len(candidates), -np.inf)
    blocks = row_blocks(len(candidates), len(queries))
    bar = progress_bar(len(blocks), "asking the bank", "tile", iterable=blocks)
    for rows, some in bar:
        found = finite_scores(tile(candidates[rows], queries[some])) / unit
        most = found.max(axis=1)
        total = np.log(np.exp(found - most[:, None]).sum(axis=1)) + most
        levels[rows] = np.logaddexp(levels[rows], total)
    return (unit * (levels - np.log(len(queries)))).astype(np.float32)


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
