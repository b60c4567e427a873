"""Broken files of every reader: an error that names the file, or a result.

`python tools/fuzz.py --mutations=1000` reads more of them.
"""

import pytest

from tests.fuzz import child
from tests.fuzz.readers import READERS

SUITE = {name: one for name, one in READERS.items() if one.in_suite}


@pytest.fixture(scope="module")
def answers():
    """Returns the answers to a few dozen broken files of each reader."""
    numbers = {name: range(one.in_suite) for name, one in SUITE.items()}
    found = {name: [] for name in SUITE}
    for answer in child.run(SUITE, numbers):
        found[answer.reader].append(answer)
    return found


@pytest.mark.parametrize("reader", SUITE)
def test_broken_files_are_told_or_read_as_they_stand(answers, reader):
    found = answers[reader]
    assert len(found) == SUITE[reader].in_suite
    faults = [one for one in found if one.kind == "fault"]
    places = [f"{one.reader}:{one.number}" for one in faults]
    assert not faults, f"{places}: {faults[0].detail}"


@pytest.mark.parametrize("reader", SUITE)
def test_almost_every_file_is_broken_in_a_way_that_shows(answers, reader):
    kinds = {one.kind for one in answers[reader]}
    assert kinds - {"harmless"}, "the reader does not look at the file"
