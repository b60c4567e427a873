"""The branch: fully connected layers that end in L2 normalisation.

One branch maps images, another maps text, into the shared space of Wang et
al. 2016, Fig. 1. What comes before it (a convolutional network, a recurrent
text encoder, a file of features) is not its concern.
"""

import keras
import numpy as np
import tensorflow as tf

from tbnets.features.full_network import StreamingStatistics
from tbnets.features.full_network import ternary
from tbnets.features.full_network import ternary_bounds

BATCH_NORMALIZATION = ("last", "first", "none")
FEATURE_STEPS = ("signed_sqrt", "l2", "center", "standardize", "ternary")
STATISTICS = {"center", "standardize", "ternary"}


@keras.saving.register_keras_serializable(package="tbnets")
class SeededDropout(keras.layers.Layer):
    """Drops units by a random stream that is part of the model's weights.

    The mask is a function of (`seed`, number of draws so far), and the
    number of draws is a non-trainable weight. A restored model therefore
    goes on with exactly the masks it would have drawn, on every Keras
    version; the random generators of Keras itself are not saved with the
    weights in all of them. XLA draws other masks than a plain graph does.

    Args:
        rate: fraction of units set to 0, in [0, 1); the rest is scaled by
            `1 / (1 - rate)`. Wang et al. use 0.5 after each ReLU.
        seed: integer; layers of one model need different seeds.
    """

    def __init__(self, rate, seed=0, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(
                "`rate` must be in [0, 1), the fraction of units dropped. "
                f"Received: rate={rate}. Use 0 to switch dropout off."
            )
        self.rate = rate
        self.seed = seed
        self.supports_masking = True

    def build(self, input_shape):
        """Creates the counter of draws."""
        self.draws = self.add_weight(
            name="draws",
            shape=(),
            dtype="int32",
            initializer="zeros",
            trainable=False,
        )
        super().build(input_shape)

    def call(self, inputs, training=False):
        """Returns `inputs` with units dropped when `training`."""
        if not training or not self.rate:
            return inputs
        draws = tf.convert_to_tensor(self.draws)
        self.draws.assign(draws + 1)
        return tf.nn.experimental.stateless_dropout(
            inputs,
            rate=self.rate,
            seed=tf.stack([tf.constant(self.seed, tf.int32), draws]),
        )

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable(package="tbnets")
class FeatureTransform(keras.layers.Layer):
    """Rescales precomputed features; part of the model, so also of serving.

    The statistics of `center`, `standardize` and `ternary` are those of the
    training features, given to `adapt`. They are weights: checkpoints and
    SavedModels hold them.

    Args:
        steps: names from `FEATURE_STEPS`, applied in order: `signed_sqrt`,
            `sign(x) sqrt(|x|)`, which tames the heavy tail of pooled
            activations; `l2`, to unit length; and, as the last, `center`,
            minus the mean of each dimension, divided by one standard
            deviation for all, or `standardize`, by that of each dimension,
            or `ternary`, standardised and cut to -1, 0, +1 (Vilalta et al.
            2017, see `features.full_network`).
    """

    def __init__(self, steps=(), **kwargs):
        # Statistics are kept and used in float32, whatever the policy.
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        for step in steps:
            if step not in FEATURE_STEPS:
                raise ValueError(
                    f"`steps` must be among {', '.join(FEATURE_STEPS)}. "
                    f"Received: {step}. Change --image_transform."
                )
        if set(steps[:-1]) & STATISTICS:
            raise ValueError(
                "`steps` must have `center`, `standardize` or `ternary` as the "
                f"last. Received: {','.join(steps)}. Change --image_transform."
            )
        self.steps = tuple(steps)
        self.output_dim = None

    @property
    def needs_statistics(self):
        """Whether `adapt` must see the training features."""
        return bool(set(self.steps) & STATISTICS)

    def build(self, input_shape):
        """Creates the statistics, as yet without effect."""
        self.output_dim = input_shape[-1]
        if self.needs_statistics:
            names = ("mean", "deviation")
            if "ternary" in self.steps:
                names = ("lower", "upper")
            for name, initial in zip(names, ("zeros", "ones")):
                weight = self.add_weight(
                    name=name,
                    shape=(self.output_dim,),
                    initializer=initial,
                    trainable=False,
                    dtype="float32",
                )
                setattr(self, name, weight)
        super().build(input_shape)

    def adapt(self, batches):
        """Takes the statistics of the training features, in one pass.

        Args:
            batches: iterable of float arrays `[n, feature_dim]`.
        """
        statistics = StreamingStatistics()
        for batch in batches:
            rows = tf.cast(batch, tf.float32)
            statistics.update(self._without_statistics(rows))
        mean, deviation = statistics.mean, statistics.deviation
        if "ternary" in self.steps:
            lower, upper = ternary_bounds(mean, deviation)
            self.lower.assign(lower)
            self.upper.assign(upper)
            return
        if "center" in self.steps:
            common = np.sqrt(np.mean(statistics.variance))
            deviation = np.full_like(deviation, common)
        self.mean.assign(mean.astype(np.float32))
        # A dimension that never changes tells nothing: leave it as it is.
        deviation = np.where(deviation > 0, deviation, 1.0)
        self.deviation.assign(deviation.astype(np.float32))

    def _without_statistics(self, outputs):
        for step in self.steps:
            if step == "signed_sqrt":
                outputs = tf.sign(outputs) * tf.sqrt(tf.abs(outputs))
            elif step == "l2":
                outputs = tf.math.l2_normalize(outputs, axis=-1)
        return outputs

    def call(self, inputs, training=False):
        """Returns the rescaled features, in shape and dtype of `inputs`."""
        outputs = self._without_statistics(tf.cast(inputs, tf.float32))
        if "ternary" in self.steps:
            outputs = ternary(
                outputs,
                tf.convert_to_tensor(self.lower),
                tf.convert_to_tensor(self.upper),
            )
        elif self.needs_statistics:
            mean = tf.convert_to_tensor(self.mean)
            outputs = (outputs - mean) / tf.convert_to_tensor(self.deviation)
        return tf.cast(outputs, inputs.dtype)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "steps": self.steps}


@keras.saving.register_keras_serializable(package="tbnets")
class Branch(keras.layers.Layer):
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

    Source: Wang et al. 2016, Sec. 2.1 and 3.1; Wang et al. 2018, Sec. 3.2.1.
    Departures: batch normalisation keeps 90 % of its history a step (the
    released code kept 10 %).
    """

    def __init__(
        self,
        units=(2048, 512),
        batch_normalization="last",
        dropout=0.5,
        input_dropout=0.0,
        seed=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        units = tuple(int(size) for size in units)
        if min(units, default=1) < 1:
            raise ValueError(
                "`units` must name layers of at least one unit. "
                f"Received: units={units}. Use for example 2048,512."
            )
        if batch_normalization not in BATCH_NORMALIZATION:
            raise ValueError(
                "`batch_normalization` must be one of "
                f"{', '.join(BATCH_NORMALIZATION)}. Received: "
                f"batch_normalization={batch_normalization}. "
                "Change --batch_normalization."
            )
        self.units = units
        self.output_dim = units[-1] if units else None
        self.batch_normalization = batch_normalization
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.seed = seed
        self.steps = self._make_steps()

    def _make_steps(self):
        steps = []
        if self.input_dropout:
            steps.append(SeededDropout(self.input_dropout, self.seed))
        last = len(self.units) - 1
        for i, size in enumerate(self.units):
            steps.append(keras.layers.Dense(size, name=f"fc{i + 1}"))
            where = {"first": 0, "last": last, "none": -1}
            if i == where[self.batch_normalization]:
                steps.append(
                    keras.layers.BatchNormalization(momentum=0.9, name="bn")
                )
            if i < last:
                steps.append(keras.layers.ReLU(name=f"relu{i + 1}"))
                if self.dropout:
                    steps.append(SeededDropout(self.dropout, self.seed + i + 1))
        return steps

    def build(self, input_shape):
        """Builds the steps one after the other."""
        shape = tuple(input_shape)
        for step in self.steps:
            step.build(shape)
            if isinstance(step, keras.layers.Dense):
                shape = (*shape[:-1], step.units)
        self.output_dim = shape[-1]
        super().build(input_shape)

    def call(self, inputs, training=False):
        """Returns embeddings of unit length `[n, output_dim]`."""
        outputs = inputs
        for step in self.steps:
            if isinstance(
                step, keras.layers.BatchNormalization | SeededDropout
            ):
                outputs = step(outputs, training=training)
            else:
                outputs = step(outputs)
        return tf.math.l2_normalize(tf.cast(outputs, tf.float32), axis=-1)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "batch_normalization": self.batch_normalization,
            "dropout": self.dropout,
            "input_dropout": self.input_dropout,
            "seed": self.seed,
        }
