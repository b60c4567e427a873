"""Ranks candidates of which any number may match a query.

A region may have several phrases, and a phrase may describe regions in several
photos.
"""

import copy

import numpy as np

from tbnets.checks import checked_array
from tbnets.errors import InputError
from tbnets.evaluation import arguments
from tbnets.evaluation.exact_ranks import (
    MAX_BLOCK,
    Side,
    finite_side,
    strip_scores,
)
from tbnets.evaluation.ranks import (
    Ranks,
    best_ranks,
    precisions,
    summarize_direction,
)

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
            finite_side(name, rows, np.arange(len(rows)))
            for name, rows in zip(names, arguments.checked_embeddings(**arrays))
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
        values = arguments.finite_scores(scores[query_rows], query_rows)
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
