"""Captions as trees, at the border between strings and a network."""

import numpy as np
import tensorflow as tf

from tbnets.data.photo_head import require
from tbnets.serving.doors import require_rows
from tbnets.text.packed_trees import FIELDS, TreeRows, tree_arrays
from tbnets.text.parsing import parse_captions
from tbnets.text.tree_checks import most_nodes, whole_trees
from tbnets.text.trees import Tree, read_tree


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
