"""Chooses regions for phrases and evaluates them, using only NumPy."""

from typing import NamedTuple

import numpy as np

from tbnets.checks import SAME_THING, checked_number, rows_by
from tbnets.errors import InputError, check_choice, check_kind
from tbnets.evaluation import boxes as box_math
from tbnets.evaluation import checks

# Often many candidates show one object, and the most similar candidate contains
# only its most typical part. A consensus of candidates can be better.

CHOICES = ("most_similar", "expected_overlap", "mean_box")
CANDIDATE_CHOICES = MOST_SIMILAR, EXPECTED_OVERLAP = CHOICES[:2]
"""Choices whose box is always a candidate."""
CHOOSING = ("choice", "choice_temperature", "choice_area_exponent")
"""Names of the arguments and flags that form a `Choice`."""
TEMPERATURE = 0.1


class Choice(NamedTuple):
    """The rule that chooses a phrase's box from a photo's candidates.

    - `most_similar`: candidates are ranked by their similarity s.
    - `expected_overlap`: candidates c are ranked by their expected overlap with
      the object, which is candidate j with probability softmax(s /
      temperature)_j. The chosen candidate is::

          argmax_c  sum_j softmax(s / temperature)_j IoU(c, j)

    - `mean_box`: candidates are ranked by their similarity. The box returned
      for a candidate is the mean, weighted with softmax(s / temperature), of
      the boxes that overlap it with an IoU of 0.5 or more.

    With an area exponent e, the softmax terms are multiplied by the e-th power
    of the candidates' areas before normalisation. This helps because named
    objects are larger than most proposed boxes.

    Attributes:
        name: a name in `CHOICES`.
        temperature: positive, in units of the similarities (for combined
            models, of the negative distances).
        area_exponent: at least 0; 0 ignores areas.

    Source: expected overlap is a minimum Bayes risk decision (Kumar and Byrne
    2004) for the loss 1 - IoU; means of boxes are the box voting of Gidaris and
    Komodakis 2015, weighted by softmax. Departure: Wang et al. 2018 and Niu et
    al. 2017 use the most similar candidate.
    """

    name: str = MOST_SIMILAR
    temperature: float = TEMPERATURE
    area_exponent: float = 0.0


DEFAULT = Choice()


def checked_choice(
    choice=MOST_SIMILAR,
    choice_temperature=TEMPERATURE,
    choice_area_exponent=0.0,
    known=CHOICES,
) -> Choice:
    """Checks the arguments in `CHOOSING`, and returns their `Choice`.

    `known` contains the names in `CHOICES` that the caller supports.
    """
    check_choice("choice", choice, CHOICES)
    if choice not in known:
        raise InputError(
            "choice",
            f"be {' or '.join(known)} if the box must be a candidate",
            f"choice={choice}",
            "Change `choice`.",
        )
    return Choice(
        choice,
        checked_number("choice_temperature", choice_temperature, 0, above=True),
        checked_number("choice_area_exponent", choice_area_exponent, 0),
    )


def answers(similarities, boxes, choice) -> tuple[np.ndarray, np.ndarray]:
    """Returns the candidates' ranking scores and boxes for each phrase.

    `similarities`, `[p, k]`, contains the finite similarities between p phrases
    and the k candidates of a photo.

    Returns:
        (scores, boxes): the ranking scores, float32 `[p, k]`, larger is better;
        and the box to return for each candidate, float64 `[p, k, 4]`.
    """
    check_kind("choice", choice, Choice, "Pass for example Choice('mean_box').")
    similarities = checks.finite_scores(similarities)
    boxes = box_math.check_boxes(boxes)
    same = np.broadcast_to(boxes, (*similarities.shape, 4))
    if choice.name == MOST_SIMILAR or not similarities.size:
        return similarities, same
    overlaps = box_math.iou(boxes, boxes)
    np.fill_diagonal(overlaps, 1)  # The IoU of an empty box is 0.
    values = similarities.astype(np.float64)
    areas = box_math.areas(boxes)
    if choice.name == EXPECTED_OVERLAP:
        weights = _weights(values, areas, choice)
        return (weights @ overlaps).astype(np.float32), same
    near = overlaps >= SAME_THING
    means = np.empty(same.shape)
    for mean, scores in zip(means, values):  # Avoids an array p x k x k.
        around = np.where(near, scores, -np.inf)
        np.matmul(_weights(around, areas, choice), boxes, out=mean)
    return similarities, means


def _weights(values, areas, choice):
    """Returns the weights of candidates, which sum to 1 along the last axis."""
    with np.errstate(over="ignore"):  # -inf gives weight 0.
        logits = _below_largest(values) / choice.temperature
    if choice.area_exponent:
        with np.errstate(divide="ignore"):  # Area 0 gives weight 0.
            sized = logits + choice.area_exponent * np.log(areas)
        # If all weights would be 0, areas are ignored.
        is_some = np.isfinite(sized).any(axis=-1, keepdims=True)
        logits = _below_largest(np.where(is_some, sized, logits))
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


def _below_largest(values):
    return values - values.max(axis=-1, keepdims=True)


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
