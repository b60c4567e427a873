"""Which box answers a phrase: the most similar, or what many agree on.

Many candidates of a photo show one thing, and the most similar of them may be
the one that cuts off all but its most telling part.
"""

from typing import NamedTuple

import numpy as np

from tbnets import boxes as box_math
from tbnets.checked_numbers import checked_number
from tbnets.errors import check_choice
from tbnets.evaluation import checks
from tbnets.identity import SAME_THING

CHOICES = ("most_similar", "expected_overlap", "mean_box")
MOST_SIMILAR, EXPECTED_OVERLAP, MEAN_BOX = CHOICES
CANDIDATE_CHOICES = CHOICES[:2]
"""Those that choose one of the candidates and leave its box as it is."""
TEMPERATURE = 0.1


class Choice(NamedTuple):
    """How similarities of a photo's candidates become answers.

    - `most_similar`: the candidates rank by their similarity s, as in the
      papers;
    - `expected_overlap`: by what they overlap on average if the thing is in
      candidate j with the probability softmax(s / temperature)_j::

          argmax_c  sum_j softmax(s / temperature)_j IoU(c, j)

    - `mean_box`: by their similarity, but the answer is the mean of all boxes
      that overlap the candidate by an IoU of 0.5 or more, each weighed by
      softmax(s / temperature) over these. It need be no candidate.

    Attributes:
        name: one of `CHOICES`.
        temperature: above 0, in the unit of the similarities; small ones
            trust the most similar candidates alone.

    Source: expected overlap is a decision of minimum Bayes risk, as Kumar and
        Byrne 2004 choose translations, for the loss 1 - IoU; means of boxes
        are the box voting of Gidaris and Komodakis 2015, weighed by softmax.
        Departure from Wang et al. 2018 and Niu et al. 2017: they take the
        most similar.
    """

    name: str = MOST_SIMILAR
    temperature: float = TEMPERATURE


DEFAULT = Choice()


def checked_choice(name, temperature, known=CHOICES) -> Choice:
    """Returns the `Choice` of two arguments of a user.

    Args:
        name: one of `known`.
        temperature: see `Choice`.
        known: those of `CHOICES` that can be made.

    Raises:
        ValueError: the choice is unknown, or the temperature not above 0.
    """
    check_choice("choice", name, known)
    return Choice(
        name, checked_number("choice_temperature", temperature, 0, above=True)
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
    similarities = checks.finite_scores(similarities)
    boxes = box_math.check_boxes(boxes)
    same = np.broadcast_to(boxes, (*similarities.shape, 4))
    if choice.name == MOST_SIMILAR or not similarities.size:
        return similarities, same
    overlaps = box_math.iou(boxes, boxes)
    values = similarities.astype(np.float64)
    if choice.name == EXPECTED_OVERLAP:
        weights = _softmax(values, choice.temperature)
        return (weights @ overlaps).astype(np.float32), same
    near = overlaps >= SAME_THING
    np.fill_diagonal(near, True)  # Without an area, IoU with itself is 0.
    means = np.empty(same.shape)
    for mean, own in zip(means, values):  # Never p x k x k at once.
        around = np.where(near, own, -np.inf)
        np.matmul(_softmax(around, choice.temperature), boxes, out=mean)
    return similarities, means


def _softmax(values, temperature):
    """Returns softmax along the last axis, of differences to the largest."""
    with np.errstate(over="ignore"):  # A minute temperature: weight 0.
        logits = (values - values.max(axis=-1, keepdims=True)) / temperature
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)
