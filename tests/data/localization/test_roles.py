"""Tests of positives and negatives against their slow definition."""

import numpy as np
import pytest

from tbnets.data.phrase_examples import (
    proposal_roles,
    with_common_negatives,
)
from tests import reference
from tests.evaluation import oracle


def columns(roles, role):
    return [np.flatnonzero(row == role).tolist() for row in roles]


@pytest.mark.parametrize("positives", ["augmented", "single"])
@pytest.mark.parametrize(
    "bounds", [(0.7, 0.3, 0.5), (0.5, 0.5, 0.0), (1.0, 0.0, 1.0)]
)
@pytest.mark.parametrize("seed", range(5))
def test_roles_equal_the_definition(positives, bounds, seed):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 30, 5)
    proposals = [oracle.random_boxes(generator, count) for count in counts]
    truth = oracle.random_boxes(generator, 20)
    owners = generator.integers(0, 5, 20)
    found = proposal_roles(
        truth,
        owners,
        proposals,
        positives=positives,
        positive_iou=bounds[0],
        negative_iou=bounds[1],
        best_iou=bounds[2],
    )
    assert found.shape == (20, max(counts))
    pairs = zip(columns(found, 1), columns(found, -1))
    for row, pair in enumerate(pairs):
        assert pair == reference.proposal_roles(
            truth[row], proposals[owners[row]].tolist(), positives, bounds
        )


@pytest.mark.parametrize("seed", range(5))
def test_equal_texts_of_a_photo_share_their_negatives(seed):
    generator = np.random.default_rng(seed)
    proposals = [oracle.random_boxes(generator, count) for count in (7, 0, 12)]
    truth = oracle.random_boxes(generator, 25)
    photos = generator.integers(0, 3, 25)
    texts = generator.integers(0, 4, 25)
    found = proposal_roles(truth, photos, proposals)
    _, groups = np.unique(
        np.stack([photos, texts]), axis=1, return_inverse=True
    )
    shared = with_common_negatives(found, groups.ravel())
    expected = reference.roles_of_equal_texts(found, photos, texts)
    assert shared.tolist() == expected
    assert (shared != found).any()
    # A positive stays one, and nothing becomes one.
    assert columns(shared, 1) == columns(found, 1)
