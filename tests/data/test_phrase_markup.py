"""Tests of captions with marked phrases."""

import re

import pytest

from tbnets.data.phrase_tables import (
    MarkedPhrase,
    parse_caption,
    read_sentences,
)
from tbnets.errors import InputError
from tests import refusals


def test_caption_is_taken_apart_word_by_word():
    found = parse_caption(
        "[/EN#41/people Two men] lift [/EN#7/other/vehicles a big cart] "
        "over [/EN#0/notvisual it] .",
        number=3,
    )
    assert found.number == 3
    # Words: 0 Two 1 men 2 lift 3 a 4 big 5 cart 6 over 7 it 8 .
    assert found.text == "Two men lift a big cart over it ."
    assert found.phrases == (
        MarkedPhrase("Two men", 0, 2, "41", ("people",)),
        MarkedPhrase("a big cart", 3, 6, "7", ("other", "vehicles")),
        MarkedPhrase("it", 7, 8, "0", ("notvisual",)),
    )
    for phrase in found.phrases:
        words = found.text.split()[phrase.first : phrase.end]
        assert " ".join(words) == phrase.text


@pytest.mark.parametrize(
    "line, text, spans",
    [
        ("", "", []),
        ("A dog runs .", "A dog runs .", []),
        ("[/EN#1/animals A dog]", "A dog", [(0, 2)]),
        # Tags may touch each other and what is around; blanks do not count.
        ("so[/EN#1/a b][/EN#2/c  d   e ] f", "so b d e f", [(1, 2), (2, 4)]),
        ("[/EN#00/a x][/EN#07/a y]", "x y", [(0, 1), (1, 2)]),
    ],
)
def test_caption_at_the_edges(line, text, spans):
    found = parse_caption(line)
    assert found.text == text
    assert [(p.first, p.end) for p in found.phrases] == spans
    if "00" in line:  # A chain of zeros is none.
        assert [p.chain for p in found.phrases] == ["0", "07"]


BAD_LINES = [
    "[/EN#1/people A man",
    "[/EN#1/people A man [/EN#2/a x]",
    "[/EN#1/people [/EN#2/a x] man]",
    "A man] runs",
    "[/EN#1/people A man]] runs",
    "[/EN#/people A man]",
    "[/EN#x1/people A man]",
    "[/EN#1 A man]",
    "[/EN#1/ A man]",
    "so [/EN#1/people]",
    "[/EN#1/people ]",
    "[/EN#1/people//x A man]",
    "[sic] A man",
    "[EN#1/people A man]",
    "[/EN#1/people" + " " * 200_000,  # It takes no time.
]


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:40])
def test_malformed_tags_are_refused(line):
    with pytest.raises(InputError) as error:
        parse_caption(line)
    assert len(str(error.value)) < 400


def test_bad_lines_are_named_or_left_out(tmp_path):
    path = tmp_path / "7.txt"
    path.write_text("[/EN#1/a x] .\n[/EN#/a y]\n\n[/EN#2/b z\n[/EN#3/c w]\n")
    found, problems = refusals.read_past(
        lambda problems: read_sentences(path, problems)
    )
    assert [problem.line for problem in problems] == [2, 4]
    assert [(one.number, one.text) for one in found] == [
        (0, "x ."),
        (2, ""),
        (4, "w"),
    ]


def test_files_that_are_no_captions_are_refused(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    with refusals.at(tmp_path / "empty.txt"):
        read_sentences(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes(b"x\n[/EN#1/a caf\xe9]\n")
    with refusals.at(tmp_path / "latin.txt", 2):
        read_sentences(tmp_path / "latin.txt")
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        read_sentences(tmp_path / "none.txt")


@pytest.mark.real_data
def test_sentences_of_flickr30k_entities(data_root):
    folder = data_root / "flickr30k_entities_sample" / "Sentences"
    paths = sorted(folder.glob("*.txt"))
    assert len(paths) == 9
    for path in paths:
        text = path.read_text()
        found = read_sentences(path)
        tags = re.findall(r"\[/EN#(\d+)/(\S+) ([^]]+)\]", text)
        assert tags == [
            (phrase.chain, "/".join(phrase.types), phrase.text)
            for caption in found
            for phrase in caption.phrases
        ]
        plain = re.sub(r"\[/EN#\S+ ([^]]+)\]", r"\1", text)
        assert [caption.text for caption in found] == [
            line.strip() for line in plain.splitlines()
        ]
