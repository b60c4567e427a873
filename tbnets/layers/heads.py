"""Layers behind the branches: projections of CCA, temperature, pair scores."""

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


# The temperature of a softmax over similarities, learned.

LARGEST = 100.0
"""What similarities are multiplied by at most. CLIP: 100."""


@keras.saving.register_keras_serializable(package="tbnets")
class LogitScale(ConfiguredLayer):
    """Divides similarities by a temperature that is learned.

    Its weight is the log of what similarities are multiplied by, so that a
    step changes this by a share of itself. Beyond 100, a temperature below
    0.01, it counts as 100, and no gradient takes it further.

    Args:
        temperature: what it begins with, from 0.01. CLIP: 0.07.

    Returns from a call: float32 of the shape of the similarities, whatever
    the mixed-precision policy.

    Example:
        network = tbnets.EmbeddingNetwork(
            tbnets.Branch((512,)), tbnets.Branch((512,)),
            logit_scale=tbnets.LogitScale(0.07))
        network.compile("adam", tbnets.InfoNCELoss())

    The optimizer of `tools/train.py` does not decay the weight. Of others say
    so: `optimizer.exclude_from_weight_decay(var_names=["logit_scale"])`.

    Source: Radford et al. 2021 (CLIP), Sec. 2.4 and 2.5; departures: the
    weight may pass the bound, by as far as an optimizer's momentum carries
    it, and counts as the bound until it has come back; CLIP sets it back.
    """

    def __init__(self, temperature: float = 0.07, **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.temperature = checked_number(
            "temperature", temperature, 1 / LARGEST
        )

    def build(self, input_shape: Sequence[int | None] | None = None) -> None:
        """Makes the weight, a scalar."""
        initial = keras.initializers.Constant(-math.log(self.temperature))
        self.logit_scale = self.add_weight(
            name="logit_scale", shape=(), initializer=initial
        )
        super().build(input_shape)

    def learned_temperature(self) -> tf.Tensor:
        """Returns the temperature as it is now, a float32 scalar."""
        scale = tf.convert_to_tensor(self.logit_scale)
        return tf.exp(-_at_most_largest(scale))

    def call(self, inputs: Array) -> tf.Tensor:
        """Returns the logits of similarities."""
        return tf.cast(inputs, tf.float32) / self.learned_temperature()


@tf.custom_gradient
def _at_most_largest(scale):
    """Returns a log, bounded; beyond the bound a gradient leads back alone."""
    limit = math.log(LARGEST)

    def gradient(upstream):
        # Where it leads is told by all replicas' parts of it together.
        whole = replicas.summed(upstream)
        leads_away = (scale > limit) & (whole < 0.0)
        return replicas.part_of(tf.where(leads_away, 0.0, whole))

    return tf.minimum(scale, limit), gradient


# The head of the similarity network: a pair's product -> how well it fits.


@keras.saving.register_keras_serializable(package="tbnets")
class PairHead(configured.ConfiguredLayer):
    """Maps element-wise products `[n, dim]` of pairs to logits `[n]`.

    ::

        x * y -> [FC -> ReLU -> dropout] * len(units) -> FC of one unit

    The products of two unit vectors are small, about 1 / dim each. They are
    multiplied by `scale`; None stands for dim, which makes them about 1.

    Args:
        units: sizes of the FC layers before the last. Paper: `(512, 256)`,
            that is three FC layers; `()` leaves the last one alone.
        dropout: rate after each ReLU.
        scale: what the products are multiplied by. Paper: 1.
        seed: integer from which the dropout layers derive their streams.

    Returns from a call: float32 `[n]`, whatever the mixed-precision policy:
    the last layer computes in float32, or scores would tie.

    Example:
        head = tbnets.PairHead((512, 256))
        head(image_embeddings * text_embeddings).shape  # (n,)

    Source: Wang et al. 2018, Sec. 3.3 and 4.3; departures: `scale` and
    `dropout`, of which the paper says nothing here.
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
        """Builds the steps one after the other."""
        shape = tuple(input_shape)
        self.factor = float(shape[-1] if self.scale is None else self.scale)
        self.last.build(configured.build_steps(self.steps, shape))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the logits float32 `[n]` of products `[n, dim]`."""
        outputs = inputs * tf.cast(self.factor, inputs.dtype)
        outputs = configured.run_steps(self.steps, outputs, training)
        return tf.squeeze(self.last(outputs), axis=-1)
