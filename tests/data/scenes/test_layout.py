import pytest

from tbnets.data.scenes.layout import (
    find_relation,
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
