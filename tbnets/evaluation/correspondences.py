"""Are the regions that phrases were found to name the right ones?

Pure NumPy: what a network chose, beside what people marked.
"""

from typing import NamedTuple

import numpy as np

from tbnets.evaluation import boxes
from tbnets.identity import SAME_THING, rows_by

NO_SIZE = 1 << 30
"""More words than any phrase has."""


class Links(NamedTuple):
    """Known links of phrases to boxes, each at a node of a caption's tree.

    Attributes:
        phrases: int64 `[num_links]`, rows of the noun phrases.
        boxes: float64 `[num_links, 4]`, of what each names, in pixels.
        images: int64 `[num_links]`, row of the photo.
        things: int64 `[num_links]`, equal where two name the same thing.
        is_exact: bool `[num_links]`, whether the noun phrase has the words of
            the link; else it is the smallest around its last word.
        num_lost: how many links found no noun phrase.
    """

    phrases: np.ndarray
    boxes: np.ndarray
    images: np.ndarray
    things: np.ndarray
    is_exact: np.ndarray
    num_lost: int


def phrases_of_spans(captions, spans, phrases):
    """Finds the noun phrase that has the words of each span.

    Where none has, it is the smallest that holds the last word, which in
    English is most often the noun that the phrase is about.

    Args:
        captions: int `[n]`, row of the caption; -1 of none.
        spans: int `[n, 2]`, words of it.
        phrases: object with `spans` int `[num_phrases, 2]` and `starts` int
            `[num_captions + 1]`, the first phrase of each caption.

    Returns:
        (rows, is_exact): int64 `[n]`, -1 where no phrase holds the last
        word; and bool `[n]`.
    """
    rows = np.full(len(captions), -1, np.int64)
    is_exact = np.zeros(len(captions), bool)
    for i, (caption, (start, end)) in enumerate(zip(captions, spans)):
        if caption < 0:
            continue
        first, last = phrases.starts[caption], phrases.starts[caption + 1]
        found = phrases.spans[first:last]
        holds = (found[:, 0] < end) & (end <= found[:, 1])
        sizes = np.where(holds, found[:, 1] - found[:, 0], NO_SIZE)
        sizes[(found == (start, end)).all(axis=1)] = 0
        if (least := sizes.min(initial=NO_SIZE)) < NO_SIZE:
            rows[i], is_exact[i] = first + sizes.argmin(), least == 0
    return rows, is_exact


def evaluate_correspondences(choices, candidates, links) -> dict:
    """Counts the known links whose phrase was given a right candidate.

    That is one that overlaps with the box by `SAME_THING`.

    Args:
        choices: int `[num_phrases]`, the candidate of each noun phrase.
        candidates: function of a photo's row that returns the boxes of its
            candidates, `[k, 4]`; the last is the whole photo.
        links: `Links`.

    Returns:
        dict of `correspondence_accuracy`, `correspondence_chance` (of a
        candidate drawn at random), `correspondence_whole_photo` (of the photo
        every time) and `correspondence_upper_bound` (links with a right
        candidate), fractions in [0, 1], NaN without links; the first three
        with `_pointing_` for `_` after the first word, where a candidate
        counts whose centre lies in the box, on its edge too;
        `correspondence_exact_spans`, the fraction of links with a noun phrase
        of the same words; `correspondence_links` and `correspondence_lost`,
        how many there are, and how many had no noun phrase.

    Source: Niu et al. 2017, Sec. 5.3.2, where ten people judged 2000 pairs.
        Departures: known boxes judge. The centre is that of the "pointing
        game" of Zhang et al. 2016, which asks whether a thing was found, not
        how far it reaches.
    """
    count = len(links.phrases)
    names = ("accuracy", "chance", "whole_photo", "upper_bound")
    names += tuple(f"pointing_{name}" for name in names[:3])
    shares = {name: np.zeros(count) for name in names}
    shares["exact_spans"] = links.is_exact
    for image, rows in enumerate(rows_by(links.images)):
        if not len(rows):
            continue
        truth, found = links.boxes[rows], candidates(image)
        matches = boxes.iou(truth, found) >= SAME_THING
        chosen = choices[links.phrases[rows]].astype(np.int64)
        shares["upper_bound"][rows] = matches.any(axis=1)
        holds = _holds_centers(truth, found)
        for kind, right in (("", matches), ("pointing_", holds)):
            own = right[np.arange(len(rows)), chosen]
            shares[f"{kind}accuracy"][rows] = own
            shares[f"{kind}chance"][rows] = right.mean(axis=1)
            shares[f"{kind}whole_photo"][rows] = right[:, -1]
    found = {
        f"correspondence_{name}": float(np.mean(values)) if count else np.nan
        for name, values in shares.items()
    }
    return found | {
        "correspondence_links": float(count),
        "correspondence_lost": float(links.num_lost),
    }


def _holds_centers(truth, found):
    """Returns which boxes hold the centre of which others, bool `[n, m]`."""
    x, y = (found[:, :2] + found[:, 2:]).T / 2
    left, top, right, bottom = truth.T[..., None]
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
