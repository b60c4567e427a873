"""Computes the ranks of candidates that are scored pair by pair, in tiles.

Any number of candidates may match a query. The last bits of a float32 score
depend on the pair's position in a tile. Therefore, a candidate whose score is
within `TIE` of the best positive's score counts as a tie, unless the scores are
exact. Ties count against the model.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tbnets.checks import (
    checked_embeddings,
    checked_groups,
    checked_number,
    finite_scores,
)
from tbnets.errors import InputError
from tbnets.evaluation import exact_ranks
from tbnets.evaluation.ranks import (
    Ranks,
    best_ranks,
    best_scores,
    count_rivals,
    group_pairs,
    precisions,
    ranks_of,
    summarize_ranks,
)
from tbnets.progress import progress_bar

TIE = 1e-5
"""Tolerance for scores up to 1 in magnitude; relative for larger scores."""
SQUARED_ROUNDING = 1e-6
"""Rounding error of squared distances between unit vectors in float32.

Smaller squared distances are set to 0. Otherwise identical embeddings would not
tie, because the root of the error is several times `TIE`.
"""
TILE_IMAGES, TILE_TEXTS = 64, 1024
LEVEL = np.broadcast_to(np.float32(0), 1 << 40)
"""Levels of 0 for any number of rows."""
PAIRS_AT_ONCE = 8192
"""Number of pairs that a learned similarity compares at once."""


class PairScores(NamedTuple):
    """Functions that score pairs of images and texts; larger is closer.

    Attributes:
        tile: maps image rows int64 `[a]` and text rows int64 `[b]` to scores
            float32 `[a, b]`.
        pairs: maps image rows and text rows int64 `[p]` to scores float32
            `[p]`.
        image_levels: float32 `[num_images]`, levels to subtract when texts rank
            images (`normalize`).
        text_levels: float32 `[num_texts]`, levels to subtract when images rank
            texts.
        tolerance: largest difference of tied scores, as in `count_rivals`.
    """

    num_images: int
    num_texts: int
    tile: Callable
    pairs: Callable
    image_levels: np.ndarray = LEVEL
    text_levels: np.ndarray = LEVEL
    tolerance: float = TIE

    def subset(self, image_rows, text_rows):
        """Returns the `PairScores` of some rows, renumbered from 0."""

        def of_some(ask):
            return lambda i, j: ask(image_rows[i], text_rows[j])

        counts = len(image_rows), len(text_rows)
        ways = of_some(self.tile), of_some(self.pairs)
        levels = self.image_levels[image_rows], self.text_levels[text_rows]
        return PairScores(*counts, *ways, *levels, self.tolerance)

    def of_images(self, scores, image_rows):
        """Returns scores `[..., images]` minus the levels of the images."""
        return scores - self.image_levels[image_rows]

    def of_texts(self, scores, text_rows):
        """Returns scores `[..., texts]` minus the levels of the texts."""
        return scores - self.text_levels[text_rows]


def evaluate_scores(scores, caption_to_image, image_groups=None) -> dict:
    """Computes the metrics of `evaluate_retrieval`, except `text_to_text`."""
    return summarize_ranks(score_ranks(scores, caption_to_image, image_groups))


def score_ranks(scores, caption_to_image, image_groups=None) -> dict:
    """Ranks the best positive of each query, like `retrieval_ranks`."""
    counts = scores.num_images, scores.num_texts
    rows, groups = checked_groups(caption_to_image, image_groups, *counts)
    directions = "image_to_text", "text_to_image"
    pairs = group_pairs(groups, groups[rows])
    return dict(zip(directions, pair_ranks(scores, *pairs)))


def pair_ranks(scores, images, texts):
    """Ranks texts for images, and images for texts.

    `images`, ascending, and `texts`, int `[n]`, are the rows of matching pairs,
    which are scored first. Then all pairs are scored in tiles. Each tile
    updates the ranks in both directions and is discarded. Returns two `Ranks`.
    """
    matches = finite_scores(scores.pairs(images, texts))
    of_texts = scores.of_texts(matches, texts)
    of_images = scores.of_images(matches, images)
    best = [
        best_scores(scores.num_images, images, of_texts),
        best_scores(scores.num_texts, texts, of_images),
    ]
    better = [np.zeros(len(each), np.int64) for each in best]
    tied = [np.zeros(len(each), bool) for each in best]
    tiles = row_blocks(scores.num_images, scores.num_texts)
    bar = progress_bar(len(tiles), "scoring the pairs", "tile", iterable=tiles)
    for rows, columns in bar:
        tile = finite_scores(scores.tile(rows, columns)).copy()
        first, last = np.searchsorted(images, [rows[0], rows[-1] + 1])
        places = texts[first:last] - columns[0]
        is_inside = (places >= 0) & (places < len(columns))
        own = images[first:last][is_inside] - rows[0], places[is_inside]
        tile[own] = -np.inf
        blocks = (
            (rows, scores.of_texts(tile, columns)),
            (columns, scores.of_images(tile.T, rows)),
        )
        for side, (queries, block) in enumerate(blocks):
            rivals = count_rivals(block, best[side][queries], scores.tolerance)
            better[side][queries] += rivals[0]
            tied[side][queries] |= rivals[1]
    return [ranks_of(*each) for each in zip(best, better, tied)]


def precise_ranks(scores, images, texts):
    """Ranks texts for images, with their `ranks.precisions`.

    `images`, ascending, and `texts` are as in `pair_ranks`. Returns `Ranks` and
    a dict of float64 `[num_queries]`.
    """
    every = row_blocks(1, scores.num_texts)
    queries, starts = np.unique(images, return_index=True)
    starts, ranked, precise = np.append(starts, len(images)), [], {}
    for first in range(0, len(queries), TILE_IMAGES):
        rows = queries[first : first + TILE_IMAGES]
        tiles = [scores.tile(rows, columns) for _, columns in every]
        values = finite_scores(np.concatenate(tiles, axis=1))
        own = slice(starts[first], starts[first + len(rows)])
        matches = np.zeros(values.shape, bool)
        matches[np.searchsorted(rows, images[own]), texts[own]] = True
        ranked.append(best_ranks(values, matches))
        for name, shares in precisions(values, matches).items():
            precise.setdefault(name, []).append(shares)
    ranks, tied = map(np.concatenate, zip(*ranked))
    joined = {name: np.concatenate(parts) for name, parts in precise.items()}
    return Ranks(queries, ranks, tied), joined


def pairs_of(name, pairs, shape, least=0):
    """Returns the rows of matching pairs, two int64 arrays `[n]`.

    `pairs` is a bool mask of the given shape, or int `[n, 2]`. The first array
    is ascending. Raises ValueError if there are fewer than `least` pairs.
    """
    pairs = np.asarray(pairs)
    if pairs.dtype == bool and pairs.shape == shape:
        pairs = np.argwhere(pairs)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), np.int64)
    fit = pairs.dtype.kind in "iu" and pairs.shape[1:] == (2,)
    fit = fit and ((pairs >= 0) & (pairs < shape)).all()
    if not fit or len(pairs) < least:
        raise InputError(
            name,
            f"be bool {shape}, or 0-based rows [n, 2] with n >= {least}",
            f"{pairs.dtype} {pairs.shape}, or a row out of range",
        )
    return tuple(pairs[np.argsort(pairs[:, 0], kind="stable")].astype("i8").T)


def exact_scores(images, texts, names=("images", "texts")):
    """Returns `PairScores` of exact inner products.

    `images` and `texts` are embeddings `[n, dim]`, L2-normalised. Error
    messages use `names` for the two arguments.
    """
    arrays = checked_embeddings(**dict(zip(names, (images, texts))))
    images, texts = (
        exact_ranks.finite_side(name, array, np.arange(len(array)))
        for name, array in zip(names, arrays)
    )

    def tile(image_rows, text_rows):
        sides = images.take(image_rows), texts.take(text_rows)
        every = slice(0, len(image_rows)), slice(0, len(text_rows))
        return exact_ranks.strip_scores(*sides, *every)

    def pairs(image_rows, text_rows):
        return exact_ranks.pair_scores(images, texts, image_rows, text_rows)

    counts = map(len, arrays)
    return PairScores(*counts, tile, pairs, tolerance=0.0)


def matrix_scores(matrix, tolerance=TIE):
    """Returns the `PairScores` of an array `[num_images, num_texts]`."""
    return PairScores(
        *matrix.shape,
        lambda images, texts: matrix[np.ix_(images, texts)],
        lambda images, texts: matrix[images, texts],
        tolerance=tolerance,
    )


def row_blocks(num_images, num_texts):
    """Returns a list of (image rows, text rows), one pair per tile."""

    def blocks(count, size):
        return np.split(np.arange(count), range(size, count, size))

    images_of = blocks(num_images, TILE_IMAGES)
    texts_of = blocks(num_texts, TILE_TEXTS)
    return [(images, texts) for texts in texts_of for images in images_of]


def compare_all(compare, first, second, pairs_at_once):
    """Scores all pairs of rows of two arrays, `pairs_at_once` at a time.

    `compare` maps arrays `[a, dim]` and `[b, dim]` to scores float32 `[a, b]`.
    """
    table = np.empty((len(first), len(second)), np.float32)
    for column in range(0, len(second), pairs_at_once):
        columns = slice(column, column + pairs_at_once)
        step = max(1, pairs_at_once // len(second[columns]))
        for row in range(0, len(first), step):
            rows = slice(row, row + step)
            table[rows, columns] = compare(first[rows], second[columns])
    return table


def distance_scores(image_embeddings, text_embeddings):
    """Returns `PairScores` of negative distances between unit vectors.

    Wang et al. 2018, Sec. 3.2.1, define the distance.
    """

    def scores(inner):
        squared = 2 - 2 * inner
        squared[squared < SQUARED_ROUNDING] = 0
        return -np.sqrt(squared, dtype=np.float32)

    def tile(images, texts):
        return scores(image_embeddings[images] @ text_embeddings[texts].T)

    def pairs(images, texts):
        rows = image_embeddings[images], text_embeddings[texts]
        return scores(np.einsum("ij,ij->i", *rows))

    return PairScores(len(image_embeddings), len(text_embeddings), tile, pairs)


def weighted_sum(first, second, weight, units=(1.0, 1.0)):
    """Combines the `PairScores` of two models.

    ::

        (1 - weight) * first / units[0] + weight * second / units[1]

    Source: Wang et al. 2018, Eq. 8, for negative distances.
    """
    shares = (1 - weight) / units[0], weight / units[1]

    def combined(ask):
        x, y = ask(first), ask(second)
        return np.float32(shares[0]) * x + np.float32(shares[1]) * y

    return first._replace(
        tile=lambda *rows: combined(lambda scores: scores.tile(*rows)),
        pairs=lambda *rows: combined(lambda scores: scores.pairs(*rows)),
    )


def spread(scores, num_pairs=65536):
    """Returns the standard deviation of scores over random pairs.

    The pairs are drawn with a fixed seed.
    """
    generator = np.random.default_rng(0)
    counts = scores.num_images, scores.num_texts
    rows = [generator.integers(0, count, num_pairs) for count in counts]
    values = finite_scores(scores.pairs(*rows))
    deviation = float(np.std(values, dtype=np.float64))
    if not deviation > 0:
        raise InputError("scores", "differ between pairs", "equal scores")
    return deviation


# A query bank.
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

BANK_TEMPERATURE = 0.4
"""Default temperature, in standard deviations of the scores."""


def normalize(scores, num_images, num_texts, temperature=BANK_TEMPERATURE):
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
