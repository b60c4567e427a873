"""Layers that apply a CCA projection, or score pairs of embeddings."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.layers import configured
from tbnets.layers.branch import SeededDropout


@keras.saving.register_keras_serializable(package="tbnets")
class CanonicalProjection(configured.FittedLayer):
    """Maps features `[n, feature_dim]` to unit vectors `[n, output_dim]`.

    ::

        x -> (x - mean) projection [+ bias] -> L2

    `models.cca` computes the weights, which are not trainable.

    Args:
        output_dim: size of the shared space. Gong et al. 2014 use at least 256.
        use_bias: whether to add a bias. CCA with background regions needs a
            bias for texts.

    A call returns float32 under every dtype policy. Without a bias, an input
    equal to the mean maps to 0.

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
        """Creates the weights. `models.cca` sets their values."""
        size = input_shape[-1]
        self.constant("mean", (size,))
        # Computed in float64, stored and applied in float32.
        self.constant("projection", (size, self.output_dim), "identity")
        if self.use_bias:
            self.constant("bias", (self.output_dim,))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns embeddings of unit length, `[n, output_dim]`."""
        rows = tf.cast(inputs, tf.float32) - tf.convert_to_tensor(self.mean)
        outputs = tf.matmul(rows, tf.convert_to_tensor(self.projection))
        if self.bias is not None:
            outputs += tf.convert_to_tensor(self.bias)
        return tf.math.l2_normalize(outputs, axis=-1)


@keras.saving.register_keras_serializable(package="tbnets")
class PairHead(configured.ConfiguredLayer):
    """Maps the element-wise products `[n, dim]` of pairs to logits `[n]`.

    ::

        x * y -> [FC -> ReLU -> dropout] * len(units) -> FC of one unit

    Args:
        units: sizes of the FC layers before the last one.
        dropout: dropout rate after each ReLU.
        scale: factor by which the products are multiplied; None for `dim`,
            because products of unit vectors are about 1 / dim.
        seed: integer seed of the dropout masks.

    The last layer computes in float32 under every dtype policy.

    Example:
        head = tbnets.PairHead((512, 256))
        head(image_embeddings * text_embeddings).shape  # (n,)

    Source: Wang et al. 2018, Sec. 3.3 and 4.3. Departures: the paper mentions
    no `scale` and no `dropout` for this network.
    """

    def __init__(
        self,
        units: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        scale: float | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = configured.checked_units(units)
        self.dropout, self.scale, self.seed = dropout, scale, seed
        self.steps, policy = [], self.dtype_policy
        for i, size in enumerate(self.units):
            options = {"activation": "relu", "name": f"fc{i + 1}"}
            self.steps.append(keras.layers.Dense(size, dtype=policy, **options))
            if dropout:
                drop = SeededDropout(dropout, seed + i, dtype=policy)
                self.steps.append(drop)
        self.last = keras.layers.Dense(1, dtype="float32", name="logit")

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the layers in sequence."""
        shape = tuple(input_shape)
        self.factor = float(shape[-1] if self.scale is None else self.scale)
        self.last.build(configured.build_steps(self.steps, shape))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the logits, float32 `[n]`, for products `[n, dim]`."""
        outputs = inputs * tf.cast(self.factor, inputs.dtype)
        outputs = configured.run_steps(self.steps, outputs, training)
        return tf.squeeze(self.last(outputs), axis=-1)
