"""The text encoder that reads a caption along its constituency tree."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.layers.text_encoders import TextEncoder
from tbnets.layers.tree_lstm import TreeLSTM
from tbnets.text.packed_trees import PackedTrees, pack_trees


@keras.saving.register_keras_serializable(package="tbnets")
class TreeEncoder(TextEncoder):
    """Reads a caption's words along its tree with the hierarchical LSTM.

    Args:
        vocabulary_size: number of ids, padding (0) and unknown (1) included.
        embedding_dim: size of a word vector. Niu 2017: 300, of word2vec and
            frozen.
        units: size of a state.
        tied: whether noun phrases and other children share their matrices:
            the child-sum Tree-LSTM of Tai et al. 2015.
        mean_beside: whether the mean of the vectors of a node's words is
            appended to its state.
        **kwargs: see `TextEncoder`; the name and dtype of the layer.

    Returns from a call on int32 `[n, nodes, 6]` (`text.packed_trees.TreeRows`
    makes them): float `[n, output_dim]`, the state of each root: `units`, and
    `embedding_dim` for the mean.

    Example:
        trees = [tbnets.read_tree("(NP (DT a) (NN dog))")]
        arrays = tbnets.tree_arrays(trees, vocabulary)
        rows = tbnets.TreeRows(arrays).batch([0])  # (1, nodes, 6)
        tbnets.TreeEncoder(vocabulary.size)(rows).shape  # (1, 512)

    Source: Niu et al. 2017, Sec. 3.2.1. Departures: the word vectors are
    learned unless they are taken from others and `frozen`; the paper has no
    mean beside the state.
    """

    input_rank = 3

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int = 300,
        units: int = 512,
        tied: bool = False,
        mean_beside: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, embedding_dim, **kwargs)
        self.units, self.tied, self.mean_beside = units, tied, mean_beside
        self.tree_lstm = TreeLSTM(
            units, tied, name="tree_lstm", dtype=self.dtype_policy
        )
        self.output_dim = units + embedding_dim * mean_beside

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the word table and the LSTM."""
        super().build(input_shape)
        self.tree_lstm.build((None, self.embedding_dim))

    def encode_nodes(
        self, inputs: Array, training: bool = False
    ) -> tuple[tf.Tensor, PackedTrees]:
        """Returns the states of all nodes, words and phrases.

        Args:
            inputs: int32 `[n, nodes, 6]`.
            training: whether words are dropped.

        Returns:
            (states, trees): float `[num_nodes, output_dim]` and the
            `PackedTrees` that tell which tree, words and kind each row is.
        """
        if not self.built:
            self.build(inputs.shape)
        trees = pack_trees(inputs, noun_phrases=not self.tied)
        words = self.word_vectors(trees.word_ids, training)
        states = self.tree_lstm(words, trees)
        if self.mean_beside:
            states = tf.concat([states, span_means(words, trees)], axis=1)
        return states, trees

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the state of the root of each tree."""
        states, trees = self.encode_nodes(inputs, training)
        return tf.gather(states, trees.roots)


def span_means(words, trees):
    """Returns the mean of the words of each node, `[num_nodes, dim]`.

    Args:
        words: `[num_words, dim]`, in the order of `trees.word_ids`, in which
            the words of one tree stand side by side.
        trees: `PackedTrees`.
    """
    num_words, num_trees = tf.shape(words)[0], tf.size(trees.roots)
    owners = trees.trees[:num_words]
    ones = tf.ones_like(owners)
    counts = tf.math.unsorted_segment_sum(ones, owners, num_trees)
    first = tf.cumsum(counts, exclusive=True)
    places = tf.range(num_words) - tf.gather(first, owners)
    # A tree for itself, so that no caption's sums are rounded by others'.
    width = tf.reduce_max(tf.concat([counts, [0]], axis=0))
    shape = tf.stack([num_trees, width, words.shape[1]])
    places = tf.stack([owners, places], axis=1)
    own = tf.scatter_nd(places, tf.cast(words, tf.float32), shape)
    # The sum of a span: of the words up to its end, less those before it.
    sums = tf.pad(tf.cumsum(own, axis=1), [[0, 0], [1, 0], [0, 0]])
    start, end = tf.unstack(trees.spans, axis=1)
    upper, lower = (
        tf.gather_nd(sums, tf.stack([trees.trees, place], 1))
        for place in (end, start)
    )
    means = (upper - lower) / tf.cast(end - start, tf.float32)[:, None]
    return tf.cast(means, words.dtype)
