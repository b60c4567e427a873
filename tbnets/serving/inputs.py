"""Checks the inputs of endpoints: in the graph, and in Python before a call."""

import numpy as np
import tensorflow as tf

from tbnets.checks import (
    Photos,
    Strings,
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data.images import require
from tbnets.data.pictures import read_content
from tbnets.errors import check_kind
from tbnets.layers.chunks import inner_layers
from tbnets.text.packed_trees import (
    FIELDS,
    TreeRows,
    most_nodes,
    tree_arrays,
    whole_trees,
)
from tbnets.text.parsing import parse_captions
from tbnets.text.trees import Tree, read_tree
from tbnets.text.vocabulary import Tokenizer


def guarded(function):
    """Returns a concrete function that rejects invalid inputs.

    The shapes must match the input signature, and the numbers must be finite.
    """
    inner = function.get_concrete_function()
    specs = inner.structured_input_signature[0]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs):
        return inner(*[_enter(x, spec) for x, spec in zip(inputs, specs)])

    return call.get_concrete_function()


def _enter(value, spec):
    value = tf.ensure_shape(value, spec.shape)
    if not spec.dtype.is_floating:
        return value
    finite = tf.math.is_finite(value)
    if spec.shape.rank:
        finite = tf.reduce_all(finite, axis=list(range(1, spec.shape.rank)))
    return require_rows(
        value, finite, f"`{spec.name}` must be finite numbers. Received: row"
    )


def require_rows(value, good, expectation):
    """Returns `value` after checking that all rows are valid.

    `good` is bool `[n]`, whether each row is valid, or `[]` for a single value.
    If a row is invalid, the graph raises `tf.errors.InvalidArgumentError` with
    the message `expectation` and the index of the row.
    """
    good = tf.reshape(good, [-1])
    first = tf.argmin(tf.cast(tf.concat([good, [False]], 0), tf.int32))
    return require(value, tf.reduce_all(good), expectation, first)


IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""
ARGUMENTS = {
    "embed_image": "images",
    "embed_text": "texts",
    "embed_features": "features",
    "embed_cells": "images",
    "embed_phrases": "phrases",
    "embed_regions": "features",
}
"""Maps each embedding endpoint to the name of its argument in error
messages."""
Texts = Strings | list[Tree]
Inputs = Photos | Texts


def as_input(argument, spec, values):
    """Converts an input to a tensor, after checking its shape and type.

    `argument` is its name in error messages. `values` is a list of strings, a
    float array or, for `IMAGE_BYTES`, photos as in `pictures.read_content`.
    Raises TypeError or ValueError if `values` does not match `spec`.
    """
    if spec.dtype == tf.string and spec.shape.rank == 0:
        value = read_content(values) if spec.name == IMAGE_BYTES else values
        return tf.constant(value, tf.string, [])
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [read_content(photo) for photo in values]
        else:
            values = _encoded(argument, values)
        return tf.constant(values, tf.string, [len(values)])
    if spec.dtype == tf.int32 and not spec.shape.rank:
        most = spec.dtype.max
        number = checked_number(argument, values, 1, whole=True, most=most)
        return tf.constant(number, spec.dtype)
    advice = "Use the features that the model was trained on."
    dtype, shape = spec.dtype.as_numpy_dtype, spec.shape
    shape = None if shape.rank is None else tuple(shape)
    values = as_numbers(argument, values, "numbers", shape, advice, dtype)
    check_finite(argument, values)
    return tf.constant(values)


def _encoded(argument, values):
    advice = "Leave it out, or write it as text."
    encoded = []
    for row, value in enumerate(values):
        value = value.numpy() if tf.is_tensor(value) else value
        check_kind(f"{argument}[{row}]", value, (str, bytes), advice)
        encoded.append(value.encode() if isinstance(value, str) else value)
    return encoded


MOST_WORDS = 200
"""Default number of words after which a served graph truncates a caption."""


class OwnTexts(tf.Module):
    """Replaces the `Tokenizer` of a network whose own layers read its texts.

    `reader` is the Keras layer, and `spec` is the `tf.TensorSpec` of its input.
    """

    vocabulary = max_tokens = None

    def __init__(self, reader, spec):
        super().__init__(name="tokenizer")
        self.spec = spec
        # A SavedModel must track the lookup tables of its graphs.
        self.tables = [
            value
            for layer in inner_layers(reader)
            for value in vars(layer).values()
            if isinstance(value, tf.lookup.StaticHashTable)
        ]

    def __call__(self, rows):
        """Returns the captions unchanged."""
        return rows


def bounded(tokenizer):
    """Returns a tokenizer, or a copy with a word limit if it has no limit."""
    if type(tokenizer) is Tokenizer and tokenizer.max_tokens is None:
        return Tokenizer(tokenizer.vocabulary, MOST_WORDS)
    return tokenizer


def is_trees(spec):
    """Returns whether an input must be a result of `TreeReader.read`."""
    return spec.name == TreeReader.spec.name


class FeaturesAndWordsReader(tf.Module):
    """Converts captions for `layers.text_encoders.FeaturesAndMean`.

    `features` is a `CaptionReader`, and `words` is a `Tokenizer`. A call maps
    strings `[n]` to int32 `[n, feature_dim + words]`.
    """

    def __init__(self, features, words):
        super().__init__(name="reader")
        self.features, self.words = features, words
        self.tokenizer = features.tokenizer
        self.vocabulary, self.max_tokens = words.vocabulary, words.max_tokens

    def __call__(self, captions):
        """Returns the bits of the features, followed by the ids."""
        bits = tf.bitcast(self.features(captions), tf.int32)
        return tf.concat([bits, self.words(captions)], axis=1)


class TreeReader:
    """Replaces the `Tokenizer` of a network that reads trees.

    A graph cannot parse sentences, so `read` parses them outside the graph.
    `max_tokens` limits the number of words and nodes of a caption.
    """

    spec = tf.TensorSpec([None, None, len(FIELDS)], tf.int32, "trees")

    def __init__(self, vocabulary, max_tokens=None):
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    def __call__(self, rows):
        """Checks the rows in the graph, and returns int32 `[n, nodes, 6]`."""
        if self.max_tokens is not None:
            most = most_nodes(self.max_tokens)
            nodes = tf.shape(rows)[1]
            rows = require(
                rows,
                nodes <= most,
                f"`trees` must have at most {most} nodes, padding included. "
                "Received nodes:",
                nodes,
            )
        return require_rows(
            rows,
            whole_trees(rows, self.vocabulary.size),
            "`trees` must be rows from TreeReader.read. Received: an invalid "
            "tree in row",
        )

    def read(self, captions) -> np.ndarray:
        """Parses strings, and converts all trees to the graph's input.

        Returns:
            int32 `[len(captions), nodes, 6]`.
        """
        captions = list(captions)
        texts = [c for c in captions if not isinstance(c, Tree)]
        parsed = parse_captions(texts, processes=1).trees if texts else {}
        trees = [
            c if isinstance(c, Tree) else read_tree(parsed[c], c)
            for c in captions
        ]
        arrays = tree_arrays(trees, self.vocabulary, self.max_tokens)
        return TreeRows(arrays).batch(np.arange(len(arrays)))
