"""Tests of the judge: every fault is seen, and only faults are."""

import pytest

from tests.fuzz import child, table
from tests.fuzz.bad_readers import READERS, VALID
from tests.fuzz.mutations import mutate


@pytest.fixture(scope="module")
def answers():
    """Returns the answer of each reader to the same broken file."""
    limits = child.Limits(seconds=1)
    readers = {name: one for name, one in READERS.items() if name != "sleep"}
    numbers = dict.fromkeys(READERS, [1])
    return {one.reader: one for one in child.run(readers, numbers, 0, limits)}


@pytest.mark.parametrize(
    "reader, kind, detail",
    [
        ("say", "clean", "expected JSON"),
        ("blame_the_system", "clean", "No such file"),
        ("accept", "accepted", ""),
        ("forget_the_name", "fault", "without the file's name"),
        ("forget_the_cure", "fault", "without what to change"),
        ("stumble", "fault", "KeyError: 'missing'"),
        ("crash", "fault", "killed by SIGSEGV"),
        ("leave", "fault", "ended with exit code 3"),
        ("spin", "fault", "more than"),
        ("take_memory", "fault", "MiB, at most 64"),
        ("take_all_memory", "fault", "MemoryError"),
    ],
)
def test_an_answer_is_what_the_reader_did(answers, reader, kind, detail):
    assert answers[reader].kind == kind
    assert detail in answers[reader].detail


def test_every_reader_is_asked_though_some_die(answers):
    assert list(answers) == [name for name in READERS if name != "sleep"]


def test_a_reader_that_waits_is_ended():
    limits = child.Limits(patience=2)
    readers = {name: READERS[name] for name in ("sleep", "accept")}
    numbers = {"sleep": [1], "accept": [1]}
    slept, other = child.run(readers, numbers, 0, limits)
    assert (slept.kind, other.kind) == ("fault", "accepted")
    assert slept.detail.startswith("says nothing for 2 s")


def test_a_valid_file_is_harmless(tmp_path):
    opened = child.Opened("say", READERS["say"], tmp_path)
    found = child.judge(READERS["say"], tmp_path, opened.expected)
    assert found == ("harmless", "")


def test_a_crash_tells_where(answers):
    assert "in crash\n" in answers["crash"].detail


def broken_writer(folder):
    raise OSError("no space")


def test_a_mistake_of_the_harness_is_no_fault_of_a_reader():
    readers = {"say": READERS["say"]._replace(write=broken_writer)}
    with pytest.raises(RuntimeError, match="no space"):
        list(child.run(readers, {"say": [0]}))


def test_the_table_counts_each_kind(capsys):
    readers = {name: READERS[name] for name in ("say", "stumble")}
    faults = table.run(readers, 4, 0)
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("|")] == [
        "| reader | tried | clean | harmless | accepted | faults |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| say | 4 | 4 | 0 | 0 | 0 |",
        "| stumble | 4 | 0 | 0 | 0 | 4 |",
        "| all | 8 | 4 | 0 | 0 | 4 |",
    ]
    assert faults == 4


def test_one_fault_is_shown_again_with_its_file(capsys):
    assert table.show_one(READERS, "stumble:2", 0) == 1
    shown = capsys.readouterr().out
    path = shown.split("file      ")[1].split("\n")[0]
    with open(path, "rb") as file:
        assert file.read() == mutate(VALID, 0, 2).content
    assert "KeyError: 'missing'" in shown
    assert "in stumble" in shown


@pytest.mark.parametrize("place", ["stumble", "stumble:x", "nobody:3"])
def test_a_place_that_is_none_is_told(place):
    with pytest.raises(ValueError, match="must be"):
        table.show_one(READERS, place, 0)


def test_arrays_are_told_apart_by_type_and_shape():
    import numpy as np

    ones = [np.ones(4), np.ones(4, "f4"), np.ones((2, 2)), [1.0] * 4]
    assert len({child.digest(one) for one in ones}) == 4
    assert child.digest({"a": np.ones(2)}) == child.digest({"a": np.ones(2)})
