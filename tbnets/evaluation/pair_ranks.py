"""Ranks where a query may have many positives, and a candidate too.

Regions and phrases match in many ways: a region has several phrases, and one
phrase is said of regions in several photos.
"""

import copy

import numpy as np

from tbnets.checked_numbers import checked_array
from tbnets.errors import InputError
from tbnets.evaluation import checks
from tbnets.evaluation.exact_scores import strip_scores
from tbnets.evaluation.ranking import MAX_BLOCK
from tbnets.evaluation.ranks import (
    Ranks,
    Side,
    best_ranks,
    precisions,
    summarize_direction,
)

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
            f"`{name}` must be bool {shape}, or whole numbers [n, 2], the rows "
            f"of both sides of each match, {least} or more. Received: "
            f"{pairs.dtype} {pairs.shape}, or a row out of range. Count rows "
            "from 0."
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
