"""The temperature of a softmax over similarities, learned."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.checked_numbers import checked_number
from tbnets.layers.configured import ConfiguredLayer
from tbnets.losses import replicas

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
