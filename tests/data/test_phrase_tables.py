"""Tests of phrases and boxes of one's own."""

import json

import pytest

from tbnets.data.phrases import read_phrases
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
    with pytest.raises(ValueError, match="for 'a.jpg', one of 2. Give"):
        found.fractions()
    photos = found.in_photos([[50, 50], [60, 40]])
    assert photos.boxes.tolist() == found.boxes.tolist()
    assert photos.fractions()[0].tolist() == [1 / 50, 2 / 50, 30 / 50, 40 / 50]
    with pytest.raises(ValueError, match=r"'b/2.jpg#0#0' in an image of .60"):
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
    "bad, message",
    [
        (row(box=(30, 2, 1, 40)), "expected a box .* x_min < x_max"),
        (row(box=(1, 2, 1, 40)), "expected a box"),
        (row(box=(-1, 2, 3, 40)), "expected a box"),
        (row(box=(1, 2, 3)), r"expected a box.*found \[1, 2, 3\]"),
        (row(box=(1, 2, 3, "4")), "expected a box"),
        (row(box=(1, 2, 3, True)), "expected a box"),
        (row(box=(1, 2, 3, float("nan"))), "expected a box"),
        (row(box=(1, 2, 3, float("inf"))), "expected a box"),
        (row(width=29, height=90), "inside of 29 x 90; found"),
        (row(width=90), "expected 'width' and 'height' in whole pixels"),
        (row(width=90, height=1.5), "expected 'width' and 'height' in whole"),
        (row(width=2**64, height=2**64), "expected .width. and .height. in wh"),
        (row(width=90, height=90), "expected all rows .* one size, .0, 0"),
        (row(phrase=" "), "expected the words of a phrase"),
        (row(phrase=7), "expected a caption"),
        (
            row(caption="a blue ball"),
            "words of the caption 'a blue ball'; f",
        ),
        (row(image="../a.jpg"), "relative to"),
        (row(image=3), "not a string"),
        (row(type=3), "expected one word, or a list of words, as 'type'"),
        (row(type="a b"), "expected one word"),
        (row(chain=[1]), "expected a name or a number as 'chain'"),
        ({"image": "a.jpg", "phrase": "x"}, "with 'image', 'phrase' and 'box'"),
        ("{", "expected a JSON object"),
    ],
)
def test_bad_rows_are_named_by_line_or_left_out(write, bad, message):
    path = write(row(), bad, row(phrase="x"))
    with pytest.raises(ValueError, match=message) as error:
        read_phrases(path)
    assert str(error.value).startswith(f"{path}:2: ")
    problems = []
    found = read_phrases(path, problems=problems)
    assert found.phrases == ("a red ball", "x")
    assert [problem.line for problem in problems] == [2]


def test_photos_are_found_however_their_path_is_written(write):
    path = write(row("./a.jpg"), row("a.jpg", "a cat"), row("b//c.jpg"))
    found = read_phrases(path, images_named("a.jpg", "./b/c.jpg"))
    assert found.phrases == ("a red ball", "a cat", "a red ball")
    assert found.phrase_to_image.tolist() == [0, 0, 1]


def test_a_table_without_rows_is_refused(write):
    with pytest.raises(ValueError, match="expected rows of image, phrase, box"):
        read_phrases(write())
