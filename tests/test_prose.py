"""Tests of the counts of prose habits, and the rates of this repository."""

import pathlib

import prose_check
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"docstrings": 4.3, "messages": 2.8, "pages": 5.6}


@pytest.fixture(scope="module")
def rates():
    return prose_check.rates(prose_check.files_in(ROOT))


@pytest.mark.parametrize("kind", LIMITS)
def test_habits_per_1000_words_are_rare(rates, kind):
    assert rates[kind] <= LIMITS[kind]
