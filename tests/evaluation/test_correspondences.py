import types

import numpy as np
import pytest

from tbnets.evaluation.correspondences import (
    Links,
    evaluate_correspondences,
    phrases_of_spans,
)

# Caption 0: words 0-2, 3-8 and 5-8; caption 1: none; caption 2: words 0-1.
PHRASES = types.SimpleNamespace(
    spans=np.array([[0, 2], [3, 8], [5, 8], [0, 1]]),
    starts=np.array([0, 3, 3, 4]),
)


def test_spans_are_found_by_their_words_or_the_last_of_them():
    captions = np.array([0, 0, 0, 0, 1, 2, -1])
    spans = [[3, 8], [4, 8], [3, 5], [0, 3], [0, 1], [0, 1], [0, 2]]
    rows, is_exact = phrases_of_spans(captions, np.array(spans), PHRASES)
    # 4-8 ends in the smaller of two, 3-5 in the larger alone; word 2, the
    # last of 0-3, is in none.
    assert rows.tolist() == [1, 2, 1, -1, -1, 3, -1]
    assert is_exact.tolist() == [True, False, False, False, False, True, False]


def links(**changes):
    known = Links(
        phrases=np.array([0, 1, 2, 2]),
        boxes=np.array(
            [[0, 0, 2, 2], [0, 0, 9, 9], [0, 0, 2, 2], [5, 5, 6, 6]], float
        ),
        images=np.array([1, 0, 1, 1]),
        things=np.arange(4),
        is_exact=np.array([True, False, True, True]),
        num_lost=3,
    )
    return known._replace(**changes)


def candidates(image):
    found = [[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 10, 10]]
    return np.array(found[2 - 2 * image :])


def test_fractions_by_hand():
    # Photo 0 has the large box alone, photo 1 has three.
    found = evaluate_correspondences(np.array([1, 0, 2]), candidates, links())
    # Right: the half of 2 x 2, exactly 0.5; 81 of 100. Wrong: 4 of 100, and
    # nothing overlaps the last box.
    assert found["correspondence_accuracy"] == 2 / 4
    # Chances 2/3, 1, 2/3 and 0.
    assert found["correspondence_chance"] == pytest.approx((4 / 3 + 1) / 4)
    assert found["correspondence_whole_photo"] == 1 / 4
    assert found["correspondence_upper_bound"] == 3 / 4
    # Centres are (1, 1) and (1, 0.5), in the first three boxes, and (5, 5),
    # on the corner of the last.
    assert found["correspondence_pointing_accuracy"] == 3 / 4
    assert found["correspondence_pointing_chance"] == pytest.approx(
        (2 / 3 + 1 + 2 / 3 + 1 / 3) / 4
    )
    assert found["correspondence_pointing_whole_photo"] == 2 / 4
    assert found["correspondence_exact_spans"] == 3 / 4
    assert found["correspondence_links"] == 4
    assert found["correspondence_lost"] == 3


def test_a_centre_on_each_edge_is_in_and_beyond_is_not():
    for box, is_in in (
        *(([5, 0, 9, 9], True), ([5.1, 0, 9, 9], False)),
        *(([0, 5, 9, 9], True), ([0, 5.1, 9, 9], False)),
        *(([0, 0, 5, 9], True), ([0, 0, 4.9, 9], False)),
        *(([0, 0, 9, 5], True), ([0, 0, 9, 4.9], False)),
    ):
        zero = np.zeros(1, int)
        one = links(phrases=zero, boxes=np.array([box], float), images=zero)
        one = one._replace(is_exact=zero == 0)
        found = evaluate_correspondences(zero, candidates, one)
        assert found["correspondence_pointing_accuracy"] == is_in


def test_without_links_there_are_no_fractions():
    none = Links(
        *(np.zeros(shape, int) for shape in (0, (0, 4), 0, 0, 0)), num_lost=0
    )
    found = evaluate_correspondences(np.zeros(0, int), candidates, none)
    assert np.isnan(found["correspondence_accuracy"])
    assert found["correspondence_links"] == 0
