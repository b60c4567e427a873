"""Tests of what tools/train.py --help shows."""

import re

import pytest

from tbnets.flags.flag import what_reads
from tbnets.flags.help import FIRST
from tbnets.flags.table import ALL, GROUPS, TITLES
from tests import fresh


@pytest.fixture(scope="module")
def shown():
    ended = fresh.run("tools/train.py", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def entries(text):
    """Returns name -> its default and help in one line."""
    parts = re.split(r"^  --(?:\[no\])?(\w+)", text, flags=re.MULTILINE)
    names, texts = parts[1::2], parts[2::2]
    assert len(set(names)) == len(names), "a flag is shown twice"
    return {
        name: " ".join(text.split("\n\n")[0].split())
        for name, text in zip(names, texts)
    }


def test_it_begins_with_the_commands_and_the_flags_that_matter(shown):
    head = shown.split("The flags to begin with:")[0]
    assert head.startswith("Trains a network")
    assert head.count("python tools/train.py --") == 3
    assert tuple(entries(shown))[: len(FIRST)] == FIRST


def test_every_flag_is_shown_once(shown):
    assert entries(shown).keys() == ALL.keys() | set(FIRST)


def test_every_group_has_a_title():
    assert TITLES.keys() == GROUPS.keys()


def test_groups_stand_in_the_order_of_their_titles(shown):
    places = [shown.index(f"\n{title}:\n") for title in TITLES.values()]
    assert places == sorted(places)
    for (group, _), start, end in zip(
        TITLES.items(), places, [*places[1:], len(shown)]
    ):
        expected = [f.name for f in GROUPS[group] if f.name not in FIRST]
        assert list(entries(shown[start:end])) == expected


def test_a_flag_tells_its_default_and_what_it_is_read_with(shown):
    found = entries(shown)
    assert found["rnn_units"] == (
        "(default: 512) State size. Wang 2018: 512. Read with "
        "--text_encoder=lstm or gru or h_lstm."
    )
    assert found["dropout"].startswith("(default: 0.5) Rate")
    assert found["image_units"].startswith("(default: 2048,512) Sizes")
    assert "By default as in the paper of --loss." in found["margin"]
    assert "One of last, first, none." in found["batch_normalization"]
    for name, flag in ALL.items():
        assert flag.help in found[name]
        if flag.when:
            assert found[name].endswith(f"Read with {what_reads(flag)}.")


def test_an_unknown_flag_has_a_suggestion():
    ended = fresh.run("tools/train.py", "--epoch=3")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: Unknown command line flag 'epoch'. Did you mean: epochs ?. "
        "See train.py --help.\n"
    )
