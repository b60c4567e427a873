"""Tests of phrases of one's own, and of captions with marked phrases."""

import json

import pytest

from tbnets.data.phrase_tables import (
    MarkedPhrase,
    parse_caption,
    read_sentences,
)
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tests import refusals
from tests.data.test_phrases import images_named


@pytest.fixture
def write(tmp_path):
    def write_rows(*rows):
        path = tmp_path / "my.jsonl"
        lines = [r if isinstance(r, str) else json.dumps(r) for r in rows]
        path.write_text("".join(line + "\n" for line in lines))
        return path

    return write_rows


def row(image="a.jpg", phrase="a red ball", box=(1, 2, 30, 40), **more):
    return {"image": image, "phrase": phrase, "box": list(box), **more}


def test_rows_of_three_columns_are_enough(write):
    path = write(
        row("b/2.jpg"),
        row(),
        row(phrase="the ball", box=(1, 2, 30, 40)),
        row(phrase="a cat", box=(0.5, 2, 30, 40)),
    )
    found = read_phrases(path)
    assert found.images.image_ids == ("a.jpg", "b/2.jpg")
    assert found.images.captions[:3] == ("a red ball", "the ball", "a cat")
    assert found.phrase_ids[1:3] == ("a.jpg#1#0", "a.jpg#2#0")
    assert found.spans.tolist() == [[0, 3], [0, 2], [0, 2], [0, 3]]
    assert found.boxes[2].tolist() == [0.5, 2, 30, 40]
    # Equal boxes of one image are one thing.
    assert found.phrase_to_chain.tolist() == [0, 0, 1, 2]
    assert found.types == ((),) * 4 and found.left_out == {}
    assert found.image_sizes.tolist() == [[0, 0], [0, 0]]
    with pytest.raises(InputError, match="'a.jpg'"):
        found.fractions()
    photos = found.in_photos([[50, 50], [60, 40]])
    assert photos.boxes.tolist() == found.boxes.tolist()
    assert photos.fractions()[0].tolist() == [1 / 50, 2 / 50, 30 / 50, 40 / 50]
    with pytest.raises(InputError, match="'b/2.jpg#0#0'"):
        found.in_photos([[50, 50], [60, 39]])


def test_rows_with_captions_types_chains_and_sizes(write):
    caption = "A dog, a dog and two cats ."
    size = {"width": 50, "height": 50}
    path = write(
        row(phrase="a dog", caption=caption, type="animals", **size),
        row(phrase="a dog", box=(3, 3, 9, 9), caption=caption, **size),
        row(phrase="two cats", caption=caption, chain=5, **size),
        row(
            phrase="two cats",
            box=(20, 1, 50, 9),
            caption=caption,
            chain="5",
            type=["animals", "other"],
            **size,
        ),
        row("other.jpg", "x"),
    )
    found = read_phrases(path, images_named("none.jpg", "a.jpg"))
    assert found.images.image_ids == ("none.jpg", "a.jpg")
    assert found.images.captions == (caption,)
    assert found.phrases == ("a dog", "a dog", "two cats")
    # Words: 0 A 1 dog, 2 a 3 dog 4 and 5 two 6 cats 7 .
    assert found.spans.tolist() == [[0, 2], [2, 4], [5, 7]]
    assert found.chains[2] == "5"
    assert found.boxes[2].tolist() == [1, 1, 50, 40]
    assert found.types == (("animals",), (), ())
    assert found.image_sizes.tolist() == [[0, 0], [50, 50]]


@pytest.mark.parametrize(
    "bad",
    [
        *(
            row(box=box)
            for box in (
                (30, 2, 1, 40),
                (1, 2, 1, 40),
                (-1, 2, 3, 40),
                (1, 2, 3),
                (1, 2, 3, "4"),
                (1, 2, 3, True),
                (1, 2, 3, float("nan")),
                (1, 2, 3, float("inf")),
            )
        ),
        row(width=29, height=90),
        row("b.jpg", width=90),
        row("b.jpg", width=90, height=1.5),
        row("b.jpg", width=2**64, height=2**64),
        row(width=90, height=90),  # Other rows of the photo have none.
        row(phrase=" "),
        row(phrase=7),
        row(caption="a blue ball"),
        row(image="../a.jpg"),
        row(image=3),
        row(type=3),
        row(type="a b"),
        row(chain=[1]),
        {"image": "a.jpg", "phrase": "x"},
        "{",
    ],
    ids=str,
)
def test_bad_rows_are_named_by_line_or_left_out(write, bad):
    path = write(row(), bad, row(phrase="x"))
    found, [problem] = refusals.read_past(
        lambda problems: read_phrases(path, problems=problems)
    )
    assert (problem.path, problem.line) == (str(path), 2)
    assert found.phrases == ("a red ball", "x")


def test_photos_are_found_however_their_path_is_written(write):
    path = write(row("./a.jpg"), row("a.jpg", "a cat"), row("b//c.jpg"))
    found = read_phrases(path, images_named("a.jpg", "./b/c.jpg"))
    assert found.phrases == ("a red ball", "a cat", "a red ball")
    assert found.phrase_to_image.tolist() == [0, 0, 1]


def test_a_table_without_rows_is_refused(write):
    path = write()
    with refusals.at(path):
        read_phrases(path)


def test_caption_is_taken_apart_word_by_word():
    found = parse_caption(
        "[/EN#41/people Two men] lift [/EN#7/other/vehicles a big cart] "
        "over [/EN#0/notvisual it] .",
        number=3,
    )
    assert found.number == 3
    # Words: 0 Two 1 men 2 lift 3 a 4 big 5 cart 6 over 7 it 8 .
    assert found.text == "Two men lift a big cart over it ."
    assert found.phrases == [
        MarkedPhrase("Two men", 0, 2, "41", ("people",)),
        MarkedPhrase("a big cart", 3, 6, "7", ("other", "vehicles")),
        MarkedPhrase("it", 7, 8, "0", ("notvisual",)),
    ]
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
