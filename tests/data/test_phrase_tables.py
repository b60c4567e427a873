"""Tests of phrases of one's own."""

import json

import pytest

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
                (1, 2, 3, "4"),
                (1, 2, 3, float("nan")),
            )
        ),
        row("b.jpg", width=29, height=90),
        row("b.jpg", width=90),
        row("b.jpg", width=2**64, height=2**64),
        row(width=90, height=90),  # Other rows of the photo have none.
        row(caption="a blue ball"),
        row(image="../a.jpg"),
        row(type=3),
        row(chain=[1]),
        {"image": "a.jpg", "phrase": "x"},
    ],
    ids=str,
)
def test_the_error_of_a_bad_row_names_its_line_and_other_rows_are_read(
    write, bad
):
    path = write(row(), bad, row(phrase="x"))
    found, [problem] = refusals.read_past(
        lambda problems: read_phrases(path, problems=problems)
    )
    assert (problem.path, problem.line) == (str(path), 2)
    assert found.phrases == ("a red ball", "x")


def test_a_table_without_rows_is_refused(write):
    path = write()
    with refusals.at(path):
        read_phrases(path)
