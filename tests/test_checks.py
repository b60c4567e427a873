"""Tests of equal texts, rows, rounded numbers and short representations."""

import math

import pytest

from tbnets.checks import (
    letters,
    per_cent,
    rounded,
    spelling,
    text_ids,
)


def test_texts_that_differ_in_case_and_spaces_have_one_id():
    texts = ["A dog", "a  dog ", "a cat", "A DOG", "\ufeffa dog", "a dog."]
    assert text_ids(texts).tolist() == [0, 0, 1, 0, 0, 2]


def test_a_spelling_keeps_its_capitals():
    assert spelling(" A\tDog \n") == "A Dog"


def test_letters_ignore_case_spaces_and_punctuation():
    assert letters("A T-shirt , isn't it ?") == letters("a t shirt isn't IT")


@pytest.mark.parametrize(
    "found, text",
    [
        (per_cent(0.4315), "43.2"),  # 43.15: as a float a little less.
        (per_cent(0.7525), "75.3"),  # 75.25: exact as a float, 2 is even.
        (per_cent(0.43149), "43.1"),
        (per_cent(0.1 + 0.2 + 0.1315), "43.2"),  # Noise of a sum.
        (per_cent(-0.0125), "-1.3"),
        (per_cent(0.0), "0.0"),
        (rounded(2.675, 2), "2.68"),
        (rounded(0.5, 0), "1"),
        (rounded(1e300, 0), "1" + f"{1e300:.0f}"[1:]),
        (rounded(math.nan, 1), "nan"),
        (rounded(-math.inf, 1), "-inf"),
    ],
)
def test_halves_are_rounded_away_from_zero(found, text):
    assert found == text
