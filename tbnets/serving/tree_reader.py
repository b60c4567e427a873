"""Captions as trees, at the border between strings and a network."""

import numpy as np
import tensorflow as tf

from tbnets.errors import MissingPackageError
from tbnets.text.packed_trees import FIELDS
from tbnets.text.packed_trees import TreeRows
from tbnets.text.packed_trees import tree_arrays
from tbnets.text.parsing import parse_captions
from tbnets.text.trees import Tree
from tbnets.text.trees import read_tree


class TreeReader:
    """Stands where a `Tokenizer` does, for a network that reads trees.

    A graph can not parse: it takes rows of trees as `read` makes them, outside
    of the graph.

    Args:
        vocabulary: the `Vocabulary` of the words in the trees.
        max_tokens: number of words after which a caption is cut; never if
            None.
    """

    spec = tf.TensorSpec([None, None, len(FIELDS)], tf.int32, "trees")

    def __init__(self, vocabulary, max_tokens=None):
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    def __call__(self, rows):
        """Returns rows of trees as they are."""
        return rows

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
        parsed = _parse(texts) if texts else {}
        trees = [
            one if isinstance(one, Tree) else read_tree(parsed[one], one)
            for one in captions
        ]
        arrays = tree_arrays(trees, self.vocabulary, self.max_tokens)
        return TreeRows(arrays).batch(np.arange(len(arrays)))


def _parse(captions):
    """Returns caption -> brackets; its error speaks of sentences alone."""
    try:
        return parse_captions(captions, processes=1).trees
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "Sentences must be parsed for a network that reads trees. "
            f"Received: {captions[0]!r}, without {error.name} to parse it by. "
            'Run: pip install "tbnets[parse]". From Python, `tbnets.Tree`s '
            "are taken as they are.",
            name=error.name,
        ) from error
