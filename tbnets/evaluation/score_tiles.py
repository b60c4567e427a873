"""Computes the ranks of a model that scores pairs, tile by tile.

The last bits of a float32 score depend on the pair's position in a tile.
Therefore, a candidate whose score is within `TIE` of the best positive's score
counts as a tie. Ties count against the model.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError
from tbnets.evaluation.arguments import checked_groups, finite_scores
from tbnets.evaluation.ranks import (
    Queries,
    best_scores,
    group_pairs,
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
            images (`query_bank.normalize`).
        text_levels: float32 `[num_texts]`, levels to subtract when images rank
            texts.
    """

    num_images: int
    num_texts: int
    tile: Callable
    pairs: Callable
    image_levels: np.ndarray = LEVEL
    text_levels: np.ndarray = LEVEL

    def subset(self, image_rows, text_rows):
        """Returns the `PairScores` of some rows, renumbered from 0."""

        def of_some(ask):
            return lambda i, j: ask(image_rows[i], text_rows[j])

        counts = len(image_rows), len(text_rows)
        ways = of_some(self.tile), of_some(self.pairs)
        levels = self.image_levels[image_rows], self.text_levels[text_rows]
        return PairScores(*counts, *ways, *levels)

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
    """Ranks the best positive of each query, like `retrieval_ranks`.

    Positive pairs are scored first. Then all pairs are scored in tiles. Each
    tile updates the ranks in both directions and is discarded.
    """
    counts = scores.num_images, scores.num_texts
    rows, groups = checked_groups(caption_to_image, image_groups, *counts)
    text_groups = groups[rows]
    images, texts = group_pairs(groups, text_groups)
    positives = finite_scores(scores.pairs(images, texts))
    of_images = scores.of_texts(positives, texts)
    of_texts = scores.of_images(positives, images)
    by_image = _queries(best_scores(len(groups), images, of_images))
    by_text = _queries(best_scores(len(rows), texts, of_texts))
    tiles = row_blocks(*counts)
    bar = progress_bar(len(tiles), "scoring the pairs", "tile", iterable=tiles)
    for images, texts in bar:
        tile = finite_scores(scores.tile(images, texts)).copy()
        tile[groups[images][:, None] == text_groups[texts]] = -np.inf
        _count(by_image, images, scores.of_texts(tile, texts))
        _count(by_text, texts, scores.of_images(tile.T, images))
    return {
        "image_to_text": by_image.result(),
        "text_to_image": by_text.result(),
    }


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


def _queries(best):
    slack = np.float32(TIE) * np.maximum(np.abs(best), 1)
    slack[~np.isfinite(best)] = 0
    return Queries(best, best - slack, best + slack)


def _count(queries, rows, scores):
    """Counts candidates that beat or tie with positives; `[rows, n]` scores."""
    at_least = (scores >= queries.low[rows, None]).sum(axis=1)
    above = (scores > queries.high[rows, None]).sum(axis=1)
    queries.better[rows] += at_least
    queries.tied[rows] |= at_least != above


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
        raise InputError(
            "scores",
            "differ between pairs",
            f"equal scores for {num_pairs} pairs",
            "Check whether the model has collapsed.",
        )
    return deviation
