"""Text encoders: layers that map word ids `[n, words]` to text features.

Id 0 is padding. The number of padded columns does not change the output.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.errors import check_choice
from tbnets.layers.branch import SeededDropout
from tbnets.layers.configured import ConfiguredLayer

TRAININGS = ("trained", "frozen")
POOLINGS = ("last", "mean", "max")
CELLS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}


def pool_words(states, mask, pooling):
    """Pools `[n, words, dim]` over the words in the mask `[n, words]`.

    `pooling` is `cls` (the first state), `max`, or otherwise the mean, which is
    0 for a row without words.
    """
    if pooling == "cls":
        return states[:, 0]
    keep = mask[:, :, tf.newaxis]
    if pooling == "max":
        return tf.reduce_max(tf.where(keep, states, states.dtype.min), axis=1)
    total = tf.reduce_sum(tf.where(keep, states, 0), axis=1)
    count = tf.reduce_sum(tf.cast(mask, states.dtype), axis=1, keepdims=True)
    return tf.math.divide_no_nan(total, count)


class TextEncoder(ConfiguredLayer):
    """Base class of text encoders that read word ids.

    A subclass defines `call`, sets `output_dim` and builds its own layers.

    Args:
        vocabulary_size: number of ids, including padding (0) and unknown (1).
        embedding_dim: size of a word vector.
        word_dropout: dropout rate on the units of the word vectors.
        seed: integer seed of the dropout masks.
        word_training: whether the word vectors are `trained` or `frozen`.

    Example:
        class Largest(tbnets.TextEncoder):
            def call(self, inputs, training=False):
                vectors = self.word_vectors(inputs, training)
                return tf.reduce_max(vectors, axis=1)

        Largest(vocabulary.size)(word_ids).shape  # (n, 300)
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int = 300,
        word_dropout: float = 0.0,
        seed: int = 0,
        word_training: str = "trained",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checked_number("vocabulary_size", vocabulary_size, 1, whole=True)
        checked_number("embedding_dim", embedding_dim, 1, whole=True)
        sizes = vocabulary_size, embedding_dim
        self.vocabulary_size, self.embedding_dim = sizes
        self.word_dropout, self.seed = word_dropout, seed
        check_choice("word_training", word_training, TRAININGS)
        self.word_training = word_training
        options = {"name": "words", "dtype": self.dtype_policy}
        self.embedding = keras.layers.Embedding(
            *sizes, trainable=word_training == "trained", **options
        )
        self.drop = SeededDropout(word_dropout, seed, dtype=self.dtype_policy)
        self.output_dim: int = embedding_dim

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the embedding table."""
        self.embedding.build(input_shape)
        self.drop.build((*input_shape, self.embedding_dim))
        super().build(input_shape)

    def word_vectors(self, ids: Array, training: bool) -> tf.Tensor:
        """Returns the vectors of word ids of any shape, after dropout."""
        return self.drop(self.embedding(ids), training=training)


@keras.saving.register_keras_serializable(package="tbnets")
class MeanOfWords(TextEncoder):
    """Averages the learned vectors of a caption's words.

    The arguments are those of `TextEncoder`. A call maps int `[n, words]` to
    float `[n, embedding_dim]`.

    Example:
        encoder = tbnets.MeanOfWords(vocabulary.size)
        encoder(tbnets.Tokenizer(vocabulary)(captions)).shape  # (n, 300)

    Source: the "mean vector" rows of Wang et al. 2016, Table 1 (c). Departures:
    the vectors are learned. For fixed word2vec, assign `embedding.embeddings`
    and set `word_training="frozen"`.
    """

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns each row's mean word vector."""
        words = self.word_vectors(inputs, training)
        return pool_words(words, tf.not_equal(inputs, 0), "mean")


@keras.saving.register_keras_serializable(package="tbnets")
class FeaturesAndMean(MeanOfWords):
    """Appends the mean of learned word vectors to fixed text features.

    Args:
        vocabulary_size: number of word ids.
        feature_dim: number of features.
        **kwargs: other arguments of `TextEncoder`, and the layer's name and
            dtype.

    A call maps int32 `[n, feature_dim + words]`, the bits of float32 features
    followed by word ids, to float `[n, feature_dim + embedding_dim]`.

    Example:
        encoder = tbnets.FeaturesAndMean(vocabulary.size, 64)
        bits = tf.bitcast(text_features, tf.int32)
        encoder(tf.concat([bits, word_ids], axis=1)).shape  # (30, 364)
    """

    def __init__(
        self, vocabulary_size: int, feature_dim: int, **kwargs: Any
    ) -> None:
        super().__init__(vocabulary_size, **kwargs)
        self.feature_dim = feature_dim
        self.output_dim += feature_dim

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns each row's features and mean word vector."""
        features = tf.bitcast(inputs[:, : self.feature_dim], tf.float32)
        words = super().call(inputs[:, self.feature_dim :], training)
        return tf.concat([tf.cast(features, words.dtype), words], axis=1)


@keras.saving.register_keras_serializable(package="tbnets")
class RecurrentEncoder(TextEncoder):
    """Encodes captions with an LSTM or a GRU.

    Args:
        vocabulary_size: number of word ids.
        cell: `lstm` (Wang et al. 2018) or `gru` (Vilalta et al. 2017).
        embedding_dim: size of a word vector.
        units: state size per direction.
        bidirectional: whether to append the output of a second network that
            reads the caption backwards.
        pooling: `last` for the last state (both papers), or `mean` or `max`
            over all states.
        mean_beside: whether to append the mean word vector.
        **kwargs: other arguments of `TextEncoder`, and the layer's name and
            dtype.

    A call maps int `[n, words]` to float `[n, output_dim]`. `output_dim` is
    `units` (`2 * units` if bidirectional), plus `embedding_dim` if
    `mean_beside` is true.

    Example:
        encoder = tbnets.RecurrentEncoder(vocabulary.size, "gru", units=1024)
        encoder(tbnets.Tokenizer(vocabulary)(captions)).shape  # (n, 1024)

    Source: Wang et al. 2018, Sec. 5.3.
    """

    def __init__(  # noqa: PLR0913  (a layer's hyper-parameters, all by name)
        self,
        vocabulary_size: int,
        cell: str = "lstm",
        embedding_dim: int = 256,
        units: int = 512,
        bidirectional: bool = False,
        pooling: str = "last",
        mean_beside: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, embedding_dim, **kwargs)
        check_choice("cell", cell, CELLS)
        check_choice("pooling", pooling, POOLINGS)
        checked_number("units", units, 1, whole=True)
        self.cell, self.units, self.bidirectional = cell, units, bidirectional
        self.pooling, self.mean_beside = pooling, mean_beside
        options = {"name": cell, "dtype": self.dtype_policy}
        layer = CELLS[cell](
            units, return_sequences=pooling != "last", **options
        )
        if bidirectional:
            options["name"] = "both_directions"
            layer = keras.layers.Bidirectional(layer, **options)
        self.recurrence = layer
        self.output_dim = units * (1 + bidirectional)
        self.output_dim += embedding_dim * mean_beside

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the embedding table and the recurrent layer."""
        super().build(input_shape)
        self.recurrence.build((*input_shape, self.embedding_dim))

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the text features of each row of ids."""
        if inputs.shape[0] == 0:  # Keras' LSTM cannot read 0 rows.
            return self.call(tf.zeros([1, 1], tf.int32))[:0]
        mask = tf.not_equal(inputs, 0)
        words = self.word_vectors(inputs, training)
        features = self.recurrence(words, mask=mask)
        if self.pooling != "last":
            features = pool_words(features, mask, self.pooling)
        if self.mean_beside:
            mean = pool_words(words, mask, "mean")
            features = tf.concat([features, mean], axis=1)
        return features
