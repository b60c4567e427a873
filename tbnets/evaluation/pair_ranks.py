"""Ranks where a query may have many positives, and a candidate too.

Regions and phrases match in many ways: a region has several phrases, and one
phrase is said of regions in several photos.
"""

import numpy as np

from tbnets.errors import InputError
from tbnets.evaluation import checks, exact_scores, retrieval
from tbnets.evaluation.ranking import MAX_BLOCK
from tbnets.evaluation.ranks import Ranks, Side, best_ranks

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
        sides = []
        for name, rows in (("queries", queries), ("candidates", candidates)):
            rows = checks.checked_embeddings(name, rows)
            rows, norms = checks.finite_float32(name, rows)
            sides.append(Side(rows, norms, np.arange(len(rows))))
        dims = [side.embeddings.shape[1] for side in sides]
        if dims[0] != dims[1]:
            raise InputError(
                "`candidates` must have as many columns as `queries`. "
                f"Received: {dims[0]} of queries and {dims[1]} of candidates. "
                "Pass embeddings of one shared space."
            )
        checks.check_scale(sides[0].norms, sides[1].norms)
        self._set(*sides)

    def _set(self, rows, columns):
        self._rows, self._columns = rows, columns
        self.shape = len(rows.embeddings), len(columns.embeddings)

    @property
    def T(self):  # noqa: N802 (as NumPy calls it)
        """The table with queries and candidates exchanged."""
        turned = object.__new__(EmbeddingScores)
        turned._set(self._columns, self._rows)
        return turned

    def __getitem__(self, strip):
        """Returns the scores of a slice of queries, float32 `[n, m]`."""
        return np.concatenate(
            [
                exact_scores.strip_scores(
                    self._rows,
                    self._columns,
                    strip,
                    slice(start, start + MAX_BLOCK),
                )
                for start in range(0, self.shape[1], MAX_BLOCK)
            ],
            axis=1,
        )


def pair_ranks(scores, pairs) -> Ranks:
    """Ranks the best positive of every query that has one.

    Args:
        scores: `[num_queries, num_candidates]`, larger is better: an array
            (a memory-mapped one is read strip by strip) or
            `EmbeddingScores`.
        pairs: int `[n, 2]`, rows of a query and of a candidate that match;
            in any order, any number for each.

    Returns:
        Ranks: a candidate that is no positive of the query and scores the
        same as its best positive is placed before it.

    Raises:
        ValueError: a pair is out of range, or a score is not finite.
    """
    num_queries, num_candidates = scores.shape
    pairs = _checked_pairs(pairs, num_queries, num_candidates)
    queries, starts = np.unique(pairs[:, 0], return_index=True)
    ends = np.append(starts, len(pairs))
    ranks = np.zeros(len(queries), np.int64)
    tied = np.zeros(len(queries), bool)
    step = max(1, SCORES_AT_ONCE // max(1, num_candidates))
    for first in range(0, len(queries), step):
        rows = slice(first, min(first + step, len(queries)))
        wanted = queries[rows]
        strip = slice(int(wanted[0]), int(wanted[-1]) + 1)
        if strip.stop - strip.start > 2 * len(wanted):
            values = np.concatenate([scores[q : q + 1] for q in wanted])
        else:
            values = np.asarray(scores[strip])[wanted - wanted[0]]
        values = checks.finite_scores(
            values,
            lambda row, column, of=wanted: f"scores[{of[row]}, {column}]",
        )
        positive = np.zeros(values.shape, bool)
        own = pairs[ends[rows.start] : ends[rows.stop]]
        positive[np.searchsorted(wanted, own[:, 0]), own[:, 1]] = True
        ranks[rows], tied[rows] = best_ranks(values, positive)
    return Ranks(queries, ranks, tied)


def evaluate_region_phrase_ranking(
    scores, pairs, recall_at: tuple = retrieval.RECALL_AT
) -> dict:
    """Ranks all phrases for each true region, and all regions for a phrase.

    Unlike localization, candidates are those of all photos, and regions are
    the annotated ones. Keys begin with `true_region_to_phrase/` and
    `phrase_to_true_region/`, followed by `recall_at_<k>`, `median_rank`,
    `mean_rank`, `num_queries` and `tie_rate` as in
    `retrieval.evaluate_retrieval`.

    Args:
        scores: `[num_regions, num_phrases]` as for `pair_ranks`. Let each
            phrase stand once: equal phrases tie, and ties are lost.
        pairs: int `[n, 2]`, rows of a region and of a phrase said of it.
        recall_at: the cut-offs k.

    Returns:
        Flat dict of floats.

    Source: Niu et al. 2017, Sec. 5.2 and Table 4 (regions to phrases).
        Departures: the other direction too, ties.
    """
    pairs = np.asarray(pairs)
    directions = {
        "true_region_to_phrase": pair_ranks(scores, pairs),
        "phrase_to_true_region": pair_ranks(scores.T, pairs[..., ::-1]),
    }
    return {
        f"{direction}/{name}": value
        for direction, ranks in directions.items()
        for name, value in retrieval.summarize_direction(
            ranks, recall_at
        ).items()
    }


def _checked_pairs(pairs, num_queries, num_candidates):
    """Returns int64 `[n, 2]`, sorted by query."""
    pairs = np.asarray(pairs)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), np.int64)
    shape = num_queries, num_candidates
    inside = pairs.dtype.kind in "iu" and pairs.shape[1:] == (2,)
    if not inside or ((pairs < 0) | (pairs >= shape)).any():
        raise InputError(
            "`pairs` must be whole numbers [n, 2], rows and columns of "
            f"`scores`. Received: pairs of shape {pairs.shape} and dtype "
            f"{pairs.dtype}, scores of shape {shape}. Count from 0."
        )
    return pairs[np.argsort(pairs[:, 0], kind="stable")]
