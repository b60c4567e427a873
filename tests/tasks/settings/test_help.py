"""Tests of what --help shows of flags."""

import dataclasses
import re

import pytest

from tbnets.cli import format_help
from tbnets.cli.train import DEVICES, FIRST
from tbnets.tasks.settings.flag import (
    REQUIRED,
    flag,
    flags_of,
    title_of,
)
from tbnets.tasks.settings.settings import ALL, conditions_in_words
from tests.verbs import ask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Some flags."""

    out: str = flag(REQUIRED, "Where to.")
    empty: str = flag("", "A text.")
    none: int | None = flag(None, "A whole number.")
    alpha: float = flag(0.5, "A number.")
    loud: bool = flag(True, "A switch.")
    sizes: list[int] = flag([3, 4], "A list.")
    kind: str = flag("b", "A choice.", choices=("b", "a"))
    long: str = flag("", "word " * 40)
    names: list[str] = flag([], "What is no flag.", kind="words")


def help_text():
    text = "Does a thing.\n\n  python tool.py --out=FILE\n"
    return format_help(text, {title_of(Options): flags_of(Options)})


def test_help_shows_the_text_and_flags_as_defined():
    shown = help_text()
    assert shown.startswith("Does a thing.")
    found = entries(shown)
    assert found.pop("long").startswith("word")
    assert found == {
        "out": "(required) Where to.",
        "empty": "A text.",
        "none": "A whole number.",
        "alpha": "(default: 0.5) A number.",
        "loud": "(default: true) A switch.",
        "sizes": "(default: 3,4) A list.",
        "kind": "(default: b) A choice. One of b, a.",
    }
    assert "NAMES ..." in shown and "--names" not in shown


@pytest.fixture(scope="module")
def shown():
    out, err, failure = ask("train", "--help")
    assert (err, failure) == ("", "")
    return out


def entries(text):
    """Returns name -> its default and help in one line."""
    parts = re.split(r"^  --(?:\[no\])?(\w+)", text, flags=re.MULTILINE)
    names, texts = parts[1::2], parts[2::2]
    assert len(set(names)) == len(names), "a flag is shown twice"
    return {
        name: " ".join(text.split("\n\n")[0].split())
        for name, text in zip(names, texts)
    }


def test_every_flag_is_shown_once(shown):
    assert entries(shown).keys() == ALL.keys() | {*FIRST, *DEVICES}
    assert tuple(entries(shown))[: len(FIRST)] == tuple(FIRST)


def test_a_flag_tells_its_default_and_what_it_is_read_with(shown):
    found = entries(shown)
    assert found["rnn_units"].startswith("(default: 512) ")
    assert found["image_units"].startswith("(default: 2048,512) ")
    assert "One of last, first, none." in found["batch_normalization"]
    conditions = conditions_in_words()
    for name, each in ALL.items():
        assert each.help in found[name]
        if name in conditions:
            assert f"Only {conditions[name]}." in found[name]
