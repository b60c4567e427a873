"""Chooses a region among the candidates for a phrase, using only NumPy."""

from typing import NamedTuple

import numpy as np

from tbnets.checks import SAME_THING, checked_number
from tbnets.errors import InputError, check_choice
from tbnets.evaluation import arguments
from tbnets.evaluation import boxes as box_math

# Often many candidates show one object, and the most similar candidate contains
# only its most typical part. A consensus of candidates can be better.

CHOICES = ("most_similar", "expected_overlap", "mean_box")
CANDIDATE_CHOICES = MOST_SIMILAR, EXPECTED_OVERLAP = CHOICES[:2]
"""Choices whose box is always a candidate."""
CHOICE_ARGUMENTS = ("choice", "choice_temperature", "choice_area_exponent")
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
    """Checks the arguments in `CHOICE_ARGUMENTS`, and returns their `Choice`.

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
    similarities = arguments.finite_scores(similarities)
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
