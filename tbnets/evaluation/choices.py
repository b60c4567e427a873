"""Which box answers a phrase: the most similar, or what many agree on.

Many candidates of a photo show one thing, and the most similar of them may be
the one that cuts off all but its most telling part.
"""

from typing import NamedTuple

import numpy as np

from tbnets.checked_numbers import checked_number
from tbnets.errors import InputError, check_choice, check_kind
from tbnets.evaluation import boxes as box_math
from tbnets.evaluation import checks
from tbnets.identity import SAME_THING

CHOICES = ("most_similar", "expected_overlap", "mean_box")
MOST_SIMILAR, EXPECTED_OVERLAP, MEAN_BOX = CHOICES
CANDIDATE_CHOICES = CHOICES[:2]
"""Those that choose one of the candidates and leave its box as it is."""
CHOOSING = ("choice", "choice_temperature", "choice_area_exponent")
"""Arguments of users, and flags, that a `Choice` is made of."""
TEMPERATURE = 0.1


class Choice(NamedTuple):
    """How similarities of a photo's candidates become answers.

    - `most_similar`: the candidates rank by their similarity s, as in the
      papers;
    - `expected_overlap`: by what they overlap on average if the thing is in
      candidate j with the probability softmax(s / temperature)_j::

          argmax_c  sum_j softmax(s / temperature)_j IoU(c, j)

      where a box overlaps itself by 1, whatever its area;

    - `mean_box`: by their similarity, but the answer is the mean of all boxes
      that overlap the candidate by an IoU of 0.5 or more, each weighed by
      softmax(s / temperature) over these. It need be no candidate.

    With an area exponent e each weight is multiplied by the e-th power of the
    candidate's area, and all are divided by their sum: what people name is
    larger than most boxes that something proposes.

    Attributes:
        name: one of `CHOICES`.
        temperature: above 0, in the unit of the similarities; small ones
            trust the most similar candidates alone. Of models taken together
            (`LocalizationScores.combine`) that of minus their distances.
        area_exponent: at least 0; at 0 areas do not count.

    Source: expected overlap is a decision of minimum Bayes risk, as Kumar and
        Byrne 2004 choose translations, for the loss 1 - IoU; means of boxes
        are the box voting of Gidaris and Komodakis 2015, weighed by softmax.
        Departure from Wang et al. 2018 and Niu et al. 2017: they take the
        most similar, of which no area matters.
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
    """Returns the `Choice` of three arguments of a user, `CHOOSING`.

    Args:
        choice: one of `known`.
        choice_temperature: see `Choice`.
        choice_area_exponent: see `Choice`.
        known: those of `CHOICES` that can be made.

    Raises:
        ValueError: the choice is unknown, the temperature not above 0, or the
            exponent below 0.
    """
    check_choice("choice", choice, CHOICES)
    if choice not in known:
        raise InputError(
            f"`choice` must be {' or '.join(known)} where phrases are given "
            "one of their photo's candidates. Received: choice="
            f"{choice}, whose box need be none of them. Choose another."
        )
    return Choice(
        choice,
        checked_number("choice_temperature", choice_temperature, 0, above=True),
        checked_number("choice_area_exponent", choice_area_exponent, 0),
    )


def answers(similarities, boxes, choice) -> tuple[np.ndarray, np.ndarray]:
    """Returns by what the candidates of a photo rank, and as which boxes.

    Args:
        similarities: finite `[p, k]`, of p phrases and k candidates.
        boxes: `[k, 4]`; k may be 0.
        choice: `Choice`.

    Returns:
        float32 `[p, k]`, larger is better, and float64 `[p, k, 4]`, the box
        that is answered where a candidate is chosen.

    Raises:
        ValueError: a similarity is not finite, or a box is none.
    """
    check_kind("choice", choice, Choice, "Give `Choice('mean_box')`.")
    similarities = checks.finite_scores(similarities)
    boxes = box_math.check_boxes(boxes)
    same = np.broadcast_to(boxes, (*similarities.shape, 4))
    if choice.name == MOST_SIMILAR or not similarities.size:
        return similarities, same
    overlaps = box_math.iou(boxes, boxes)
    np.fill_diagonal(overlaps, 1)  # Of boxes without an area too.
    values = similarities.astype(np.float64)
    areas = box_math.areas(boxes)
    if choice.name == EXPECTED_OVERLAP:
        weights = _weights(values, areas, choice)
        return (weights @ overlaps).astype(np.float32), same
    near = overlaps >= SAME_THING
    means = np.empty(same.shape)
    for mean, own in zip(means, values):  # Never p x k x k at once.
        around = np.where(near, own, -np.inf)
        np.matmul(_weights(around, areas, choice), boxes, out=mean)
    return similarities, means


def _weights(values, areas, choice):
    """Returns what candidates weigh, by the last axis, sums of 1.

    Args:
        values: `[..., k]`, similarities; -infinity for what weighs nothing.
        areas: `[k]`.
        choice: `Choice`.
    """
    with np.errstate(over="ignore"):  # A minute temperature: weight 0.
        logits = _below_largest(values) / choice.temperature
    if choice.area_exponent:
        with np.errstate(divide="ignore"):  # No area: weight 0.
            sized = logits + choice.area_exponent * np.log(areas)
        # Where nothing would weigh anything, areas do not count.
        is_some = np.isfinite(sized).any(axis=-1, keepdims=True)
        logits = _below_largest(np.where(is_some, sized, logits))
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


def _below_largest(values):
    """Returns the differences to the largest along the last axis."""
    return values - values.max(axis=-1, keepdims=True)
