"""One rule for numbers that are printed: halves go away from zero."""

import math

import pytest

from tbnets.checks import per_cent, rounded


@pytest.mark.parametrize(
    "share, text",
    [
        (0.4315, "43.2"),  # 43.15: as a float a little less than that.
        (0.7525, "75.3"),  # 75.25: exact as a float, the even digit is 2.
        (0.5105, "51.1"),
        (0.43149, "43.1"),
        (0.1 + 0.2 + 0.1315, "43.2"),  # Noise of a sum.
        (-0.0125, "-1.3"),
        (0.0, "0.0"),
        (1, "100.0"),
    ],
)
def test_halves_of_per_cents_go_up(share, text):
    assert per_cent(share) == text


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (336.25, 1, "336.3"),
        (2.675, 2, "2.68"),
        (0.5, 0, "1"),
        (1e300, 0, "1" + f"{1e300:.0f}"[1:]),
        (math.nan, 1, "nan"),
        (-math.inf, 1, "-inf"),
    ],
)
def test_numbers_follow_the_same_rule(value, digits, text):
    assert rounded(value, digits) == text
