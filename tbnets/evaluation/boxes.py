"""Compares and suppresses boxes, and chooses boxes, using only NumPy.

A box is `x_min, y_min, x_max, y_max` in pixels, x to the right and y down.
Edges are continuous coordinates: the first pixel of a row extends from 0 to 1,
and the whole photo is `0, 0, width, height`.
"""

from typing import NamedTuple

import numpy as np

from tbnets.checks import (
    SAME_THING,
    checked_number,
    checked_rows,
    finite_scores,
    rows_by,
)
from tbnets.errors import InputError, check_choice


def check_boxes(boxes, name="boxes") -> np.ndarray:
    """Checks boxes `[n, 4]`, and returns them as float64; n may be 0."""
    array = np.asarray(boxes)
    if array.size == 0 and array.ndim == 1:
        array = array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4 or array.dtype.kind not in "iuf":
        raise InputError(
            name,
            "be numbers [n, 4]: x_min, y_min, x_max, y_max",
            f"{array.dtype}{array.shape}",
        )
    array = array.astype(np.float64)
    good = np.isfinite(array).all(axis=1)
    good &= (array[:, :2] <= array[:, 2:]).all(axis=1)
    for row in np.flatnonzero(~good):
        raise InputError(
            name,
            "be finite, with x_min <= x_max and y_min <= y_max",
            f"{name}[{row}]={array[row].tolist()}",
        )
    return array


def areas(boxes) -> np.ndarray:
    """Returns the areas of boxes `[n, 4]` in square pixels, float64 `[n]`."""
    boxes = np.asarray(boxes, np.float64)
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def iou(boxes, others) -> np.ndarray:
    """Computes the intersection over union of every pair of boxes.

    The boxes are `[n, 4]` and `[m, 4]`. Returns float64 `[n, m]` in [0, 1].

    Example:
        >>> iou([[0, 0, 2, 2]], [[1, 0, 3, 2]])  # 2 / (4 + 4 - 2)
        array([[0.33333333]])
    """
    return _iou(check_boxes(boxes), check_boxes(others, "others"))


def _iou(boxes, others):
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=2)
    union = areas(boxes)[:, None] + areas(others)[None, :] - common
    return np.divide(common, union, out=np.zeros_like(union), where=union > 0)


def non_maximum_suppression(
    boxes, scores, iou_threshold, limit=None
) -> np.ndarray:
    """Keeps the best box, drops boxes that overlap it, and repeats.

    Better boxes have larger `scores`, `[n]`; among tied boxes, the first is
    better. Boxes that overlap a kept box with an IoU above `iou_threshold` are
    dropped. At most `limit` boxes are kept. Returns the rows of the kept boxes,
    int64 `[k]`, best first.
    """
    boxes = check_boxes(boxes)
    scores = np.asarray(scores, np.float64)
    if scores.shape != (len(boxes),) or not np.isfinite(scores).all():
        expected = f"be {len(boxes)} finite numbers, one per box"
        raise InputError("scores", expected, f"shape {scores.shape}")
    candidates = np.argsort(-scores, kind="stable")
    kept_rows = []
    while candidates.size and (limit is None or len(kept_rows) < limit):
        best, candidates = candidates[0], candidates[1:]
        kept_rows.append(best)
        overlaps = _iou(boxes[best : best + 1], boxes[candidates])[0]
        candidates = candidates[overlaps <= iou_threshold]
    return np.array(kept_rows, np.int64)


def clip_boxes(boxes, width, height) -> np.ndarray:
    """Clips boxes `[n, 4]` to the borders of a photo, given its size in pixels.

    A box outside the photo is clipped to area 0.
    """
    boxes = check_boxes(boxes)
    return np.clip(boxes, 0, [width, height, width, height])


def overlaps_by_photo(truth, owners, proposals):
    """Computes the overlaps of boxes with the proposals of their photo.

    `truth`, `[n, 4]`, contains the boxes, `owners`, int `[n]`, the rows of
    their photos, and `proposals` an array `[k, 4]` per photo. Yields (photo,
    rows, overlaps): the row of a photo, the ascending rows of its boxes, int64
    `[p]`, and their IoU with its proposals, float64 `[p, k]`. Photos without
    boxes or proposals are skipped.
    """
    truth = check_boxes(truth, "truth")
    owners = checked_rows("owners", owners, len(proposals), len(truth))
    for photo, rows in enumerate(rows_by(owners)):
        if not len(rows):
            continue
        boxes = check_boxes(proposals[photo], f"proposals[{photo}]")
        if len(boxes):
            yield photo, rows, iou(truth[rows], boxes)


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
    check_choice("choice", choice, known)
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
    similarities = finite_scores(similarities)
    boxes = check_boxes(boxes)
    same = np.broadcast_to(boxes, (*similarities.shape, 4))
    if choice.name == MOST_SIMILAR or not similarities.size:
        return similarities, same
    overlaps = iou(boxes, boxes)
    np.fill_diagonal(overlaps, 1)  # The IoU of an empty box is 0.
    values = similarities.astype(np.float64)
    sizes = areas(boxes)
    if choice.name == EXPECTED_OVERLAP:
        weights = _weights(values, sizes, choice)
        return (weights @ overlaps).astype(np.float32), same
    near = overlaps >= SAME_THING
    means = np.empty(same.shape)
    for mean, scores in zip(means, values):  # Avoids an array p x k x k.
        around = np.where(near, scores, -np.inf)
        np.matmul(_weights(around, sizes, choice), boxes, out=mean)
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
