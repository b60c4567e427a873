import itertools
import tracemalloc
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tbnets.evaluation import exact_ranks, retrieval, score_tiles
from tbnets.evaluation.exact_ranks import Side
from tbnets.evaluation.ranks import Ranks
from tests.evaluation import oracle

# A limit too small for anything: tiles of 8 x 8.
SMALLEST = 1e-9


def unit(values):
    values = np.asarray(values, np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def random_case(seed, levels):
    """Embeddings rounded to `levels` per unit: few levels, many ties."""
    generator = np.random.default_rng(seed)
    num_images, num_captions = generator.integers(1, 25, 2)
    dim = generator.integers(1, 12)
    images = generator.standard_normal((num_images, dim))
    texts = generator.standard_normal((num_captions, dim))
    rows = generator.integers(0, num_images, num_captions)
    images, texts = (
        (np.rint(x * levels) / levels).astype(np.float32)
        for x in (images, texts)
    )
    return images, texts, rows


def collapsed(num_images, per_image, dim):
    row = unit(np.random.default_rng(dim).standard_normal((1, dim)))
    rows = np.repeat(np.arange(num_images), per_image)
    return (
        np.repeat(row, num_images, 0),
        np.repeat(row, len(rows), 0),
        rows,
    )


def test_metrics_computed_by_hand():
    images = np.array([[1, 0], [0, 1]], np.float32)
    texts = np.array([[0.6, 0.8], [0.8, 0.6], [0, 1]], np.float32)
    metrics = retrieval.evaluate_retrieval(
        images, texts, [0, 1, 0], recall_at=(1, 2)
    )
    # Scores: image 0 -> .6 .8 0; image 1 -> .8 .6 1.
    # Image 0: best positive .6, caption 1 has .8: rank 2.
    # Image 1: positive .6, captions 0 and 2 have .8 and 1: rank 3.
    # Captions: .6 < .8 -> 2; .6 < .8 -> 2; 0 < 1 -> 2.
    # Captions 0-1 .96, 0-2 .8, 1-2 .6: caption 0 ranks 2 above .8: 2;
    # caption 2 has .8 for caption 0 before .6: 1; caption 1 has no positive.
    # The median rank is floor(median of ranks - 1) + 1: of 1 and 2 it is
    # floor(1.5) + 1, of 1 and 0 floor(0.5) + 1.
    names = ("num_queries", "recall_at_1", "recall_at_2")
    names += ("median_rank", "mean_rank", "tie_rate")
    rows = {
        "image_to_text": (2, 0, 1 / 2, 2, 2.5, 0),
        "text_to_image": (3, 0, 1, 2, 2, 0),
        "text_to_text": (2, 1 / 2, 1, 1, 1.5, 0),
    }
    both = {"mean_recall": (0 + 1 / 2 + 0 + 1) / 4, "recall_sum": 150}
    assert metrics == pytest.approx(oracle.named(rows, names) | both)
    assert all(type(value) is float for value in metrics.values())


@pytest.mark.parametrize("levels", [1, 2, 4, 1e6])
@pytest.mark.parametrize("seed", range(6))
def test_ranks_equal_the_loop(seed, levels):
    case = random_case(seed, levels)
    # Images of one group match each other's captions.
    groups = np.random.default_rng(seed).integers(0, 5, len(case[0]))
    for image_groups in (None, groups):
        expected = oracle.ranks(*case, image_groups)
        for limit in (SMALLEST, 512):
            found = retrieval.retrieval_ranks(
                *case, memory_limit_mb=limit, image_groups=image_groups
            )
            assert oracle.as_lists(found) == expected


@pytest.mark.parametrize("dim", [1, 7, 100, 512])
def test_all_ties_of_a_collapsed_model_are_misses(dim):
    # More than a byte counts.
    found = retrieval.retrieval_ranks(*collapsed(600, 1, dim))
    assert {*found["image_to_text"].ranks, *found["text_to_image"].ranks} == {
        600
    }
    # Ties are misses: 1 + 58 captions of others, 1 + 29 other images.
    case = collapsed(30, 2, dim)
    for limit in (SMALLEST, 0.05, 512):
        found = retrieval.retrieval_ranks(*case, memory_limit_mb=limit)
        assert set(found["image_to_text"].ranks) == {59}
        assert set(found["text_to_image"].ranks) == {30}
        assert set(found["text_to_text"].ranks) == {59}
        assert found["text_to_image"].tied.all()


def test_nearly_equal_embeddings_are_ranked_exactly():
    generator = np.random.default_rng(0)
    images, texts, rows = collapsed(9, 2, 20)
    images = unit(images + 1e-6 * generator.standard_normal(images.shape))
    texts = unit(texts + 1e-6 * generator.standard_normal(texts.shape))
    found = retrieval.retrieval_ranks(images, texts, rows)
    assert oracle.as_lists(found) == oracle.ranks(images, texts, rows)
    # A rival that is better by the last bits wins without a tie.
    images = unit(np.random.default_rng(3).standard_normal((40, 64)))
    texts = images.copy()
    images[33] = images[2] * np.float32(1 + 2**-22)
    found = retrieval.retrieval_ranks(images, texts, range(40))
    assert found["text_to_image"].ranks[2] == 2
    assert not found["text_to_image"].tied.any()


def test_result_does_not_depend_on_the_memory_limit():
    # More rows than one tile (2040), duplicates across tiles, noise in the
    # last bit of scores; 300 rows of image 5 fill strips with positives.
    generator = np.random.default_rng(1)
    images = unit(generator.standard_normal((2100, 16)))
    rows = np.concatenate([generator.integers(0, 2100, 2000), [5] * 300])
    texts = unit(images[rows] + generator.standard_normal((2300, 16)))
    images[2050:] = images[:50]
    texts[2250:] = texts[:50]
    whole = retrieval.retrieval_ranks(images, texts, rows)
    assert exact_ranks.block_size(16, 2) < 700
    parts = retrieval.retrieval_ranks(images, texts, rows, memory_limit_mb=2)
    assert oracle.as_lists(parts) == oracle.as_lists(whole)
    scores = images.astype(np.float64) @ texts.T.astype(np.float64)
    positive = np.arange(2100)[:, None] == rows
    own = scores[rows, np.arange(2300)]
    clear = 1 + np.sum((scores > own + 1e-7) & ~positive, axis=0)
    near = 1 + np.sum((scores > own - 1e-7) & ~positive, axis=0)
    found = whole["text_to_image"].ranks
    assert np.all((clear <= found) & (found <= near))


@pytest.mark.parametrize("share", [1, 10**9])
def test_few_and_many_undecided_pairs_have_equal_ranks(monkeypatch, share):
    # 1: no strip is scored exactly as a whole; 10**9: any with such a pair.
    monkeypatch.setattr(exact_ranks, "DENSE_SHARE", share)
    case = random_case(0, levels=2)
    found = retrieval.retrieval_ranks(*case)
    assert oracle.as_lists(found) == oracle.ranks(*case)


def test_longer_zero_and_tiny_embeddings():
    # Inner products .5 and 2 for caption 0: the longer image wins.
    images = np.array([[0.5, 0], [2, 0]], np.float32)
    found = retrieval.retrieval_ranks(images, [[1, 0]], [0])
    assert found["text_to_image"].ranks.tolist() == [2]
    zero = np.zeros((3, 4))
    found = retrieval.retrieval_ranks(zero, zero, range(3))
    assert found["text_to_image"].ranks.tolist() == [3, 3, 3]
    # Products near 1e-44 are subnormal: the library may flush them to 0.
    tiny = np.diag([3, 2, 1]) * 1e-22
    found = retrieval.retrieval_ranks(tiny, tiny, range(3))
    assert found["text_to_image"].ranks.tolist() == [1, 1, 1]


@pytest.mark.parametrize("seed", range(4))
def test_positives_give_the_metrics_of_caption_to_image(seed):
    images, texts, rows = random_case(seed, levels=2)
    plain = retrieval.evaluate_retrieval(
        images, texts, rows, text_to_text=False
    )
    mask = rows == np.arange(len(images))[:, None]
    for positives in mask, np.argwhere(mask)[::-1]:
        metrics = retrieval.evaluate_retrieval(
            images, texts, positives=positives
        )
        assert {name: metrics[name] for name in plain} == plain
        more = {"r_precision", "map_at_r"}
        assert {one.split("/")[1] for one in metrics.keys() - plain} == more


def test_bfloat16_embeddings_cause_a_warning():
    images = np.eye(3)
    rounded = tf.constant(images, tf.bfloat16)
    with pytest.warns(UserWarning, match="`image_embeddings` should be"):
        retrieval.evaluate_retrieval(rounded, images, range(3))
    with pytest.warns(UserWarning, match="`text_embeddings` should be"):
        retrieval.evaluate_retrieval(images, rounded, positives=images > 0)
    with pytest.warns(UserWarning, match="`scores` should be"):
        scores = score_tiles.matrix_scores(rounded.numpy())
        score_tiles.score_ranks(scores, range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        retrieval.evaluate_retrieval(images, images, range(3))


def test_scores_are_rounded_from_the_exact_sum():
    # 1 + 2**-24 is half way between two float32 numbers and rounds down to
    # even. More rounds up, if float64 can hold it: 2**-60 is lost.
    x = np.array([[1, 2**-12, 2**-30]], np.float32)
    y = np.array([[1, 2**-12, 2**-30], [1, 2**-12, 0]], np.float32)
    sides = [Side(v, exact_ranks.row_norms(v), v[:, 0]) for v in (x, y)]
    scores = exact_ranks.pair_scores(*sides, np.array([0, 0]), np.array([0, 1]))
    assert scores.tolist() == [1.0, 1.0]
    # With 2**-50 in place of 2**-60 float64 sees the difference.
    z = np.array([[1, 2**-12, 2**-20]], np.float32)
    side, index = Side(z, exact_ranks.row_norms(z), z[:, 0]), np.array([0])
    scores = exact_ranks.pair_scores(sides[0], side, index, index)
    assert scores.tolist() == [1 + 2.0**-23]
    # 2**60 + 1 - 2**60: float64 forgets the 1 if it comes between.
    for order in map(list, itertools.permutations(range(3))):
        x = np.array([[2**30, 1, 2**30]], np.float32)[:, order]
        y = np.array([[2**30, 1, -(2**30)]], np.float32)[:, order]
        sides = [Side(v, exact_ranks.row_norms(v), v[:, 0]) for v in (x, y)]
        assert exact_ranks.pair_scores(*sides, index, index).tolist() == [1.0]


def test_bootstrap_interval_contains_the_statistic():
    ranks = np.arange(1, 201)

    def recall(values):
        return np.mean(values <= 50)

    low, high = retrieval.bootstrap_interval(ranks, recall, 500)
    # Standard error sqrt(.25 * .75 / 200) = .031; 1.96 of them are .06.
    assert low == pytest.approx(0.19, abs=0.02)
    assert high == pytest.approx(0.31, abs=0.02)
    assert retrieval.bootstrap_interval(ranks, recall, 500) == (low, high)
    assert retrieval.bootstrap_interval([3, 3], np.mean, 10) == (3, 3)


def test_memory_stays_near_the_limit():
    case = collapsed(1200, 1, 8)
    peaks = []
    for limit in (1, 512):
        tracemalloc.start()
        retrieval.retrieval_ranks(
            *case, memory_limit_mb=limit, text_to_text=False
        )
        peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    # Beside the tiles: norms, best scores, counts. One tile of all is 6 MiB.
    assert peaks[0] < 1 + 1 < 5 < peaks[1]


def test_recall_differences_resample_the_same_queries_of_both_models():
    rows, untied = np.arange(40), np.zeros(40, bool)
    ranks = np.where(rows < 10, 1, 20)
    better = np.where(rows < 20, 1, 20)
    first, second = (
        {"a_to_b": Ranks(rows, r, untied)} for r in (ranks, better)
    )
    found = retrieval.recall_differences(first, second)
    difference, low, high = found["a_to_b/recall_at_1"]
    assert difference == 0.25
    # Of 40 queries, 10 differ: 2 standard errors are 2 sqrt(.25 * .75 / 40).
    assert 0.08 <= low <= 0.16 and 0.34 <= high <= 0.42
    assert set(found.values()) == {(difference, low, high)}  # Ranks 1 and 20.
    same = retrieval.recall_differences(
        first | {"b_to_a": first["a_to_b"]}, first | {"b_to_a": first["a_to_b"]}
    )
    assert same["recall_sum"] == (0, 0, 0)
