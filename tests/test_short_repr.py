"""What an object says of itself fits in a line or two, and holds no data."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.checks import short_text
from tbnets.data.store.arrays import FeatureArray
from tbnets.evaluation.ranks import Ranks
from tbnets.losses.ranking import LossOutput
from tbnets.serving.served import Served

CLASSES = [one for one in tbnets.__all__ if one[0].isupper()]
CLASSES = [one for one in CLASSES if inspect.isclass(getattr(tbnets, one))]
VOCABULARY = tbnets.Vocabulary(("", "[UNK]", "a", "dog"))
TREE = tbnets.read_tree("(NP (DT a) (NN dog))")
ROWS = np.arange(3)
EXAMPLES = tbnets.Examples.from_arrays(
    np.zeros((3, 5)), np.zeros((6, 4), np.int32), ROWS.repeat(2)
)
RECORDS = (
    "CaptionedImages(num_images=3, num_captions=6, split='train', path='arrays'"
)


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_class_tells_more_than_an_address(name):
    kind = getattr(tbnets, name)
    own = kind.__repr__.__module__.startswith("tbnets.")
    assert own or dataclasses.is_dataclass(kind)


@pytest.mark.parametrize(
    "value, wanted",
    [
        (VOCABULARY, "Vocabulary(size=4)"),
        (
            tbnets.Tokenizer(VOCABULARY, 20),
            "Tokenizer(vocabulary=Vocabulary(size=4), max_tokens=20)",
        ),
        (TREE, "Tree(num_nodes=3, bracketed='(NP (DT a) (NN dog))')"),
        (
            tbnets.TreeRows(tbnets.tree_arrays([TREE], VOCABULARY)),
            "TreeRows(shape=(None, 6), rows=1)",
        ),
        (EXAMPLES.records, f"{RECORDS})"),
        (
            EXAMPLES,
            f"Examples(records={RECORDS}), images=float32[5], texts=int32[4], "
            "text_ids=None)",
        ),
        (
            FeatureArray(["x", "y"], np.zeros((2, 7)), "photos.npy"),
            "FeatureArray(path='photos.npy', dim=7, rows=2)",
        ),
        (
            tbnets.WordVectors(("a",), np.zeros((1, 3), np.float32), "x.txt"),
            "WordVectors(path='x.txt', dim=3, words=1)",
        ),
        (
            tbnets.TfidfFeatures(500),
            "TfidfFeatures(num_terms=500, dim=0, words=0)",
        ),
        (tbnets.HybridMixture(7), "HybridMixture(num_components=7)"),
        (
            Ranks(ROWS, ROWS, ROWS == 1),
            "Ranks(queries=int64[3], ranks=int64[3], tied=bool[3])",
        ),
        (
            LossOutput(tf.constant(1 / 3), {"t": tf.ones([])}, {}),
            "LossOutput(total=0.3333, terms={'t': 1}, active_fraction={})",
        ),
        (
            tbnets.positive_masks(ROWS, [0, 0, 1, 2]),
            "PositiveMasks(image_to_text=bool[3, 4], text_to_text=bool[4, 4], "
            "image_to_image=bool[3, 3])",
        ),
        (tbnets.FusedAdam(0.01), "FusedAdam(learning_rate=0.01)"),
        (
            Served("runs/mine/export/1", {}, {}),
            "Served(path='runs/mine/export/1', embedding_dim=None, "
            "signatures='')",
        ),
    ],
)
def test_sizes_stand_for_contents(value, wanted):
    assert repr(value) == wanted


def test_a_layer_shows_what_is_not_as_by_default():
    assert repr(tbnets.Branch((2048, 512))) == "Branch(units=(2048, 512))"
    layer = tbnets.RecurrentEncoder(9, "gru", units=4)
    assert (
        repr(layer)
        == "RecurrentEncoder(vocabulary_size=9, cell='gru', units=4)"
    )
    assert repr(tbnets.FeatureTransform()) == "FeatureTransform(steps=())"


def test_a_network_tells_what_it_embeds_and_into_what():
    class Own(keras.layers.Layer):
        output_dim = 3

    encoder = tbnets.MeanOfWords(4, 2)
    network = tbnets.EmbeddingNetwork(
        tbnets.Branch((3,)), tbnets.Branch((3,)), text_encoder=encoder
    )
    parts = (
        "EmbeddingNetwork(image_branch=Branch(units=(3,)), "
        "text_branch=Branch(units=(3,)), text_encoder=MeanOfWords("
        "vocabulary_size=4, embedding_dim=2), "
    )
    assert repr(network) == f"{parts}built=False)"
    network.build({"images": (None, 5), "captions": (None, None)})
    # Images: 5 x 3 + 3 and 4 x 3 of batch normalisation; texts: 2 x 3 + 3 and
    # as many; 4 x 2 of words, and a count of draws of dropout.
    weights = 30 + 21 + 8 + 1
    assert repr(network) == f"{parts}embedding_dim=3, weights={weights})"
    own = repr(tbnets.CCA(Own(), Own()))
    assert " at 0x" not in own and "Own" in own


@pytest.mark.parametrize(
    "value, wanted",
    [
        (np.float32(0.1), "0.1"),
        (np.zeros((2, 0), bool), "bool[2, 0]"),
        (tf.constant(["a"]), "string[1]"),
        (tf.constant(7), "7"),
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
