import numpy as np
import pytest

from tbnets.evaluation import retrieval, score_tiles
from tests.evaluation import oracle


def of_matrix(matrix):
    return score_tiles.matrix_scores(np.asarray(matrix, np.float32))


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (64, 1024)])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_equal_the_definition(seed, tile, monkeypatch):
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


def test_distances_within_rounding_are_zero():
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


def random_pairs(seed, levels):
    generator = np.random.default_rng(seed)
    num_queries, num_candidates, dim = generator.integers(1, 20, 3)
    queries = generator.standard_normal((num_queries, dim))
    candidates = generator.standard_normal((num_candidates, dim))
    pairs = generator.integers(0, [num_queries, num_candidates], (12, 2))
    queries, candidates = (
        (np.rint(x * levels) / levels).astype(np.float32)
        for x in (queries, candidates)
    )
    return queries, candidates, pairs


@pytest.mark.parametrize("levels", [1, 2, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_ranks_of_pairs_equal_the_definition(seed, levels, monkeypatch):
    queries, candidates, pairs = random_pairs(seed, levels)
    table = [[oracle.score(x, y) for y in candidates] for x in queries]
    table = np.array(table)
    known = {tuple(pair) for pair in pairs.tolist()}
    turned = {pair[::-1] for pair in known}
    wanted = [oracle.pair_ranks(table, known)]
    wanted.append(oracle.pair_ranks(table.T, turned))
    rows = score_tiles.pairs_of("pairs", pairs, table.shape)
    exact = score_tiles.exact_scores(queries, candidates)
    for tile in ((1, 1), (2, 3), (64, 1024)):
        monkeypatch.setattr(score_tiles, "TILE_IMAGES", tile[0])
        monkeypatch.setattr(score_tiles, "TILE_TEXTS", tile[1])
        for scores in (exact, score_tiles.matrix_scores(table, tolerance=0)):
            found = score_tiles.pair_ranks(scores, *rows)
            assert [
                list(zip(*(x.tolist() for x in y))) for y in found
            ] == wanted
            ranks, precise = score_tiles.precise_ranks(scores, *rows)
            assert list(zip(*(x.tolist() for x in ranks))) == wanted[0]
            precise = np.stack([*precise.values()], axis=1)
            expected = oracle.precisions(table, known)
            np.testing.assert_allclose(precise, expected, rtol=1e-12)
