"""Evaluates links from noun phrases to boxes, using only NumPy."""

from typing import NamedTuple

import numpy as np

from tbnets.checks import SAME_THING, rows_by
from tbnets.evaluation import boxes as box_math

NO_SIZE = 1 << 30
"""Larger than the number of words of any phrase."""


class Links(NamedTuple):
    """Annotated links from phrases to boxes.

    Attributes:
        phrases: int64 `[num_links]`, rows of the noun phrases.
        boxes: float64 `[num_links, 4]`, annotated boxes in pixels.
        images: int64 `[num_links]`, row of the link's photo.
        things: int64 `[num_links]`, id of the link's object.
        is_exact: bool `[num_links]`, whether the noun phrase has exactly the
            words of the link.
        num_lost: number of other links, for which there is no noun phrase.
    """

    phrases: np.ndarray
    boxes: np.ndarray
    images: np.ndarray
    things: np.ndarray
    is_exact: np.ndarray
    num_lost: int


def phrases_of_spans(captions, spans, phrases):
    """Finds, for each span of words, the noun phrase with exactly these words.

    If there is none, finds the smallest noun phrase that contains the last word
    of the span. In English, this word is usually the head noun.

    `captions`, int `[n]`, contains the rows of the spans' captions, or -1.
    `spans`, int `[n, 2]`, contains half-open ranges of words. `phrases` has
    `spans` and `starts`, like `NounPhrases`. Returns (rows, is_exact): the row
    of the noun phrase, int64 `[n]`, or -1 if there is none; and whether it has
    exactly the span's words, bool `[n]`.
    """
    rows = np.full(len(captions), -1, np.int64)
    is_exact = np.zeros(len(captions), bool)
    for i, (caption, (start, end)) in enumerate(zip(captions, spans)):
        if caption < 0:
            continue
        first, last = phrases.starts[caption], phrases.starts[caption + 1]
        nodes = phrases.spans[first:last]
        holds = (nodes[:, 0] < end) & (end <= nodes[:, 1])
        sizes = np.where(holds, nodes[:, 1] - nodes[:, 0], NO_SIZE)
        sizes[(nodes == (start, end)).all(axis=1)] = 0
        if (least := sizes.min(initial=NO_SIZE)) < NO_SIZE:
            rows[i], is_exact[i] = first + sizes.argmin(), least == 0
    return rows, is_exact


def evaluate_correspondences(choices, candidates, links) -> dict:
    """Computes how often the candidate chosen for a link is correct.

    A candidate is correct if its IoU with the annotated box is at least
    `SAME_THING`.

    Args:
        choices: int `[num_phrases]`, index of a noun phrase's candidate.
        candidates: function that maps a photo's row to its candidate boxes `[k,
            4]`; the last box is the whole photo.
        links: `Links`.

    Returns:
        dict of fractions in [0, 1], or NaN if there are no links:
        `correspondence_accuracy`, `correspondence_chance` (a random candidate),
        `correspondence_whole_photo` and `correspondence_upper_bound` (the best
        candidate). The first three have variants `correspondence_pointing_...`,
        which require only that the candidate's centre is in the annotated box.
        `correspondence_exact_spans` is the fraction of links with `is_exact`.
        `correspondence_links` is the number of evaluated links, and
        `correspondence_lost` is the number of links without a noun phrase.

    Source: Niu et al. 2017, Sec. 5.3.2, where ten people judged 2000 pairs.
    Departure: annotated boxes define correctness. Testing the centre is the
    "pointing game" of Zhang et al. 2016.
    """
    count = len(links.phrases)
    names = ("accuracy", "chance", "whole_photo", "upper_bound")
    names += tuple(f"pointing_{name}" for name in names[:3])
    shares = {name: np.zeros(count) for name in names}
    shares["exact_spans"] = links.is_exact
    for image, rows in enumerate(rows_by(links.images)):
        if not len(rows):
            continue
        truth, candidate_boxes = links.boxes[rows], candidates(image)
        matches = box_math.iou(truth, candidate_boxes) >= SAME_THING
        chosen = choices[links.phrases[rows]].astype(np.int64)
        shares["upper_bound"][rows] = matches.any(axis=1)
        holds = _holds_centers(truth, candidate_boxes)
        for kind, right in (("", matches), ("pointing_", holds)):
            is_right = right[np.arange(len(rows)), chosen]
            shares[f"{kind}accuracy"][rows] = is_right
            shares[f"{kind}chance"][rows] = right.mean(axis=1)
            shares[f"{kind}whole_photo"][rows] = right[:, -1]
    metrics = {
        f"correspondence_{name}": float(np.mean(values)) if count else np.nan
        for name, values in shares.items()
    }
    return metrics | {
        "correspondence_links": float(count),
        "correspondence_lost": float(links.num_lost),
    }


def _holds_centers(truth, candidate_boxes):
    """Returns whether box n contains the centre of candidate m, `[n, m]`."""
    x, y = (candidate_boxes[:, :2] + candidate_boxes[:, 2:]).T / 2
    left, top, right, bottom = truth.T[..., None]
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
