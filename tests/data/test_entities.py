"""Tests of reading Flickr30K Entities."""

import pytest

from tbnets.data import entities
from tbnets.errors import InputError
from tbnets.files import ProblemError
from tests import refusals

BOX = "<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>"


def annotation(*objects, head="", size=(20, 30)):
    """The text of an annotation with the inside of its objects."""
    width, height = size
    lines = [f"<object>{inside}</object>" for inside in objects]
    return (
        f"{head}<annotation>\n<filename>7.jpg</filename>\n"
        f"<size><width>{width}</width><height>{height}</height></size>\n"
        + "\n".join(lines)
        + "\n</annotation>\n"
    )


def box(*edges):
    return BOX.format(*edges) + "</bndbox>"


@pytest.fixture
def write(tmp_path):
    def write_one(text, name="7.xml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_one


@pytest.mark.parametrize(
    "inside",
    [
        "<name>1</name>" + box(9, 1, 5, 8),
        "<name>1</name>" + box("x", 1, 5, 8),
        "<name>1</name><bndbox><xmin>1</xmin></bndbox>",
        box(1, 1, 2, 2),
    ],
)
def test_annotations_with_a_bad_object_name_its_place(write, inside):
    good = "<name>3</name>" + box(1, 1, 2, 2)
    path = write(annotation(good, inside, good))
    found, [problem] = refusals.read_past(
        lambda problems: entities.read_annotations(path, problems)
    )
    assert found.boxes == {"3": [[0, 0, 2, 2]] * 2}
    assert str(problem).startswith(f"{path}: object[1]: ")


ENTITIES = (
    '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">'
    '<!ENTITY file SYSTEM "file:///etc/hostname">]>\n'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<annotation>",
        "<html></html>",
        annotation(size=(-3, 5)),
        annotation(size=("9" * 5000, 5)),
        annotation("<name>&file;&c;</name>", head=ENTITIES),
        *(
            annotation("é", head=f'<?xml version="1.0" encoding="{name}"?>')
            for name in ("x", "gbk", "utf-7")
        ),
    ],
)
def test_files_that_are_not_annotations_raise_an_error(write, text):
    path = write(text)
    for problems in (None, []):
        with pytest.raises(ProblemError) as error:
            entities.read_annotations(path, problems)
        assert error.value.problem.path == str(path)


def test_annotations_too_large_are_not_read(write, monkeypatch):
    path = write(annotation())
    monkeypatch.setattr(entities, "MOST_BYTES", 50)
    with refusals.at(path):
        entities.read_annotations(path)


def test_read_boxes_by_id_or_file_name_has_each_box_once_and_scaled(write):
    same = box(3, 5, 3, 9)
    path = write(annotation("<name>1</name>" + same, "<name>2</name>" + same))
    for key in ("7", "7.jpg"):
        found = entities.read_boxes(path.parent, key)
        assert found.tolist() == [[2, 4, 3, 9]]
    # From 20 x 30 pixels to 10 x 90: a half and three times.
    found = entities.read_boxes(path.parent, "7", (10, 90))
    assert found.tolist() == [[1, 12, 1.5, 27]]
    with pytest.raises(FileNotFoundError, match="8.xml"):
        entities.read_boxes(path.parent, "8.jpg")
    for key in ("../7.jpg", "/7"):
        with pytest.raises(InputError, match="7"):
            entities.read_boxes(path.parent, key)


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
def test_captions_with_phrases_at_both_ends(line, text, spans):
    found = entities.parse_caption(line)
    assert found.text == text
    assert [p.span for p in found.phrases] == spans
    if "00" in line:  # A chain of zeros is none.
        assert [p.chain for p in found.phrases] == ["0", "07"]


BAD_LINES = [
    "[/EN#1/people A man",
    "[/EN#1/people A man [/EN#2/a x]",
    "A man] runs",
    "[/EN#/people A man]",
    "[/EN#1/ A man]",
    "so [/EN#1/people]",
    "[sic] A man",
    "[/EN#1/people" + " " * 200_000,  # It takes no time.
]


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:40])
def test_malformed_tags_raise_an_error(line):
    with pytest.raises(InputError) as error:
        entities.parse_caption(line)
    assert len(str(error.value)) < 400


def test_empty_and_missing_sentences_raise_an_error(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    with refusals.at(tmp_path / "empty.txt"):
        entities.read_sentences(tmp_path / "empty.txt")
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        entities.read_sentences(tmp_path / "none.txt")
