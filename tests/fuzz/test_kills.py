"""A few kills, each right before a change of a file that matters.

`tools/fuzz.py --kills=100` has many more, at other moments.
"""

import pytest

from tests.fuzz import kills


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    return kills.Trials(tmp_path_factory.mktemp("kills"), eagerly=True)


@pytest.mark.parametrize(
    "name, cuts",
    [
        (
            "training",  # Is killed, goes on, is killed again.
            [
                ("run/settings.json", 1),
                ("checkpoints/last.npz", 2),
                ("saved_model/1", 1),
            ],
        ),
        ("making a zoo's model", [("exchange", 1)]),
        ("indexing of photos", [("rename ", 1)]),
    ],
)
def test_a_tool_that_was_cut_leaves_the_same_in_the_end(trials, name, cuts):
    assert trials.kill(name, cuts) == (True, True, True, "")
