"""Average precision of detections, class by class."""

import numpy as np

from tbnets.identity import rows_by

RECALLS = 10
"""Precision is read at the recalls 0/10, 1/10, ..., 10/10."""


def average_precision(scores, hits, num_positives) -> float:
    """Averages the best precision at each of 11 recalls.

    Detections are taken in the order of their scores. Precision at a recall
    is the largest one at which at least so many of the positives are found;
    0 where they never are.

    Args:
        scores: float `[n]`, larger is better. Of equal scores, what is no hit
            comes first.
        hits: bool `[n]`; each positive is hit once at most.
        num_positives: how many there are to be found, at least 1.

    Returns:
        Fraction in [0, 1].

    Source: Everingham et al. 2010, "The PASCAL visual object classes
        challenge", Sec. 4.2, as it was until 2009. Departure: recalls are
        compared as whole numbers, without rounding.
    """
    scores, hits = np.asarray(scores), np.asarray(hits, bool)
    found = np.cumsum(hits[np.lexsort((hits, -scores))])
    precision = found / np.arange(1, len(found) + 1)
    # From the right, the largest precision from here on.
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    # Least number of hits that is a recall of t tenths.
    wanted = -(-np.arange(RECALLS + 1) * num_positives // RECALLS)
    places = np.searchsorted(found, wanted)
    return float(np.append(precision, 0.0)[places].sum() / (RECALLS + 1))


def mean_average_precision(scores, hits, classes, num_positives) -> float:
    """Averages the average precision of classes.

    Args:
        scores: float `[n]`, of all detections.
        hits: bool `[n]`.
        classes: int `[n]`, the class of each detection.
        num_positives: int `[num_classes]`; classes without any do not count.

    Returns:
        Fraction in [0, 1]; NaN where no class has a positive.
    """
    groups = rows_by(np.asarray(classes), len(num_positives))
    values = [
        average_precision(scores[rows], hits[rows], count)
        for rows, count in zip(groups, num_positives)
        if count
    ]
    return float(np.mean(values)) if values else float("nan")
