import numpy as np
import pytest

from tbnets.data.scenes.layout import (
    draw_objects,
    find_position,
    find_relation,
    scene_split,
)


@pytest.mark.parametrize(
    ("box", "other", "expected", "opposite"),
    [
        # Centres 5, 5 and 35, 15: 30 across, 10 down.
        ((0, 0, 10, 10), (30, 10, 40, 20), "left", "right"),
        # Centres 5, 5 and 10, 30: 5 across, 25 down.
        ((0, 0, 10, 10), (5, 25, 15, 35), "above", "below"),
        # 25 across is exactly 1.25 times 20 down; 24 across is not.
        ((0, 0, 10, 10), (25, 20, 35, 30), "left", "right"),
        ((0, 0, 10, 10), (24, 20, 34, 30), None, None),
        # They overlap across by a pixel; touching edges do not overlap.
        ((0, 0, 10, 10), (9, 0, 19, 10), None, None),
        ((0, 0, 10, 10), (10, 0, 20, 10), "left", "right"),
        ((5, 5, 10, 10), (0, 0, 20, 20), "inside", "around"),
    ],
)
def test_find_relation_literal_boxes(box, other, expected, opposite):
    assert find_relation(box, other) == expected
    assert find_relation(other, box) == opposite


@pytest.mark.parametrize(
    ("centre", "expected"),
    [
        ((20, 20), "top left"),
        ((50, 80), "bottom"),
        ((50, 20), "top"),
        ((20, 55), "left"),
        ((50, 50), "centre"),
        ((38, 20), None),
        ((20, 38), None),
    ],
)
def test_find_position_literal_places(centre, expected):
    x, y = centre
    box = (x - 5, y - 5, x + 5, y + 5)
    assert find_position(box, 100) == expected


def test_split_of_gives_one_eighth_to_dev_and_to_test():
    rng = np.random.default_rng(0)
    drawn = [draw_objects(rng) for _ in range(800)]
    assert {*map(len, drawn)} == {2, 3, 4}
    splits = [scene_split(objects) for objects in drawn]
    assert splits == [scene_split(objects[::-1]) for objects in drawn]
    # 100 of 800 expected, standard deviation sqrt(800 x 1/8 x 7/8) = 9.4.
    assert abs(splits.count("val") - 100) < 40
    assert abs(splits.count("test") - 100) < 40
