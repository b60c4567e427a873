"""Computes ranks of queries, and metrics from these ranks."""

from typing import NamedTuple

import numpy as np

RECALL_AT = (1, 5, 10)


class Ranks(NamedTuple):
    """Ranks of the queries of one retrieval direction.

    Attributes:
        queries: int64 `[num_queries]`, rows of the queries that have a
            positive, ascending.
        ranks: int64 `[num_queries]`, 1-based rank of the best positive; tied
            candidates rank before it.
        tied: bool `[num_queries]`, whether a candidate is tied with the best
            positive.
    """

    queries: np.ndarray
    ranks: np.ndarray
    tied: np.ndarray


def count_rivals(scores, best, tolerance=0.0):
    """Counts candidates that rank before each query's best positive.

    `scores`, `[queries, candidates]`, are a block of the scores of candidates
    that do not match; a match has -inf. `best`, float32 `[queries]`, contains
    the scores of the best positives; +inf for a row that is not a query. Scores
    tie if they differ by at most `tolerance`, relative to a score above 1.

    Returns:
        (better, tied): the number of candidates that beat or tie with the
        positive, int64 `[queries]`; and whether one of them ties, bool.
    """
    finite = np.where(np.isfinite(best), best, np.float32(0))
    slack = np.float32(tolerance) * np.maximum(np.abs(finite), 1)
    at_least = (scores >= (best - slack)[:, None]).sum(axis=1)
    above = (scores > (best + slack)[:, None]).sum(axis=1)
    return at_least, at_least != above


def best_ranks(scores, matches):
    """Ranks the best match in each row of scores `[queries, candidates]`.

    Returns (ranks, tied) as in `Ranks`. A row without a match ranks after the
    last candidate.
    """
    best = np.where(matches, scores, -np.inf)
    best = best.max(axis=1, initial=-np.inf).astype(np.float32)
    better, tied = count_rivals(np.where(matches, -np.inf, scores), best)
    return 1 + better, tied


def ranks_of(best, better, tied):
    """Returns the `Ranks` of the queries, whose `best` is finite."""
    queries = np.flatnonzero(best < np.inf)
    return Ranks(queries, 1 + better[queries], tied[queries])


def precisions(scores, matches):
    """Computes R-Precision and mAP@R; ties count against the model.

    `scores` and `matches` are `[num_queries, num_candidates]`. Each row must
    have a match.

    Returns:
        Dict of float64 `[num_queries]`: `r_precision` and `map_at_r` as in
        `evaluate_retrieval`.
    """
    counts = matches.sum(axis=1)
    most = int(counts.max(initial=0))
    # The matches' scores in ascending order, after padding with -inf.
    matched = np.where(matches, scores, -np.inf)
    matched = np.sort(np.partition(matched, -most, axis=1)[:, -most:], axis=1)
    unmatched = np.where(matches, -np.inf, scores)
    hits, shares = np.zeros((2, len(scores)))
    for place, best in enumerate(matched.T[::-1], start=1):
        ranks = place + (unmatched >= best[:, None]).sum(axis=1)
        within = (place <= counts) & (ranks <= counts)
        hits += within
        shares += np.where(within, place / ranks, 0.0)
    return {"r_precision": hits / counts, "map_at_r": shares / counts}


def summarize_ranks(ranks: dict, recall_at: tuple = RECALL_AT) -> dict:
    """Computes the metrics of `evaluate_retrieval` from a dict of `Ranks`."""
    metrics, recalls = {}, []
    for direction, query_ranks in ranks.items():
        for name, value in summarize_direction(query_ranks, recall_at).items():
            metrics[f"{direction}/{name}"] = value
            if direction != "text_to_text" and name.startswith("recall_at_"):
                recalls.append(value)
    metrics["mean_recall"] = float(np.mean(recalls))
    metrics["recall_sum"] = float(100 * np.sum(recalls))
    return metrics


def summarize_direction(ranks, recall_at: tuple = RECALL_AT) -> dict:
    """Computes the metrics of one direction from its `Ranks`.

    Returns:
        Dict of floats: `num_queries` and, if it is not 0, `recall_at_<k>`,
        `median_rank`, `mean_rank` and `tie_rate`.
    """
    values = ranks.ranks
    metrics = {"num_queries": float(len(values))}
    if not len(values):
        return metrics
    for k in recall_at:
        metrics[f"recall_at_{k}"] = float(np.mean(values <= k))
    metrics["median_rank"] = float(np.floor(np.median(values - 1)) + 1)
    metrics["mean_rank"] = float(np.mean(values))
    metrics["tie_rate"] = float(np.mean(ranks.tied))
    return metrics


def positive_pairs(row_groups, column_groups):
    """Returns the (row, column) pairs of equal groups, as two int64 arrays.

    The groups of the columns must be sorted.
    """
    first = np.searchsorted(column_groups, row_groups, "left")
    counts = np.searchsorted(column_groups, row_groups, "right") - first
    ends = np.cumsum(counts)
    columns = np.arange(ends[-1]) + np.repeat(first - ends + counts, counts)
    return np.repeat(np.arange(len(counts)), counts), columns


def group_pairs(row_groups, column_groups):
    """Returns `positive_pairs` for columns in any order."""
    order = np.argsort(column_groups, kind="stable")
    rows, columns = positive_pairs(row_groups, column_groups[order])
    return rows, order[columns]


def best_scores(count, rows, scores):
    """Returns the best score of each row, float32 `[count]`.

    `rows`, int `[n]`, contains the scores' rows. The result is infinity
    for rows without a score.
    """
    best = np.full(count, -np.inf, np.float32)
    np.maximum.at(best, rows, scores)
    return np.where(best > -np.inf, best, np.float32(np.inf))
