"""Layers that compute the vectors of caption encoders from word ids.

The layers store the arrays of a fitted `CaptionEncoder` as non-trainable
weights. Padding (id 0) and unknown words (id 1) are ignored.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import Array
from tbnets.layers.configured import FittedLayer
from tbnets.text.plain_tokenizer import FIRST_WORD_ID


class _EncoderLayer(FittedLayer):
    """A layer whose constants are copied from an encoder's arrays.

    Attributes:
        word_constants: names of the constants that contain a row for each id.
        other_constants: names of the remaining constants.
    """

    word_constants: tuple[str, ...] = ()
    other_constants: tuple[str, ...] = ()

    def fitted(self, encoder: Any) -> Self:
        """Builds the layer, copies an encoder's arrays, and returns the layer.

        `encoder` is a fitted `CaptionEncoder`.
        """
        self.build((None, None))
        for name in (*self.word_constants, *self.other_constants):
            values = np.asarray(getattr(encoder, f"{name}_"))
            if name in self.word_constants:  # Rows for padding and unknown.
                values = np.insert(values, [0] * FIRST_WORD_ID, 0, axis=0)
            weight = getattr(self, name)
            weight.assign(tf.cast(values, weight.dtype))
        return self


@keras.saving.register_keras_serializable(package="tbnets")
class TfidfVectors(_EncoderLayer):
    """Computes the same vectors as `features.tfidf.TfidfFeatures`.

    Args:
        vocabulary_size: number of word ids.
        num_terms: size of the dictionary.

    A call maps int `[n, words]` to float32 `[n, num_terms]`.

    Example:
        encoder = tbnets.TfidfFeatures(3000).fit(captions)
        reader = tbnets.CaptionReader(encoder)
        reader.layer(reader.tokenizer(captions)).shape  # (n, encoder.dim)
    """

    word_constants, other_constants = ("columns",), ("idf",)

    def __init__(
        self, vocabulary_size: int, num_terms: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.num_terms = self.output_dim = num_terms

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the constants. `fitted` sets their values."""
        size = (self.vocabulary_size,)
        # TensorFlow keeps int32 variables on the host.
        self.constant("columns", size, dtype="int64")
        self.constant("idf", (self.num_terms,))
        super().build(input_shape)

    def call(self, inputs: Array) -> tf.Tensor:
        """Returns each row's tf-idf vector, which has norm 1 or is 0."""
        ids = tf.cast(inputs, tf.int32)
        columns = tf.gather(tf.convert_to_tensor(self.columns), ids)
        columns = tf.cast(columns, tf.int32)
        count = tf.shape(ids)[0]
        rows = tf.broadcast_to(tf.range(count)[:, None], tf.shape(ids))
        counts = tf.scatter_nd(
            tf.stack([rows, columns], axis=-1),
            tf.cast(ids >= FIRST_WORD_ID, tf.float32),
            tf.stack([count, self.num_terms]),
        )
        weighted = counts * tf.convert_to_tensor(self.idf)
        return tf.math.l2_normalize(weighted, axis=-1)


@keras.saving.register_keras_serializable(package="tbnets")
class MeanVectors(_EncoderLayer):
    """Computes the same vectors as `features.caption_encoder.MeanFeatures`.

    Args:
        vocabulary_size: number of word ids.
        word_dim: size of a word vector.

    A call maps int `[n, words]` to float32 `[n, word_dim]`.

    Example:
        encoder = tbnets.MeanFeatures().fit(captions, vectors)
        reader = tbnets.CaptionReader(encoder)
        reader.layer(reader.tokenizer(captions)).shape  # (n, vectors.dim)
    """

    word_constants = ("vectors",)

    def __init__(
        self, vocabulary_size: int, word_dim: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.word_dim = self.output_dim = word_dim

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the constants. `fitted` sets their values."""
        self.constant("vectors", (self.vocabulary_size, self.word_dim))
        super().build(input_shape)

    def call(self, inputs: Array) -> tf.Tensor:
        """Returns the mean vector of the known words in each row of ids."""
        vectors = tf.gather(tf.convert_to_tensor(self.vectors), inputs)
        is_known = tf.cast(inputs >= FIRST_WORD_ID, tf.float32)
        words = tf.reduce_sum(is_known, axis=1, keepdims=True)
        total = tf.einsum("nw,nwd->nd", is_known, vectors)
        return tf.math.divide_no_nan(total, words)


@keras.saving.register_keras_serializable(package="tbnets")
class FisherVectors(_EncoderLayer):
    """Computes the same vectors as `features.fisher.FisherFeatures`.

    Args:
        vocabulary_size: number of word ids.
        word_dim: size of a word vector after ICA.
        num_components: number of mixture components.
        pca_dim: number of dimensions after PCA, or 0 for no PCA.

    A call maps int `[n, words]` to float32 `[n, output_dim]`.

    Example:
        encoder = tbnets.FisherFeatures(30).fit(captions, vectors)
        reader = tbnets.CaptionReader(encoder)
        reader.layer(reader.tokenizer(captions)).shape  # (n, encoder.dim)
    """

    word_constants = ("vectors", "shares")
    other_constants = ("locations", "scales", "laplacian")

    def __init__(
        self,
        vocabulary_size: int,
        word_dim: int,
        num_components: int = 30,
        pca_dim: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size, self.word_dim = vocabulary_size, word_dim
        self.num_components, self.pca_dim = num_components, pca_dim
        self.full_dim = 2 * num_components * word_dim
        self.output_dim = pca_dim or self.full_dim

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the constants. `fitted` sets their values."""
        words, components = self.vocabulary_size, self.num_components
        shape = (components, self.word_dim)
        self.constant("vectors", (words, self.word_dim))
        self.constant("shares", (words, components))
        self.constant("locations", shape)
        self.constant("scales", shape, "ones")
        self.constant("laplacian", shape)
        if self.pca_dim:
            self.constant("pca_mean", (self.full_dim,))
            self.constant("pca_axes", (self.pca_dim, self.full_dim))
            self.other_constants += ("pca_mean", "pca_axes")
        super().build(input_shape)

    def call(self, inputs: Array) -> tf.Tensor:
        """Returns each row's Fisher vector, after PCA if `pca_dim` is not 0."""
        vectors = tf.gather(tf.convert_to_tensor(self.vectors), inputs)
        shares = tf.gather(tf.convert_to_tensor(self.shares), inputs)

        def sums(component):
            share, location, scale, laplacian = component
            z = (vectors - location) / scale
            first = tf.where(laplacian, tf.sign(z), z)
            half = np.float32(np.sqrt(0.5))
            second = tf.where(laplacian, tf.abs(z) - 1, (z * z - 1) * half)
            parts = first, second
            gradients = [tf.einsum("nw,nwd->nd", share, part) for part in parts]
            return tf.concat(gradients, axis=1)

        components = (
            tf.transpose(shares, [2, 0, 1]),
            tf.convert_to_tensor(self.locations),
            tf.convert_to_tensor(self.scales),
            tf.convert_to_tensor(self.laplacian) > 0.5,
        )
        kind = tf.TensorSpec([None, 2 * self.word_dim], tf.float32)
        rows = tf.map_fn(sums, components, fn_output_signature=kind)
        rows = tf.reshape(tf.transpose(rows, [1, 0, 2]), [-1, self.full_dim])
        rows = tf.sign(rows) * tf.sqrt(tf.abs(rows))
        rows = tf.math.l2_normalize(rows, axis=-1)
        if not self.pca_dim:
            return rows
        # Rows of zeros must remain zeros.
        has_words = tf.reduce_any(rows != 0, axis=1, keepdims=True)
        rows = rows - tf.convert_to_tensor(self.pca_mean)
        axes = tf.convert_to_tensor(self.pca_axes)
        return tf.where(has_words, tf.matmul(rows, axes, transpose_b=True), 0.0)
