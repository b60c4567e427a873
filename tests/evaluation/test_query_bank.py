"""Tests of scores that a bank of queries brings to one level."""

import numpy as np
import pytest

from tbnets.evaluation import retrieval, score_tiles
from tests import reference
from tests.evaluation import oracle
from tests.evaluation.test_score_tiles import of_matrix

IMAGES, TEXTS = 5, 7
ROWS = [4, 0, 1, 1, 3, 0, 4]


def made(seed=0, bank=(6, 9)):
    rng = np.random.default_rng(seed)
    shape = IMAGES + bank[0], TEXTS + bank[1]
    return rng.normal(size=shape).astype("float32")


def by_loops(matrix, temperature):
    """Scores by which images rank texts, and texts rank images."""
    own = matrix[:IMAGES, :TEXTS].astype("float64")
    unit = temperature * score_tiles.spread(of_matrix(own))
    for_images, for_texts = own.copy(), own.copy()
    for text in range(TEXTS):
        bank = matrix[IMAGES:, text]
        for_images[:, text] -= reference.bank_level(bank, unit)
    for image in range(IMAGES):
        bank = matrix[image, TEXTS:]
        for_texts[image] -= reference.bank_level(bank, unit)
    return for_images, for_texts


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (64, 1024)])
@pytest.mark.parametrize("temperature", [0.05, 0.4, 3.0])
def test_normalized_scores_equal_the_loops(temperature, tile, monkeypatch):
    monkeypatch.setattr(score_tiles, "TILE_IMAGES", tile[0])
    monkeypatch.setattr(score_tiles, "TILE_TEXTS", tile[1])
    matrix = made()
    for_images, for_texts = by_loops(matrix, temperature)
    scores = score_tiles.normalize(
        of_matrix(matrix), IMAGES, TEXTS, temperature
    )
    images, texts = np.arange(IMAGES), np.arange(TEXTS)
    found = scores.tile(images, texts)
    ranks = oracle.as_lists(score_tiles.score_ranks(scores, ROWS))
    for direction, one, wanted in (
        ("image_to_text", scores.of_texts(found, texts), for_images),
        ("text_to_image", scores.of_images(found.T, images).T, for_texts),
    ):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)
        assert ranks[direction] == oracle.matrix_ranks(wanted, ROWS)[direction]


def test_folds_keep_the_levels_of_their_rows():
    scores = score_tiles.normalize(of_matrix(made()), IMAGES, TEXTS)
    rows = np.array([3, 0]), np.array([6, 1, 2])
    some = scores.subset(*rows)
    np.testing.assert_array_equal(
        some.image_levels, scores.image_levels[[3, 0]]
    )
    np.testing.assert_array_equal(some.text_levels, scores.text_levels[rows[1]])
    whole = retrieval.evaluate_scores_protocol("full", scores, ROWS)
    assert whole == score_tiles.evaluate_scores(scores, ROWS)
