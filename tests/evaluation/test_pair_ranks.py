"""Tests of ranks among many positives on both sides."""

import numpy as np
import pytest

from tbnets.evaluation import ranking
from tests.evaluation import oracle


def random_case(seed, levels):
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
def test_ranks_are_those_of_the_definition(seed, levels, monkeypatch):
    queries, candidates, pairs = random_case(seed, levels)
    table = np.array(
        [[oracle.score(x, y) for y in candidates] for x in queries]
    )
    scores = ranking.EmbeddingScores(queries, candidates)
    known = {tuple(pair) for pair in pairs.tolist()}
    turned = {pair[::-1] for pair in known}
    for at_once in (1, 50, 1 << 20):
        monkeypatch.setattr(ranking, "SCORES_AT_ONCE", at_once)
        for values in (scores, table):
            found = ranking.pair_ranks(values, pairs)
            expected = oracle.pair_ranks(table, known)
            assert list(zip(*(x.tolist() for x in found))) == expected
            ranks, precise = ranking.precise_ranks(values, pairs)
            assert list(zip(*(x.tolist() for x in ranks))) == expected
            precise = np.stack([*precise.values()], axis=1)
            wanted = oracle.precisions(table, known)
            np.testing.assert_allclose(precise, wanted, rtol=1e-12)
            found = ranking.pair_ranks(values.T, pairs[:, ::-1])
            expected = oracle.pair_ranks(table.T, turned)
            assert list(zip(*(x.tolist() for x in found))) == expected


def test_region_phrase_ranking_literal():
    # Region 0 has phrases 0 and 2, region 1 has phrase 2, region 2 none.
    scores = np.array([[0.1, 0.9, 0.4], [0.6, 0.3, 0.5], [0.2, 0.0, 0.7]])
    metrics = ranking.evaluate_region_phrase_ranking(
        scores, [[0, 0], [1, 2], [0, 2]]
    )
    # Region 0: .4 after .9: 2. Region 1: .5 after .6: 2. Phrase 0: .1 after
    # .6 and .2: 3. Phrase 2: .5 after .7: 2; region 0 is no rival.
    # The median of ranks 3 and 2 is floor((2 + 1) / 2) + 1.
    names = ("num_queries", "recall_at_1", "recall_at_5", "recall_at_10")
    names += ("median_rank", "mean_rank", "tie_rate")
    rows = {
        "true_region_to_phrase": (2, 0, 1, 1, 2, 2, 0),
        "phrase_to_true_region": (2, 0, 1, 1, 2, 2.5, 0),
    }
    assert metrics == oracle.named(rows, names)


def test_a_square_table_of_pairs_and_no_pairs():
    evaluate = ranking.evaluate_region_phrase_ranking
    scores = np.array([[3.0, 2, 1], [3, 1, 2], [1, 2, 3]])
    table = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1]], bool)
    assert evaluate(scores, table) == evaluate(scores, np.argwhere(table))
    names = "true_region_to_phrase", "phrase_to_true_region"
    none = {f"{name}/num_queries": 0 for name in names}
    assert evaluate(np.zeros((2, 3)), []) == none
    ranks, precise = ranking.precise_ranks(scores, np.zeros((0, 2), int))
    assert not len(ranks.ranks) and precise == {}
