"""What an object says of itself fits in a line or two, and holds no data."""

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.checks import short_text
from tbnets.serving.served import Served

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
