"""Corrects the scores of candidates that are close to every query.

In an embedding space a few candidates are close to every query, so they are
returned too often. A bank of other queries b defines a level for each
candidate c, which is subtracted from the score::

    s'(q, c) = s(q, c) - T log mean_b exp(s(b, c) / T)

A query q then ranks candidates by the inverted softmax over queries,
`exp(s(q, c) / T) / sum_b exp(s(b, c) / T)`. The split's other queries are not
used.

Source: Smith et al. 2017 (the inverted softmax); Bogolin et al. 2022 (its sum
over a bank of training queries). Departures: the temperature T is in standard
deviations of the scores, so that one value works for cosines, distances and
logits. All queries are corrected, not only queries whose first result is also
a first result of the bank.
"""

import numpy as np

from tbnets.checks import checked_number
from tbnets.errors import InputError
from tbnets.evaluation.arguments import finite_scores
from tbnets.evaluation.score_tiles import row_blocks, spread
from tbnets.progress import progress_bar

TEMPERATURE = 0.4
"""Default temperature, in standard deviations of the scores."""


def normalize(scores, num_images, num_texts, temperature=TEMPERATURE):
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
