"""Captions as trees, at the border between strings and a network."""

import tensorflow as tf

from tbnets.text.packed_trees import FIELDS


class TreeReader:
    """Stands where a `Tokenizer` does, for a network that reads trees.

    A graph can not parse: it takes rows of trees as
    `text.packed_trees.TreeRows` makes them, from trees that others parsed.

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
