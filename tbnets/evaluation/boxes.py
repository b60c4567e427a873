"""Computes areas, overlaps and suppression of boxes, using only NumPy.

A box is `x_min, y_min, x_max, y_max` in pixels, x to the right and y down.
Edges are continuous coordinates: the first pixel of a row extends from 0 to 1,
and the whole photo is `0, 0, width, height`.
"""

import numpy as np

from tbnets.checks import (
    checked_array,
    checked_rows,
    rows_by,
)
from tbnets.errors import InputError


def check_boxes(boxes, name="boxes") -> np.ndarray:
    """Checks boxes `[n, 4]`, and returns them as float64; n may be 0."""
    array = checked_array(name, boxes)
    if array.size == 0 and array.ndim == 1:
        array = array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4 or array.dtype.kind not in "iuf":
        raise InputError(
            name,
            "be numbers [n, 4]: x_min, y_min, x_max, y_max",
            f"{name} of shape {array.shape} and dtype {array.dtype}",
            "Pass one row per box.",
        )
    array = array.astype(np.float64)
    good = np.isfinite(array).all(axis=1)
    good &= (array[:, :2] <= array[:, 2:]).all(axis=1)
    for row in np.flatnonzero(~good):
        raise InputError(
            name,
            "be finite, with x_min <= x_max and y_min <= y_max",
            f"{name}[{row}]={array[row].tolist()}",
            "Pass corners, not width and height.",
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
        raise InputError(
            "scores",
            f"be {len(boxes)} finite numbers, one per box",
            f"scores of shape {scores.shape}",
            "Pass a larger number for a better box.",
        )
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
