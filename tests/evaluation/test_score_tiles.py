import numpy as np
import pytest

from tbnets.evaluation import retrieval, score_tiles
from tests.evaluation import oracle


def of_matrix(matrix):
    matrix = np.asarray(matrix, np.float32)
    return score_tiles.PairScores(
        *matrix.shape,
        lambda images, texts: matrix[np.ix_(images, texts)],
        lambda images, texts: matrix[images, texts],
    )


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (64, 1024)])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_those_of_the_definition(seed, tile, monkeypatch):
    monkeypatch.setattr(score_tiles, "TILE_IMAGES", tile[0])
    monkeypatch.setattr(score_tiles, "TILE_TEXTS", tile[1])
    rng = np.random.default_rng(seed)
    num_images, num_captions = rng.integers(1, 9, 2)
    rows = rng.integers(0, num_images, num_captions)
    # Whole numbers: some tie, the others lie far apart.
    matrix = rng.integers(-3, 4, (num_images, num_captions)).astype("float32")
    for groups in (None, rng.integers(0, 4, num_images)):
        found = score_tiles.score_ranks(of_matrix(matrix), rows, groups)
        wanted = oracle.matrix_ranks(matrix, rows, groups)
        assert oracle.as_lists(found) == wanted


def test_scores_that_differ_by_rounding_tie():
    # Image 0's own caption has 1; captions 1 and 2 less by 1e-6, by 1e-3.
    matrix = [[1, 1 - 1e-6, 1 - 1e-3], [0, 2, 0], [0, 0, 2]]
    found = score_tiles.score_ranks(of_matrix(matrix), [0, 1, 2])
    assert oracle.as_lists(found)["image_to_text"] == [
        (0, 2, True),
        (1, 1, False),
        (2, 1, False),
    ]


def unit(rng, count):
    rows = rng.normal(size=(count, 5)).astype("float32")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_distances_rank_as_inner_products_do():
    rng = np.random.default_rng(0)
    images, texts = unit(rng, 7), unit(rng, 20)
    rows = rng.integers(0, 7, 20)
    scores = score_tiles.distance_scores(images, texts)
    # Distances of (3, 4) / 5 and (1, 0): sqrt(2 - 2 * 3 / 5).
    one = score_tiles.distance_scores(
        np.array([[0.6, 0.8]], "float32"), np.array([[1, 0]], "float32")
    )
    first = np.zeros(1, int)
    assert one.tile(first, first)[0, 0] == pytest.approx(-np.sqrt(0.8))
    assert one.pairs(first, first)[0] == pytest.approx(-np.sqrt(0.8))
    wanted = retrieval.evaluate_retrieval(
        images, texts, rows, text_to_text=False
    )
    assert score_tiles.evaluate_scores(scores, rows) == pytest.approx(wanted)


def test_a_collapsed_model_scores_nothing():
    """Distances that float32 cannot tell from 0 are 0, and tie."""
    angles = np.linspace(0, 8e-4, 300)
    rows = np.stack([np.cos(angles), np.sin(angles)], 1).astype("float32")
    scores = score_tiles.distance_scores(rows[:60], rows[60:])
    assert not scores.tile(np.arange(60), np.arange(240)).any()
    found = score_tiles.evaluate_scores(scores, np.arange(240) // 4)
    assert found["recall_sum"] == 0
    apart = np.array([[np.cos(2e-3), np.sin(2e-3)]], "float32")
    scores = score_tiles.distance_scores(rows[:1], apart)
    distance = -scores.tile(np.arange(1), np.arange(1))[0, 0]
    assert distance == pytest.approx(2e-3, rel=0.1)


def test_weighted_sum_of_two_models():
    one, other = np.array([[1.0, 2], [3, 4]]), np.array([[8.0, 6], [4, 2]])
    both = score_tiles.weighted_sum(
        of_matrix(one), of_matrix(other), 0.25, (1, 2)
    )
    # 0.75 * [1 2; 3 4] + 0.25 * [8 6; 4 2] / 2.
    wanted = [[1.75, 2.25], [2.75, 3.25]]
    rows = np.arange(2)
    np.testing.assert_allclose(both.tile(rows, rows), wanted)
    np.testing.assert_allclose(both.pairs(rows, rows), [1.75, 3.25])


def test_spread_is_that_of_all_pairs():
    matrix = np.random.default_rng(0).normal(scale=3, size=(40, 50))
    found = score_tiles.spread(of_matrix(matrix))
    assert found == pytest.approx(matrix.std(), rel=0.02)
