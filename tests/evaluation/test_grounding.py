"""Tests of tables of phrases and boxes against slow definitions."""

import collections

import numpy as np
import pytest

from tbnets.evaluation import grounding, score_tiles, tables
from tbnets.evaluation.grounding import PhraseTable
from tests.evaluation import oracle
from tests.refusals import refused

MISSED = grounding.MISSED


def random_case(seed, levels):
    """Photos with proposals, none included; few levels of scores: ties."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 13, generator.integers(1, 6))
    proposals = [oracle.random_boxes(generator, count) for count in counts]
    num_phrases = int(generator.integers(1, 25))
    truth = oracle.random_boxes(generator, num_phrases)
    owners = generator.integers(0, len(counts), num_phrases)
    scores = generator.integers(0, levels, (num_phrases, 14)) / np.float32(8)
    texts = generator.integers(0, 4, num_phrases)
    return scores, proposals, truth, owners, texts


@pytest.mark.parametrize("levels", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_random_boxes_agree_with_the_definition(seed, levels):
    scores, proposals, truth, owners, texts = random_case(seed, levels)
    found = grounding.localize(scores, proposals, truth, owners)

    def score_of(image, rows):
        assert (owners[rows] == image).all()
        return scores[rows, : len(proposals[image])]

    other = grounding.localize(score_of, proposals, truth, owners)
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
    value = grounding.unique_phrase_precision(found, texts)
    assert value == pytest.approx(np.mean(expected), abs=1e-12)


BOXES = [[0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10], [0, 0, 10, 5]]


def test_metrics_computed_by_hand():
    # Phrase 0 is boxes 0, 1 and 3 of photo 0 (IoU 1, 0.9 and 0.5), phrase 1
    # is box 2; phrase 2 is in a photo without proposals.
    truth = [[0, 0, 10, 10], [20, 0, 30, 10], [0, 0, 5, 5]]
    scores = [[0.5, 0.1, 0.7, 0.1], [0.9, 0.8, 0.8, 0.1], [0.0] * 4]
    metrics = grounding.evaluate_localization(
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
    row = tables.format_table(metrics).splitlines()[1].split()
    assert row == "all 0.0 33.3 66.7 66.7 0.0 66.7 66.7 3".split()


def test_no_phrases_and_scores_beyond_the_proposals():
    none = np.zeros((0, 4))
    metrics = grounding.evaluate_localization(
        none, [np.array(BOXES)], none, [], texts=[]
    )
    assert metrics == {"phrase_to_region/num_queries": 0}
    # An overlap of exactly 0.5 does not suppress a proposal.
    two = [BOXES[0], BOXES[3]]
    found = grounding.localize([[0.5, 0.4]], [two], [BOXES[3]], [0])
    assert len(found.scores) == 2
    scores = np.array([[0.5, np.nan, np.inf]])
    found = grounding.localize(scores, [BOXES[:1]], [BOXES[0]], [0])
    assert found.ranks.tolist() == [1]


CANDIDATES = (
    np.array([[0, 0, 10, 10.0]]),
    np.array([[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 10, 10.0]]),
)
"""Photo 0 has only the whole photo; photo 1 has two regions and the photo."""


def phrase_table(best, boxes, images, **facts):
    """A table in which candidate `best[p]` is the most similar to phrase p."""
    count = len(boxes)
    facts = {"whole_photo": True, "things": np.arange(count)} | facts
    phrases = [f"phrase {row}" for row in range(count)]
    return PhraseTable(
        np.eye(3, dtype=np.float32)[best],
        CANDIDATES,
        phrases,
        np.reshape(boxes, (-1, 4)).astype(float),
        np.array(images, int),
        **facts,
    )


def test_metrics_of_correspondences_computed_by_hand():
    boxes = [[0, 0, 2, 2], [0, 0, 9, 9], [0, 0, 2, 2], [5, 5, 6, 6]]
    metrics = phrase_table([1, 0, 2, 2], boxes, [1, 0, 1, 1]).metrics()
    # Right: the half of 2 x 2, exactly 0.5; 81 of 100. Wrong: 4 of 100, and
    # nothing overlaps the last box.
    assert metrics["correspondence_accuracy"] == 2 / 4
    # Chances 2/3, 1, 2/3 and 0.
    assert metrics["correspondence_chance"] == pytest.approx((4 / 3 + 1) / 4)
    assert metrics["correspondence_whole_photo"] == 1 / 4
    assert metrics["correspondence_upper_bound"] == 3 / 4
    # Centres are (1, 1) and (1, 0.5), in the first three boxes, and (5, 5),
    # on the corner of the last.
    assert metrics["correspondence_pointing_accuracy"] == 3 / 4
    assert metrics["correspondence_pointing_chance"] == pytest.approx(
        (2 / 3 + 1 + 2 / 3 + 1 / 3) / 4
    )
    assert metrics["correspondence_pointing_whole_photo"] == 2 / 4
    assert metrics["correspondence_links"] == 4
    none = phrase_table(np.zeros(0, int), [], []).metrics()
    assert np.isnan(none["correspondence_accuracy"])
    assert none["correspondence_links"] == 0


def test_ties_with_wrong_candidates_are_wrong_correspondences():
    table = phrase_table([0], [[0, 0, 2, 2]], [1])
    assert table.metrics()["correspondence_accuracy"] == 1
    table.similarities[0] = [1, 1, 0]  # Both are right.
    assert table.metrics()["correspondence_accuracy"] == 1
    table.similarities[0] = [1, 0, 1]
    assert table.metrics()["correspondence_accuracy"] == 0
    table.similarities[0, 1] = np.nan
    with refused("scores"):
        table.metrics()


def test_true_regions_are_ranked_with_all_phrases_of_the_split():
    # The dog has two phrases; only the second one's box is proposed, as region
    # 0. The cat is region 1. The bird is not proposed.
    table = PhraseTable(
        np.zeros((4, 2), np.float32),
        [np.array([[0, 0, 4, 4], [6, 6, 9, 9.0]])],
        ("a dog", "The dog", "a cat", "a bird"),
        np.array([[5, 0, 9, 3], [0, 0, 4, 4], [6, 6, 9, 9], [0, 8, 1, 9.0]]),
        np.zeros(4, int),
        np.array([7, 7, 3, 5]),
    )

    def compare(images, columns, rows):
        compared = [each.tolist() for each in (images, columns, rows)]
        assert compared == [[0, 0], [1, 0], [0, 1, 2, 3]]  # First thing 3.
        scores = [[0.1, 0.2, 0.9, 0.3], [0.8, 0.8, 0.1, 0.9]]
        return score_tiles.matrix_scores(np.array(scores))

    metrics = grounding.rank_true_regions(table, compare)
    # The cat's phrase is first. The dog's two come after the bird's, which is
    # a candidate although its object is not proposed.
    assert metrics["true_region_to_phrase/num_queries"] == 2
    assert metrics["true_region_to_phrase/recall_at_1"] == 1 / 2
    assert metrics["true_region_to_phrase/mean_rank"] == 1.5
    # Both phrases of the dog name its region.
    assert metrics["phrase_to_true_region/num_queries"] == 3
    assert metrics["phrase_to_true_region/recall_at_1"] == 1


def test_objects_that_are_not_proposed_are_no_queries():
    table = phrase_table([0], [[5, 5, 6, 6]], [1])
    names = "true_region_to_phrase", "phrase_to_true_region"
    none = {f"{name}/num_queries": 0 for name in names}
    assert grounding.rank_true_regions(table, None) == none


def two_photos(similarities, learned=False):
    """A table of a photo with two proposals and one with three."""
    candidates = CANDIDATES[1][:2], CANDIDATES[1]
    boxes = np.zeros((2, 4))
    images = np.array([0, 1])
    similarities = np.array(similarities, "float32")
    names = ("a", "b")
    return PhraseTable(
        similarities, candidates, names, boxes, images, images, learned=learned
    )


def test_two_networks_are_combined_by_distances():
    first = two_photos([[1.0, 0.5, 0], [0.5, 1.0, -1.0]])
    second = two_photos([[-1.0, 1.0, 0], [1.0, 1.0, 1.0]])
    both = first.combine(second, 0.25)
    # Distances sqrt(2 - 2 s): 0, 1, 2 for 1, 0.5, -1.
    np.testing.assert_allclose(both.similarities[0, :2], [-0.5, -0.75], 1e-6)
    np.testing.assert_allclose(
        both.similarities[1], [-0.75, 0, -1.5], 1e-6, 1e-6
    )


def test_logits_are_combined_in_standard_deviations():
    first = two_photos([[1.0, 0.5, 0], [0.5, 1.0, -1.0]])
    logits = [[4.0, -4.0, 99], [4.0, -4.0, 0.0]]
    both = first.combine(two_photos(logits, learned=True), 1.0).similarities
    # Of 4, -4, 4, -4, 0: the variance is 64 / 5.
    expected = np.array(logits) / np.sqrt(64 / 5)
    np.testing.assert_allclose(both[1], expected[1], atol=1e-6)
    np.testing.assert_allclose(both[0, :2], expected[0, :2], atol=1e-6)
