"""The branch: fully connected layers that end in L2 normalisation.

One branch maps images, another maps text, into the shared space of Wang et
al. 2016, Fig. 1. What comes before it (a convolutional network, a recurrent
text encoder, a file of features) is not its concern.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.errors import InputError, check_choice
from tbnets.layers import configured
from tbnets.layers.batch_normalization import batch_normalization
from tbnets.layers.dropout import SeededDropout

BATCH_NORMALIZATION = ("last", "first", "none")


@keras.saving.register_keras_serializable(package="tbnets")
class Branch(configured.ConfiguredLayer):
    """Maps features `[n, feature_dim]` to unit vectors `[n, output_dim]`.

    With the default `batch_normalization="last"`, as both papers describe::

        x -> [FC -> ReLU -> dropout] * (len(units) - 1) -> FC -> BN -> L2

    With `"first"`, as in the code the authors released, batch normalisation
    stands between the first FC and its ReLU instead. A single entry in
    `units` is the linear branch of the papers' ablations (give it
    `batch_normalization="none"`: "immediately followed by L2").

    Args:
        units: output size of each fully connected layer. Papers: `(2048,
            512)` on CNN and Fisher-vector features, `(1024, 512)` on LSTM
            states. `()` leaves L2 alone, as in the text branch of Vilalta et
            al. 2017, whose GRU states are the embedding.
        batch_normalization: `last`, `first` or `none`.
        dropout: rate after each ReLU. Paper: 0.5.
        input_dropout: rate on the branch's input. Paper: 0.
        seed: integer from which the dropout layers derive their streams.

    Returns from a call: `[n, output_dim]` float32, each row of length 1,
    whatever the mixed-precision policy.

    Example:
        branch = tbnets.Branch((2048, 512))
        branch(image_features).shape  # (n, 512)

    Source: Wang et al. 2016, Sec. 2.1 and 3.1; Wang et al. 2018, Sec. 3.2.1.
    Departures: batch normalisation keeps 90 % of its history a step (the
    released code kept 10 %).
    """

    def __init__(
        self,
        units: Sequence[int] = (2048, 512),
        batch_normalization: str = "last",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        name = "batch_normalization"
        check_choice(name, batch_normalization, BATCH_NORMALIZATION)
        self.units = configured.checked_units(units)
        self.output_dim: int | None = self.units[-1] if units else None
        self.batch_normalization = batch_normalization
        self.dropout, self.input_dropout = dropout, input_dropout
        self.seed = seed
        self.steps = self._make_steps()

    def _make_steps(self):
        steps, policy = [], self.dtype_policy
        if self.input_dropout:
            rate = self.input_dropout
            steps.append(SeededDropout(rate, self.seed, dtype=policy))
        last = len(self.units) - 1
        for i, size in enumerate(self.units):
            name = f"fc{i + 1}"
            steps.append(keras.layers.Dense(size, name=name, dtype=policy))
            where = {"first": 0, "last": last, "none": -1}
            if i == where[self.batch_normalization]:
                steps.append(batch_normalization("bn", policy))
            if i < last:
                name = f"relu{i + 1}"
                steps.append(keras.layers.ReLU(name=name, dtype=policy))
                if self.dropout:
                    rate, seed = self.dropout, self.seed + i + 1
                    steps.append(SeededDropout(rate, seed, dtype=policy))
        return steps

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the steps one after the other."""
        if len(input_shape) != 2:
            raise InputError(
                "`input_shape` must be that of features, (n, feature_dim). "
                f"Received: input_shape={tuple(input_shape)}. What is more "
                "than a row an image or text goes through an encoder first: "
                "image_encoder, text_encoder."
            )
        self.output_dim = configured.build_steps(
            self.steps, tuple(input_shape)
        )[-1]
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns embeddings of unit length `[n, output_dim]`."""
        outputs = configured.run_steps(self.steps, inputs, training)
        return tf.math.l2_normalize(tf.cast(outputs, tf.float32), axis=-1)
