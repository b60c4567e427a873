"""Dropout whose random stream is part of the model's weights."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.checked_numbers import checked_number
from tbnets.layers.configured import ConfiguredLayer
from tbnets.losses import replicas

_APART = 1 << 30
"""What a seed differs in that is drawn apart."""


@keras.saving.register_keras_serializable(package="tbnets")
class SeededDropout(ConfiguredLayer):
    """Drops units by a random stream that is part of the model's weights.

    The mask is a function of (`seed`, number of draws so far), and the
    number of draws is a non-trainable weight. A restored model therefore
    goes on with exactly the masks it would have drawn, on every Keras
    version; the random generators of Keras itself are not saved with the
    weights in all of them. XLA draws other masks than a plain graph does.
    Replicas that share a batch draw masks of their own.

    Args:
        rate: fraction of units set to 0, in [0, 1); the rest is scaled by
            `1 / (1 - rate)`. Wang et al. use 0.5 after each ReLU.
        seed: integer; layers of one side of a model need different seeds.
            Where one of the other side has the same, the model has it
            `draw_apart`.

    Example:
        drop = tbnets.SeededDropout(0.5, seed=1)
        drop(image_features, training=True)  # half are 0, the others doubled
    """

    def __init__(self, rate: float, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checked_number("rate", rate, 0, most=1, below=True)
        self.rate, self.seed = rate, seed
        self.supports_masking = True
        self.stream = seed

    def draw_apart(self) -> None:
        """Has it draw other masks than another layer of the same seed."""
        self.stream = self.seed ^ _APART

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the counter of draws."""
        options = {"initializer": "zeros", "trainable": False}
        self.draws = self.add_weight(
            name="draws", shape=(), dtype="int32", **options
        )
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns `inputs` with units dropped when `training`."""
        if not training or not self.rate:
            return inputs
        draws = tf.convert_to_tensor(self.draws)
        self.draws.assign(draws + 1)
        count = replicas.num_replicas()
        if count > 1:
            context = tf.distribute.get_replica_context()
            place = tf.cast(context.replica_id_in_sync_group, tf.int32)
            draws = draws * count + place
        seed = tf.stack([tf.constant(self.stream, tf.int32), draws])
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed)
