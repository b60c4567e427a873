"""Layers after the branches: CCA projections, temperature, pair scores."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.layers import configured
from tbnets.layers.branch import SeededDropout
from tbnets.layers.configured import ConfiguredLayer, FittedLayer
from tbnets.losses import replicas


@keras.saving.register_keras_serializable(package="tbnets")
class CanonicalProjection(FittedLayer):
    """Maps features `[n, feature_dim]` to unit vectors `[n, output_dim]`.

    ::

        x -> (x - mean) projection [+ bias] -> L2

    `models.cca` computes the weights; no gradient trains them. Before that the
    layer returns the first `output_dim` features, normalised.

    Args:
        output_dim: size of the shared space. Gong et al. 2014: 256 and more.
        use_bias: whether to add a bias, which the texts of CCA with background
            need.

    Returns from a call: `[n, output_dim]` float32, rows of length 1, or 0 for
    the mean itself without a bias.

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
        """Creates the weights with neutral values."""
        size = input_shape[-1]
        self.constant("mean", (size,))
        # Computed in float64, kept and used in float32.
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


LARGEST = 100.0
"""Largest factor of the similarities. CLIP: 100."""


@keras.saving.register_keras_serializable(package="tbnets")
class LogitScale(ConfiguredLayer):
    """Divides similarities by a learned temperature.

    Its weight is the log of the similarities' factor, so that a step
    changes the factor by a share of its value. Factors above 100 (temperatures
    below 0.01) count as 100 and get no gradient that increases them.

    Args:
        temperature: initial temperature, from 0.01. CLIP: 0.07.

    Returns from a call: float32, shaped like the similarities, under every
    mixed-precision policy.

    Example:
        network = tbnets.EmbeddingNetwork(
            tbnets.Branch((512,)), tbnets.Branch((512,)),
            logit_scale=tbnets.LogitScale(0.07))
        network.compile("adam", tbnets.InfoNCELoss())

    The optimizer of `tools/train.py` does not decay the weight. Exclude it from
    other optimizers:
    `optimizer.exclude_from_weight_decay(var_names=["logit_scale"])`.

    Source: Radford et al. 2021 (CLIP), Sec. 2.4 and 2.5; departures: an
    optimizer's momentum may carry the weight past the bound, where it counts as
    the bound until it returns; CLIP clips it.
    """

    def __init__(self, temperature: float = 0.07, **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.temperature = checked_number(
            "temperature", temperature, 1 / LARGEST
        )

    def build(self, input_shape: Sequence[int | None] | None = None) -> None:
        """Creates the weight, a scalar."""
        initial = keras.initializers.Constant(-math.log(self.temperature))
        self.logit_scale = self.add_weight(
            name="logit_scale", shape=(), initializer=initial
        )
        super().build(input_shape)

    def learned_temperature(self) -> tf.Tensor:
        """Returns the current temperature, a float32 scalar."""
        scale = tf.convert_to_tensor(self.logit_scale)
        return tf.exp(-_at_most_largest(scale))

    def call(self, inputs: Array) -> tf.Tensor:
        """Returns the logits of similarities."""
        return tf.cast(inputs, tf.float32) / self.learned_temperature()


@tf.custom_gradient
def _at_most_largest(scale):
    """Bounds a log; beyond the bound only decreasing gradients pass."""
    limit = math.log(LARGEST)

    def gradient(upstream):
        # The sign of the gradient depends on all replicas' parts.
        whole = replicas.summed(upstream)
        leads_away = (scale > limit) & (whole < 0.0)
        return replicas.part_of(tf.where(leads_away, 0.0, whole))

    return tf.minimum(scale, limit), gradient


@keras.saving.register_keras_serializable(package="tbnets")
class PairHead(configured.ConfiguredLayer):
    """Maps element-wise products `[n, dim]` of pairs to logits `[n]`.

    ::

        x * y -> [FC -> ReLU -> dropout] * len(units) -> FC of one unit

    Products of two unit vectors are small, about 1 / dim. `scale` multiplies
    them; None means dim, which makes them about 1.

    Args:
        units: sizes of the FC layers before the last. Paper: `(512, 256)`,
            three FC layers in all; `()` leaves only the last.
        dropout: rate after each ReLU.
        scale: factor of the products. Paper: 1.
        seed: integer that determines the dropout streams.

    Returns from a call: float32 `[n]` under every mixed-precision policy: the
    last layer computes in float32, because half-precision scores would tie.

    Example:
        head = tbnets.PairHead((512, 256))
        head(image_embeddings * text_embeddings).shape  # (n,)

    Source: Wang et al. 2018, Sec. 3.3 and 4.3; departures: `scale` and
    `dropout`, which the paper does not mention here.
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
        """Builds the steps in sequence."""
        shape = tuple(input_shape)
        self.factor = float(shape[-1] if self.scale is None else self.scale)
        self.last.build(configured.build_steps(self.steps, shape))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the logits float32 `[n]` of products `[n, dim]`."""
        outputs = inputs * tf.cast(self.factor, inputs.dtype)
        outputs = configured.run_steps(self.steps, outputs, training)
        return tf.squeeze(self.last(outputs), axis=-1)
