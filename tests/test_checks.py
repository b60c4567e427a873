"""Tests of equal texts, rows, rounded numbers and short representations."""

import math

import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.checks import (
    letters,
    per_cent,
    rounded,
    short_text,
    spelling,
    text_ids,
)


def test_texts_that_differ_in_case_and_spaces_have_one_id():
    texts = ["A dog", "a  dog ", "a cat", "A DOG", "\ufeffa dog", "a dog."]
    assert text_ids(texts).tolist() == [0, 0, 1, 0, 0, 2]


def test_a_spelling_keeps_its_capitals():
    assert spelling(" A\tDog \n") == "A Dog"


def test_letters_ignore_case_spaces_and_punctuation():
    assert letters("A T-shirt , isn't it ?") == letters("a t shirt isn't IT")


@pytest.mark.parametrize(
    "found, text",
    [
        (per_cent(0.4315), "43.2"),  # 43.15: as a float a little less.
        (per_cent(0.7525), "75.3"),  # 75.25: exact as a float, 2 is even.
        (per_cent(0.43149), "43.1"),
        (per_cent(0.1 + 0.2 + 0.1315), "43.2"),  # Noise of a sum.
        (per_cent(-0.0125), "-1.3"),
        (per_cent(0.0), "0.0"),
        (rounded(2.675, 2), "2.68"),
        (rounded(0.5, 0), "1"),
        (rounded(1e300, 0), "1" + f"{1e300:.0f}"[1:]),
        (rounded(math.nan, 1), "nan"),
        (rounded(-math.inf, 1), "-inf"),
    ],
)
def test_halves_are_rounded_away_from_zero(found, text):
    assert found == text


EXAMPLES = tbnets.Examples.from_arrays(
    np.zeros((3, 5)), np.zeros((6, 4), np.int32), np.arange(3).repeat(2)
)


@pytest.mark.parametrize(
    "value, wanted",
    [
        (
            EXAMPLES,
            "Examples(records=CaptionedImages(num_images=3, num_captions=6, "
            "split='train', path='arrays'), images=float32[5], "
            "texts=int32[4], text_ids=None)",
        ),
        (
            tbnets.EmbeddingNetwork(*[tbnets.Branch((3,))] * 2),
            "EmbeddingNetwork(image_branch=Branch(units=(3,)), "
            "text_branch=Branch(units=(3,)), built=False)",
        ),
    ],
)
def test_repr_shows_sizes_instead_of_contents(value, wanted):
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
def test_short_text_of_values(value, wanted):
    assert short_text(value) == wanted


def test_symbolic_tensors_have_a_short_text():
    seen = []

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([])])
    def show(rows, scalar):
        seen.extend(map(short_text, (rows, scalar)))

    show.get_concrete_function()
    assert seen == ["float32[?]", "float32[]"]
