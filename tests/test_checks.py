"""Tests of equal texts, rows, rounded numbers and short representations."""

import dataclasses
import inspect
import math

import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.checks import (
    letters,
    per_cent,
    place_among_equals,
    rounded,
    rows_by,
    rows_of,
    short_text,
    spelling,
    text_ids,
)
from tbnets.serving.served import Served


def test_texts_that_read_the_same_have_one_id():
    texts = ["A dog", "a  dog ", "a cat", "A DOG", "\ufeffa dog", "a dog."]
    assert text_ids(texts).tolist() == [0, 0, 1, 0, 0, 2]


def test_a_spelling_keeps_its_capitals():
    assert spelling(" A\tDog \n") == "A Dog"


def test_letters_are_what_two_hands_share():
    assert letters("A T-shirt , isn't it ?") == letters("a t shirt isn't IT")


def test_rows_are_found_by_id():
    assert rows_of(("c", "a"), ("a", "b", "c")).tolist() == [2, 0]
    assert rows_of((), ("a",)).dtype == np.int64


def test_rows_of_each_value_ascend():
    values = np.array([2, 0, 2, 0, 4])
    found = rows_by(values, 6)
    assert [rows.tolist() for rows in found] == [
        [1, 3],
        [],
        [0, 2],
        [],
        [4],
        [],
    ]
    assert len(rows_by(values)) == 5
    assert rows_by(np.zeros(0, np.int64)) == []
    nobody = rows_by(np.zeros(0, np.int64), 2)
    assert [rows.tolist() for rows in nobody] == [[], []]


def test_places_count_the_equal_ones_before():
    values = np.array([7, 3, 7, 7, 3])
    assert place_among_equals(values).tolist() == [0, 0, 1, 2, 1]


# Halves are rounded away from zero.


@pytest.mark.parametrize(
    "share, text",
    [
        (0.4315, "43.2"),  # 43.15: as a float a little less than that.
        (0.7525, "75.3"),  # 75.25: exact as a float, the even digit is 2.
        (0.5105, "51.1"),
        (0.43149, "43.1"),
        (0.1 + 0.2 + 0.1315, "43.2"),  # Noise of a sum.
        (-0.0125, "-1.3"),
        (0.0, "0.0"),
        (1, "100.0"),
    ],
)
def test_halves_of_per_cents_go_up(share, text):
    assert per_cent(share) == text


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (336.25, 1, "336.3"),
        (2.675, 2, "2.68"),
        (0.5, 0, "1"),
        (1e300, 0, "1" + f"{1e300:.0f}"[1:]),
        (math.nan, 1, "nan"),
        (-math.inf, 1, "-inf"),
    ],
)
def test_numbers_follow_the_same_rule(value, digits, text):
    assert rounded(value, digits) == text


CLASSES = [one for one in tbnets.__all__ if one[0].isupper()]
CLASSES = [one for one in CLASSES if inspect.isclass(getattr(tbnets, one))]
EXAMPLES = tbnets.Examples.from_arrays(
    np.zeros((3, 5)), np.zeros((6, 4), np.int32), np.arange(3).repeat(2)
)


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_class_tells_more_than_an_address(name):
    kind = getattr(tbnets, name)
    own = kind.__repr__.__module__.startswith("tbnets.")
    assert own or dataclasses.is_dataclass(kind)


@pytest.mark.parametrize(
    "value, wanted",
    [
        (tbnets.Vocabulary(("", "[UNK]", "a")), "Vocabulary(size=3)"),
        (
            EXAMPLES,
            "Examples(records=CaptionedImages(num_images=3, num_captions=6, "
            "split='train', path='arrays'), images=float32[5], "
            "texts=int32[4], text_ids=None)",
        ),
        (
            Served("runs/mine/export/1", {}, {}),
            "Served(path='runs/mine/export/1', embedding_dim=None, "
            "signatures='')",
        ),
        (
            tbnets.EmbeddingNetwork(*[tbnets.Branch((3,))] * 2),
            "EmbeddingNetwork(image_branch=Branch(units=(3,)), "
            "text_branch=Branch(units=(3,)), built=False)",
        ),
    ],
)
def test_sizes_stand_for_contents(value, wanted):
    assert repr(value) == wanted


@pytest.mark.parametrize(
    "value, wanted",
    [
        (np.float32(0.1), "0.1"),
        (np.zeros((2, 0), bool), "bool[2, 0]"),
        (tf.constant(["a"]), "string[1]"),
        (tf.Variable(0.5), "0.5"),
        (list(range(5)), "5 items"),
        ([1.5, (2,)], "[1.5, (2,)]"),
        ("x" * 90, repr("x" * 80) + "..."),
        (object(), "object"),
    ],
)
def test_values_are_short(value, wanted):
    assert short_text(value) == wanted


def test_what_is_not_known_in_a_graph_is_not_asked():
    seen = []

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([])])
    def show(rows, scalar):
        seen.extend(map(short_text, (rows, scalar)))

    show.get_concrete_function()
    assert seen == ["float32[?]", "float32[]"]
