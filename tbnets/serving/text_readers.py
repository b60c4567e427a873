"""Converts texts in the graph for networks that do not use a `Tokenizer`.

Also limits the number of words of a served caption.
"""

import numpy as np
import tensorflow as tf

from tbnets.data.images import require
from tbnets.layers.chunks import inner_layers
from tbnets.serving.inputs import require_rows
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
