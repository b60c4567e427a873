"""The doors of a served graph: what comes in is checked before it is used.

A server runs whatever its clients send. A caption of another rank would end
the process in an op that trusts its input, a number that is none would come
out as an answer. `guarded` puts a door before each input of a signature, and
every function that is exported goes through it.
"""

import numpy as np
import tensorflow as tf

from tbnets.annotations import Photos, Strings
from tbnets.checks import (
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data.images import read_content
from tbnets.data.photo_kinds import require
from tbnets.errors import InputError, check_kind
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

MOST_WORDS = 200
"""Words of a caption that a served graph reads, unless it learned of longer."""


def guarded(function):
    """Returns a function that refuses what its signature does not say.

    Rank and known sides are checked when the graph runs, and that floats are
    numbers: NaN and infinity are refused by the row that has them.

    Args:
        function: `tf.function` with an input signature.

    Returns:
        A concrete function of the same signature.
    """
    inner = function.get_concrete_function()
    specs = inner.structured_input_signature[0]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs):
        return inner(*[_enter(one, spec) for one, spec in zip(inputs, specs)])

    return call.get_concrete_function()


def _enter(value, spec):
    """Returns an input as its spec says it is."""
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
    """Returns a value, once all of its rows are good.

    Args:
        value: tensor.
        good: bool `[n]`, or `[]` of a single one.
        expectation: what is told where one is not, before its number.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, naming the row.
    """
    good = tf.reshape(good, [-1])
    first = tf.argmin(tf.cast(tf.concat([good, [False]], 0), tf.int32))
    return require(value, tf.reduce_all(good), expectation, first)


def bounded(tokenizer):
    """Returns what reads captions, with an end to how much it reads.

    Args:
        tokenizer: a `Tokenizer`, which gets a bound where it has none; or
            another reader or None, returned as it is.
    """
    if type(tokenizer) is Tokenizer and tokenizer.max_tokens is None:
        return Tokenizer(tokenizer.vocabulary, MOST_WORDS)
    return tokenizer


# What a user gives -> what a signature takes.

IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""
ARGUMENTS = {
    "embed_image": "images",
    "embed_text": "texts",
    "embed_features": "features",
    "embed_phrases": "phrases",
    "embed_regions": "features",
}
"""Endpoints that embed -> how an error calls what they are given."""
Texts = Strings | list[Tree]
Inputs = Photos | Texts


def as_input(argument, spec, values):
    """Converts one input; says what is wrong with its shape or type.

    Args:
        argument: how the message calls it.
        spec: its `tf.TensorSpec`.
        values: list of strings, or float array; for `IMAGE_BYTES` photos, as
            `images.read_content` takes them.

    Returns:
        A tensor.

    Raises:
        TypeError: one of its strings or photos is none.
        ValueError: it is no list, holds no numbers, or is of another shape.
    """
    if spec.dtype == tf.string and spec.shape.rank == 0:
        value = read_content(values) if spec.name == IMAGE_BYTES else values
        return tf.constant(value, tf.string, [])
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [read_content(one) for one in values]
        else:
            values = _encoded(argument, values)
        return tf.constant(values, tf.string, [len(values)])
    if spec.dtype == tf.int32 and not spec.shape.rank:
        most = spec.dtype.max
        number = checked_number(argument, values, 1, whole=True, most=most)
        return tf.constant(number, spec.dtype)
    advice = "Use such features as it was trained on."
    dtype, shape = spec.dtype.as_numpy_dtype, spec.shape
    shape = None if shape.rank is None else tuple(shape)
    values = as_numbers(argument, values, "numbers", shape, advice, dtype)
    check_finite(argument, values)
    return tf.constant(values)


def _encoded(argument, values):
    """Returns strings as bytes; names the first that is none."""
    advice = "Leave it out, or write it as text."
    encoded = []
    for row, value in enumerate(values):
        value = value.numpy() if tf.is_tensor(value) else value
        name = f"{argument}[{row}]"
        check_kind(name, value, (str, bytes), advice)
        try:
            encoded.append(value.encode() if isinstance(value, str) else value)
        except UnicodeEncodeError as error:
            raise InputError(
                name,
                "be text",
                f"{name}={value!r}, which UTF-8 has no bytes for",
                f"{advice}",
            ) from error
    return encoded


def is_trees(spec):
    """Tells whether an input takes trees as `TreeReader.read` makes them."""
    return spec.name == TreeReader.spec.name


# Captions as trees, at the border between strings and a network.


class TreeReader:
    """Stands where a `Tokenizer` does, for a network that reads trees.

    A graph can not parse: it takes rows of trees as `read` makes them, outside
    of the graph.

    Args:
        vocabulary: the `Vocabulary` of the words in the trees.
        max_tokens: number of words after which a caption is cut; never if
            None. Trees that come with more nodes than such captions have are
            refused.
    """

    spec = tf.TensorSpec([None, None, len(FIELDS)], tf.int32, "trees")

    def __init__(self, vocabulary, max_tokens=None):
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    def __call__(self, rows):
        """Returns rows of trees as they are, once they are found to be such.

        Args:
            rows: int32 `[n, nodes, 6]`.

        Raises:
            tf.errors.InvalidArgumentError: when the graph runs, naming the
                row that is no tree, or too many nodes.
        """
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
            "`trees` must be rows that TreeReader.read made. Received: "
            "another in row",
        )

    def read(self, captions) -> np.ndarray:
        """Returns captions as a graph takes them.

        Args:
            captions: list of strings, which are parsed by the embedded
                parser, and of `text.trees.Tree`s, which are taken as they
                are.

        Returns:
            int32 `[len(captions), nodes, 6]`.

        Raises:
            ModuleNotFoundError: strings are given, and what the parser needs
                is not installed.
        """
        captions = list(captions)
        texts = [one for one in captions if not isinstance(one, Tree)]
        parsed = parse_captions(texts, processes=1).trees if texts else {}
        trees = [
            one if isinstance(one, Tree) else read_tree(parsed[one], one)
            for one in captions
        ]
        arrays = tree_arrays(trees, self.vocabulary, self.max_tokens)
        return TreeRows(arrays).batch(np.arange(len(arrays)))
