"""Tests of phrase localization against its slow definition."""

import collections

import numpy as np
import pytest

from tbnets.evaluation import localization, tables
from tbnets.evaluation.localization import average_precision
from tests.evaluation import oracle

MISSED = localization.MISSED


def random_boxes(generator, count, side=8):
    low = generator.integers(0, side, (count, 2))
    return np.concatenate(
        [low, low + generator.integers(1, side, (count, 2))], axis=1
    ).astype(float)


def random_case(seed, levels):
    """Photos with proposals, none included; few levels of scores: ties."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 13, generator.integers(1, 6))
    proposals = [random_boxes(generator, count) for count in counts]
    num_phrases = int(generator.integers(1, 25))
    truth = random_boxes(generator, num_phrases)
    owners = generator.integers(0, len(counts), num_phrases)
    scores = generator.integers(0, levels, (num_phrases, 14)) / np.float32(8)
    texts = generator.integers(0, 4, num_phrases)
    return scores, proposals, truth, owners, texts


@pytest.mark.parametrize("levels", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_random_boxes_agree_with_the_definition(seed, levels):
    scores, proposals, truth, owners, texts = random_case(seed, levels)
    found = localization.localize(scores, proposals, truth, owners)

    def score_of(image, rows):
        assert (owners[rows] == image).all()
        return scores[rows, : len(proposals[image])]

    other = localization.localize(score_of, proposals, truth, owners)
    for one, same in zip(found, other):
        np.testing.assert_array_equal(one, same)
    by_text = collections.defaultdict(list)
    for row, image in enumerate(owners):
        count = len(proposals[image])
        rank, after, detections = oracle.localize(
            scores[row, :count].tolist(), proposals[image], truth[row]
        )
        assert found.ranks[row] == (rank or MISSED)
        assert found.suppressed_ranks[row] == (after or MISSED)
        mine = found.phrases == row
        assert sorted(detections) == sorted(
            zip(found.scores[mine].tolist(), found.hits[mine].tolist())
        )
        by_text[texts[row]].append(detections)
    expected = [
        oracle.average_precision(sum(several, []), len(several))
        for several in by_text.values()
    ]
    value = localization.unique_phrase_precision(found, texts)
    assert value == pytest.approx(np.mean(expected), abs=1e-12)


BOXES = [[0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10], [0, 0, 10, 5]]


def test_literal_metrics():
    # Phrase 0 is boxes 0, 1 and 3 of photo 0 (IoU 1, 0.9 and 0.5), phrase 1
    # is box 2; phrase 2 is in a photo without proposals.
    truth = [[0, 0, 10, 10], [20, 0, 30, 10], [0, 0, 5, 5]]
    scores = [[0.5, 0.1, 0.7, 0.1], [0.9, 0.8, 0.8, 0.1], [0.0] * 4]
    metrics = localization.evaluate_localization(
        scores,
        [np.array(BOXES), np.zeros((0, 4))],
        truth,
        [0, 0, 1],
        types={"people": np.array([True, True, False]), "x": np.zeros(3, bool)},
        texts=[0, 0, 1],
        recall_at=(1, 2, 3),
    )
    # Ranks: phrase 0: .5 after .7: 2. Phrase 1: .8 after .9, and box 1 ties:
    # 3. After suppression box 1 goes with box 0 (0.9 > 0.5); box 3 stays
    # beside box 0 (0.5 is not more), so phrase 1 has rank 2.
    names = ("num_queries", "upper_bound", "tie_rate")
    names += tuple(
        f"{kind}recall_at_{k}"
        for kind in ("", "suppressed_")
        for k in (1, 2, 3)
    )
    # Text 0: .9 no, .8 hit, .7 no, .5 hit, then .1: precision 1/2 up to
    # recall 1/2 (six of eleven), 2/4 up to 1: 1/2. Text 1: 0.
    assert metrics == pytest.approx(
        oracle.named(
            {
                "phrase_to_region": (
                    *(3, 2 / 3, 1 / 3),
                    *(0, 1 / 3, 2 / 3, 0, 2 / 3, 2 / 3),
                ),
                "phrase_to_region/people": (2, 1, 1 / 2, 0, 1 / 2, 1, 0, 1, 1),
                "phrase_to_region/x": (0,),
            },
            names,
        )
        | {"phrase_to_region/mean_average_precision": 1 / 4}
    )
    table = tables.format_table(metrics, "tiny").splitlines()
    all_of_it = "all 0.0 33.3 66.7 66.7 0.0 66.7 66.7 3"
    assert table[2].split() == all_of_it.split()
    people = "people 0.0 50.0 100.0 100.0 0.0 100.0 100.0 2"
    assert table[4].split() == people.split()
    assert table[-1].split()[-1] == "25.0"


def test_average_precision_literal():
    # Hits at places 1 and 3 of three positives: precision 1 up to recall 1/3
    # (0, .1, .2, .3: four of eleven), 2/3 up to 2/3 (.4, .5, .6), then 0.
    value = average_precision([0.9, 0.8, 0.7], [True, False, True], 3)
    assert value == pytest.approx((4 * 1 + 3 * 2 / 3) / 11)
    assert average_precision([], [], 2) == 0
    assert average_precision([1.0], [True], 1) == 1
    # A tie with what is no hit is lost: 1/2 at every recall.
    assert average_precision([1.0, 1.0], [True, False], 1) == 0.5
    # 3 of 10 are exactly the recall 0.3.
    hits = np.arange(5) < 3
    value = average_precision(-np.arange(5), hits, 10)
    assert value == pytest.approx(4 / 11)


def test_no_phrases_and_scores_beyond_the_proposals():
    none = np.zeros((0, 4))
    metrics = localization.evaluate_localization(
        none, [np.array(BOXES)], none, [], texts=[]
    )
    assert metrics == {"phrase_to_region/num_queries": 0}
    # An overlap of exactly 0.5 does not suppress a proposal.
    two = [BOXES[0], BOXES[3]]
    found = localization.localize([[0.5, 0.4]], [two], [BOXES[3]], [0])
    assert len(found.scores) == 2
    scores = np.array([[0.5, np.nan, np.inf]])
    found = localization.localize(scores, [BOXES[:1]], [BOXES[0]], [0])
    assert found.ranks.tolist() == [1]
