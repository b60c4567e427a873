"""Choices among candidates, compared with their loops in tests/reference.py."""

import numpy as np
import pytest

from tbnets.evaluation import grounding
from tbnets.evaluation.boxes import CHOICES, Choice, answers
from tests import reference

# Two boxes that agree, one that cuts off their half, and one elsewhere.
BOXES = np.array(
    [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 5, 10], [20, 0, 30, 10]], float
)


def random_case(generator, count, levels):
    """Boxes of which some are equal and some have no area; few similarities."""
    low = generator.integers(0, 6, (count, 2))
    boxes = np.concatenate(
        [low, low + generator.integers(0, 6, (count, 2))], axis=1
    )
    similarities = generator.integers(-levels, levels + 1, (3, count)) / levels
    return similarities.astype(np.float32), boxes.astype(float)


@pytest.mark.parametrize("exponent", [0, 0.5, 2])
@pytest.mark.parametrize("temperature", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("count, levels", [(1, 9), (2, 1), (7, 1), (12, 900)])
def test_scores_and_boxes_of_choices_equal_the_loops(
    count, levels, temperature, exponent
):
    generator = np.random.default_rng(count)
    similarities, boxes = random_case(generator, count, levels)
    for name in ("expected_overlap", "mean_box"):
        scores, found = answers(
            similarities, boxes, Choice(name, temperature, exponent)
        )
        assert scores.dtype == np.float32 and found.shape == (3, count, 4)
        loop = getattr(reference, name)
        expected = [
            [loop(row, boxes, c, temperature, exponent) for c in range(count)]
            for row in similarities.tolist()
        ]
        is_mean = name == "mean_box"
        value, kept = (found, scores) if is_mean else (scores, found)
        np.testing.assert_allclose(value, expected, atol=1e-6)
        wanted = similarities if is_mean else np.broadcast_to(boxes, kept.shape)
        np.testing.assert_array_equal(kept, wanted)


@pytest.mark.parametrize("name", CHOICES)
def test_no_candidate_and_no_phrase(name):
    for shape in ((2, 0), (0, 4), (0, 0)):
        scores, found = answers(
            np.zeros(shape), BOXES[: shape[1]], Choice(name)
        )
        assert scores.shape == shape and found.shape == (*shape, 4)


def test_localization_measures_the_chosen_boxes():
    proposals, owners = [np.zeros((0, 4)), BOXES], [1, 1, 0]
    truth = np.array([[0, 0, 10, 10], [20, 0, 30, 10], [0, 0, 1, 1.0]])
    scores = np.float32([[0.3, 0.3, 0.6, 0.8], [0.3, 0.3, 0.6, 0.1], [0] * 4])

    def ranks(*choice):
        found = grounding.localize(
            scores, proposals, truth, owners, Choice(*choice)
        )
        return [found.ranks.tolist(), found.suppressed_ranks.tolist()]

    missed = grounding.MISSED
    # The third (IoU 0.5) is right, behind what lies elsewhere: rank 2.
    assert ranks("most_similar") == [[2, 4, missed], [2, 3, missed]]
    # Each weighs about a fourth: three agree, one does not.
    assert ranks("expected_overlap", 5.0)[0] == [1, 4, missed]
    # The mean around the third is [0, 0, 7.5, 10]; of the last it is itself.
    assert ranks("mean_box", 5.0)[0] == [2, 4, missed]
    proposals[1] = BOXES * [1, 1, 0.9, 1]  # 9, 9 and 4.5 wide.
    scores[0, 3] = 0
    # The third overlaps the truth by 0.45, the mean around it by 0.675.
    assert ranks("most_similar")[0][0] == 2
    assert ranks("mean_box", 5.0)[0][0] == 1
