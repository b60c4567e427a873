"""Tests of the counts of prose habits, and the rates of this repository."""

import pathlib

import prose_check
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"docstrings": 3.8, "messages": 2.8, "pages": 5.6}


@pytest.fixture(scope="module")
def rates():
    return prose_check.rates(prose_check.files_in(ROOT))


@pytest.mark.parametrize("kind", LIMITS)
def test_habits_per_1000_words_are_rare(rates, kind):
    assert rates[kind] <= LIMITS[kind]


def test_docstrings_messages_and_pages_are_counted_separately(tmp_path):
    code = '"""Returns what it finds."""\nprint("Nothing is there.")\n'
    (tmp_path / "a.py").write_text(code)
    page = "The same words.\n\n    the same code\n\n| the same table |\n"
    (tmp_path / "b.md").write_text(page)
    found = prose_check.rates([tmp_path / "a.py", tmp_path / "b.md"])
    # One habit in 4, in 3 and in 3 words.
    assert found == pytest.approx(
        {"docstrings": 250, "messages": 1000 / 3, "pages": 1000 / 3}
    )
