"""One side of a canonical correlation analysis: a projection to unit length."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.checked_numbers import checked_number
from tbnets.layers.configured import FittedLayer


@keras.saving.register_keras_serializable(package="tbnets")
class CanonicalProjection(FittedLayer):
    """Maps features `[n, feature_dim]` to unit vectors `[n, output_dim]`.

    ::

        x -> (x - mean) projection [+ bias] -> L2

    Nothing of it is trained by a gradient: `models.cca` solves for it. Before
    that it is the first `output_dim` features as they are.

    Args:
        output_dim: size of the shared space. Gong et al. 2014: 256 and more.
        use_bias: whether there is a bias, as CCA with background needs for
            its texts.

    Returns from a call: `[n, output_dim]` float32, each row of length 1, or
    0 for the mean itself without a bias.

    Example:
        projection = tbnets.CanonicalProjection(32)
        projection(image_features).shape  # (n, 32)

    Source: Gong et al. 2014, Sec. 3.3.
    """

    def __init__(
        self, output_dim: int, use_bias: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.output_dim = checked_number(
            "output_dim", output_dim, 1, whole=True
        )
        self.use_bias = use_bias
        self.bias = None

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the weights, as yet without effect."""
        size = input_shape[-1]
        self.constant("mean", (size,))
        # Solved for in float64, it is kept and used in float32.
        self.constant("projection", (size, self.output_dim), "identity")
        if self.use_bias:
            self.constant("bias", (self.output_dim,))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns embeddings of unit length `[n, output_dim]`."""
        rows = tf.cast(inputs, tf.float32) - tf.convert_to_tensor(self.mean)
        outputs = tf.matmul(rows, tf.convert_to_tensor(self.projection))
        if self.bias is not None:
            outputs += tf.convert_to_tensor(self.bias)
        return tf.math.l2_normalize(outputs, axis=-1)
