"""Tests of overlap, suppression and recall of boxes."""

import numpy as np
import pytest

from tbnets.evaluation import boxes as box_math
from tests import reference
from tests.evaluation import oracle


def test_iou_equals_the_loop():
    generator = np.random.default_rng(0)
    boxes, others = (oracle.random_boxes(generator, n, 20) for n in (30, 25))
    expected = [
        [reference.overlap(one, other) for other in others] for one in boxes
    ]
    found = box_math.iou(boxes, others)
    assert box_math.iou([], others).shape == (0, 25)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(found, box_math.iou(others, boxes).T)


def test_iou_of_float32_boxes_is_exact_at_the_threshold():
    # Two cells of four: a ratio that must not fall below one half.
    boxes = np.array([[0, 0, 3, 1], [1, 0, 4, 1]], np.float32)
    found = box_math.iou(boxes[:1], boxes[1:])
    assert found[0, 0] == 0.5 and found.dtype == np.float64


@pytest.mark.parametrize("limit", [None, 5, 0])
def test_suppression_equals_the_loop(limit):
    boxes = oracle.random_boxes(np.random.default_rng(2), 60)
    scores = np.random.default_rng(3).integers(0, 5, 60)  # Many ties.
    for threshold in (0, 0.3, 0.5, 1):
        found = box_math.non_maximum_suppression(
            boxes, scores, threshold, limit
        )
        order = np.argsort(-scores, kind="stable")
        kept = oracle.suppressed(order, boxes, threshold)
        assert found.tolist() == kept[:limit]


def test_boxes_are_clipped_and_measured():
    boxes = [[-3, 2, 5, 99], [20, 1, 30, 2], [1, 1, 2, 2]]
    found = box_math.clip_boxes(boxes, width=10, height=8)
    assert found.tolist() == [[0, 2, 5, 8], [10, 1, 10, 2], [1, 1, 2, 2]]
    assert box_math.areas([[1, 2, 4, 4.5], [3, 3, 3, 9]]).tolist() == [7.5, 0]
