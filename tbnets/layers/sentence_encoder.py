"""The text network of BERT with a pooled output, as one Keras layer."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tbnets.checks import Array
from tbnets.errors import check_choice
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.text_encoders import pool_words

SENTENCE_POOLINGS = ("mean", "max", "cls")


class _Block(keras.layers.Layer):
    """One layer of BERT: self-attention and two dense layers.

    A call maps states `[n * words, dim]` and a bool mask `[n, words]`, which is
    False for padding, to states of the same shape.
    """

    def __init__(self, dim, heads, hidden, epsilon, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        options = {"dtype": self.dtype_policy}

        def dense(name, units=dim, **more):
            return keras.layers.Dense(units, name=name, **more, **options)

        def norm(name):
            return keras.layers.LayerNormalization(
                epsilon=epsilon, name=name, **options
            )

        self.query, self.key, self.value = map(dense, ("query", "key", "value"))
        self.attended, self.attended_norm = dense("out"), norm("out_norm")
        self.hidden = dense("hidden", hidden, activation="gelu")
        self.output_dense, self.output_norm = dense("dense"), norm("norm")
        self._steps = [
            self.query,
            self.key,
            self.value,
            self.attended,
            self.attended_norm,
            self.hidden,
            self.output_norm,
        ]

    def build(self, input_shape):
        for step in self._steps:
            step.build((None, self.dim))
        self.output_dense.build((None, self.hidden.units))
        super().build(input_shape)

    def call(self, states, mask):
        count, width = tf.shape(mask)[0], tf.shape(mask)[1]
        size = self.dim // self.heads

        def split(layer):
            shape = (count, width, self.heads, size)
            return tf.transpose(tf.reshape(layer(states), shape), (0, 2, 1, 3))

        # softmax(Q K^T / sqrt(d)) V, Eq. 1 of Vaswani et al. 2017.
        scores = tf.matmul(split(self.query), split(self.key), transpose_b=True)
        scores = tf.cast(scores, tf.float32) / np.sqrt(size)
        scores = tf.where(mask[:, None, None], scores, scores.dtype.min)
        weights = tf.cast(tf.nn.softmax(scores), states.dtype)
        mixed = tf.matmul(weights, split(self.value))
        mixed = tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), tf.shape(states))
        states = self.attended_norm(states + self.attended(mixed))
        changed = self.output_dense(self.hidden(states))
        return self.output_norm(states + changed)


@keras.saving.register_keras_serializable(package="tbnets")
class SentenceEncoder(ConfiguredLayer):
    """Encodes captions with a BERT-like network and pools its token states.

    The initial weights are random; `load` sets those of a published model.

    Args:
        vocabulary_size: number of word pieces.
        dim: size of a token state.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        hidden_dim: size of the hidden layer of a block.
        max_tokens: number of positions.
        epsilon: constant of the layer normalisations.
        pooling: "mean" or "max" over the tokens, or "cls" for the first.
        normalize: whether the output has unit length.

    A call maps ids, int `[n, tokens]` with 0 as padding, to float
    `[n, output_dim]`. A row without ids maps to zeros.

    Example:
        encoder = tbnets.SentenceEncoder(vocabulary.size, 32, 2, 4, 64)
        encoder(word_ids).shape  # (30, 32)

    Source: Devlin et al. 2019; Reimers and Gurevych 2019, Sec. 3 (pooling).
    Departures: no dropout, since the encoder is frozen.
    """

    def __init__(  # noqa: PLR0913  (a network's sizes, all by name)
        self,
        vocabulary_size: int = 30522,
        dim: int = 384,
        num_layers: int = 6,
        num_heads: int = 12,
        hidden_dim: int = 1536,
        max_tokens: int = 512,
        epsilon: float = 1e-12,
        pooling: str = "mean",
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("pooling", pooling, SENTENCE_POOLINGS)
        self.vocabulary_size, self.dim = vocabulary_size, dim
        self.num_layers, self.num_heads = num_layers, num_heads
        self.hidden_dim, self.max_tokens = hidden_dim, max_tokens
        self.epsilon, self.pooling = epsilon, pooling
        self.normalize, self.output_dim = normalize, dim
        options = {"dtype": self.dtype_policy}
        self.norm = keras.layers.LayerNormalization(
            epsilon=epsilon, name="norm", **options
        )
        self.blocks = [
            _Block(dim, num_heads, hidden_dim, epsilon, name=f"{n}", **options)
            for n in range(num_layers)
        ]

    def build(self, input_shape: Any) -> None:
        """Creates the embedding tables and builds the blocks."""
        self.words = self.add_weight(
            name="words", shape=(self.vocabulary_size, self.dim)
        )
        self.positions = self.add_weight(
            name="positions", shape=(self.max_tokens, self.dim)
        )
        for layer in (self.norm, *self.blocks):
            layer.build((None, self.dim))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the vector of each row of ids."""
        ids = tf.cast(inputs, tf.int32)[:, : self.max_tokens]
        mask, width = tf.not_equal(ids, 0), tf.shape(ids)[1]
        words, positions = map(
            tf.convert_to_tensor, (self.words, self.positions)
        )
        states = tf.gather(words, ids) + positions[:width]
        # Rank-2 operands: TensorFlow multiplies each row of a batch separately
        # if a matrix product has one operand of rank 3.
        states = self.norm(tf.reshape(states, [-1, self.dim]))
        for block in self.blocks:
            states = block(states, mask)
        states = tf.reshape(states, [-1, width, self.dim])
        pooled = pool_words(states, mask, self.pooling)
        return tf.math.l2_normalize(pooled, 1) if self.normalize else pooled

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets the weights from those of a `BertModel`, by its names.

        Raises:
            KeyError: a weight is missing.
            ValueError: a weight has another shape.
        """
        if not self.built:
            self.build((None, None))

        def get(name):
            return np.asarray(weights[name], np.float32)

        def set_dense(layer, name):
            layer.set_weights([get(f"{name}.weight").T, get(f"{name}.bias")])

        def set_norm(layer, name):
            name = f"{name}.LayerNorm"
            layer.set_weights([get(f"{name}.weight"), get(f"{name}.bias")])

        first = "embeddings"
        self.words.assign(get(f"{first}.word_embeddings.weight"))
        kinds = get(f"{first}.token_type_embeddings.weight")
        positions = get(f"{first}.position_embeddings.weight") + kinds[0]
        self.positions.assign(positions)
        set_norm(self.norm, first)
        for number, block in enumerate(self.blocks):
            at = f"encoder.layer.{number}"
            for part in ("query", "key", "value"):
                set_dense(getattr(block, part), f"{at}.attention.self.{part}")
            set_dense(block.attended, f"{at}.attention.output.dense")
            set_norm(block.attended_norm, f"{at}.attention.output")
            set_dense(block.hidden, f"{at}.intermediate.dense")
            set_dense(block.output_dense, f"{at}.output.dense")
            set_norm(block.output_norm, f"{at}.output")
