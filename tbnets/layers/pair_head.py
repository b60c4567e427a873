"""The head of the similarity network: a pair's product -> how well it fits."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.layers import configured
from tbnets.layers.dropout import SeededDropout


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
