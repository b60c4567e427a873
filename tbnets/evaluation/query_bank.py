"""Scores less what a candidate scores with any query: query banks.

A few candidates of an embedding space lie near everything and are answered far
too often. With a bank of queries b that have other answers, all candidates c
are brought to one level::

    s'(q, c) = s(q, c) - T log mean_b exp(s(b, c) / T)

so that a query q ranks them by the inverted softmax over queries,
`exp(s(q, c) / T) / sum_b exp(s(b, c) / T)`, and no other query of the split is
looked at.

Source: Smith et al. 2017 (the inverted softmax); Bogolin et al. 2022 (its sum
    over a bank of training queries). Departures: the temperature T is told in
    standard deviations of the scores, which has one value do for cosines,
    distances and logits; every query is ranked so, not only those whose first
    answer the bank answers too.
"""

import numpy as np

from tbnets.checked_numbers import checked_number
from tbnets.errors import InputError
from tbnets.evaluation.checks import finite_scores
from tbnets.evaluation.score_tiles import row_blocks, spread
from tbnets.progress import progress_bar

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
            "`scores` must hold a bank of images and texts. Received: "
            f"{len(bank[0])} and {len(bank[1])}. Give queries of training."
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
