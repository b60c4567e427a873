"""Rescales precomputed features inside the network."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tbnets.checks import Array
from tbnets.errors import InputError, check_choice
from tbnets.layers.configured import FittedLayer

NOISE = 1e-6


def feature_statistics(batches):
    """Computes (count, mean, variance) of features in one pass.

    `batches` yields arrays `[n, dim]`; n may be 0. The mean and the population
    variance are float64 `[dim]`, computed with the update of Chan et al. 1983.
    """
    count, mean, squares = 0, 0.0, 0.0
    for batch in batches:
        rows = np.asarray(batch, np.float64)
        if not len(rows):
            continue
        batch_mean = rows.mean(axis=0)
        shift = batch_mean - mean
        total = count + len(rows)
        squares += np.square(rows - batch_mean).sum(axis=0)
        squares += np.square(shift) * (count * len(rows) / total)
        mean = mean + shift * (len(rows) / total)
        count = total
    return count, mean, squares / max(count, 1)


def standard_deviation(mean, variance):
    """Returns the standard deviation of each dimension, float64 `[dim]`.

    Deviations below `NOISE` times the absolute mean are treated as rounding
    noise and set to 0.
    """
    deviation = np.sqrt(variance)
    return np.where(deviation > NOISE * np.abs(mean), deviation, 0.0)


FEATURE_STEPS = ("signed_sqrt", "l2", "center", "standardize", "ternary")
STATISTICS = {"center", "standardize", "ternary"}
LOW, HIGH = -0.25, 0.15
"""Thresholds in standard deviations, from the code of Vilalta et al. 2017."""


def ternary_bounds(mean, deviation):
    """Computes the bounds (lower, upper) for `ternary`, both float32 `[dim]`.

    The condition `(x - mean) / deviation < LOW` becomes `x < mean + LOW *
    deviation`. The lower bound is rounded up and the upper bound down, so that
    float32 comparisons agree with exact arithmetic. `mean` and `deviation` are
    float64 `[dim]`. With these bounds, `ternary` maps dimensions whose
    deviation is 0 to 0.

    Source: Vilalta et al. 2017, Sec. 3.1, and the authors' code.
    """
    mean, deviation = np.asarray(mean), np.asarray(deviation)
    lower = np.where(deviation > 0, mean + LOW * deviation, -np.inf)
    upper = np.where(deviation > 0, mean + HIGH * deviation, np.inf)
    below, above = lower.astype(np.float32), upper.astype(np.float32)
    infinity = np.float32(np.inf)
    below = np.where(below < lower, np.nextafter(below, infinity), below)
    above = np.where(above > upper, np.nextafter(above, -infinity), above)
    return below, above


def ternary(features, lower, upper):
    """Maps features to -1 (unusually low), 0 or +1 (unusually high).

    `features` are float32 `[n, dim]`; the bounds come from `ternary_bounds`.
    """
    low = tf.cast(features < lower, tf.float32)
    return tf.cast(features > upper, tf.float32) - low


@keras.saving.register_keras_serializable(package="tbnets")
class FeatureTransform(FittedLayer):
    """Rescales precomputed features, in training and in serving.

    For `center`, `standardize` and `ternary`, `adapt` computes statistics of
    the training features. Checkpoints and SavedModels store them as weights.

    Args:
        steps: names from `FEATURE_STEPS`, applied in order. `signed_sqrt` is
            `sign(x) sqrt(|x|)`, and `l2` scales rows to unit length. Only the
            last step may use statistics. `center` subtracts each dimension's
            mean and divides by one common standard deviation. `standardize`
            divides by each dimension's own deviation instead. `ternary` maps
            standardised values to -1, 0 or +1 (Vilalta et al. 2017).

    Example:
        transform = tbnets.FeatureTransform(("signed_sqrt", "standardize"))
        transform.build(image_features.shape)
        transform.adapt([image_features])
    """

    def __init__(self, steps: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for step in steps:
            check_choice("steps", step, FEATURE_STEPS)
        if set(steps[:-1]) & STATISTICS:
            raise InputError(
                "steps",
                "have `center`, `standardize` or `ternary` only at the end",
                ",".join(steps),
            )
        self.steps = tuple(steps)
        self.output_dim: int | None = None

    @property
    def needs_statistics(self) -> bool:
        """Whether `adapt` must be called with the training features."""
        return bool(set(self.steps) & STATISTICS)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the statistics. `adapt` sets their values."""
        self.output_dim = input_shape[-1]
        if self.needs_statistics:
            is_ternary = "ternary" in self.steps
            names = ("lower", "upper") if is_ternary else ("mean", "deviation")
            for name, initial in zip(names, ("zeros", "ones")):
                self.constant(name, (self.output_dim,), initial)
        super().build(input_shape)

    def adapt(self, batches: Iterable[Array]) -> None:
        """Computes the statistics of the training features in one pass.

        Args:
            batches: float arrays `[n, feature_dim]`.

        Raises:
            ValueError: If there are no features, or their sizes differ.
        """
        count, mean, variance = feature_statistics(self._rows_of(batches))
        if not count:
            raise InputError("batches", "have at least one row", "no rows")
        deviation = standard_deviation(mean, variance)
        if "center" in self.steps:
            deviation = np.full_like(deviation, np.sqrt(np.mean(variance)))
        # A constant dimension is not divided by its deviation of 0.
        fitted = mean, np.where(deviation > 0, deviation, 1.0)
        if "ternary" in self.steps:
            fitted = ternary_bounds(mean, deviation)
        for weight, values in zip(self.weights, fitted):
            weight.assign(values.astype(np.float32))

    def _rows_of(self, batches):
        """Builds the layer; yields features, without applying statistics."""
        for batch in batches:
            rows = tf.cast(batch, tf.float32)
            if not self.built:
                self.build(rows.shape)
            if not rows.shape.is_compatible_with((None, self.output_dim)):
                raise InputError(
                    "batches",
                    f"be arrays with shape (n, {self.output_dim})",
                    rows.shape,
                )
            yield self._without_statistics(rows)

    def _without_statistics(self, outputs):
        for step in self.steps:
            if step == "signed_sqrt":
                outputs = tf.sign(outputs) * tf.sqrt(tf.abs(outputs))
            if step == "l2":
                outputs = tf.math.l2_normalize(outputs, axis=-1)
        return outputs

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the rescaled features in the shape and dtype of `inputs`."""
        outputs = self._without_statistics(tf.cast(inputs, tf.float32))
        if "ternary" in self.steps:
            lower = tf.convert_to_tensor(self.lower)
            outputs = ternary(outputs, lower, tf.convert_to_tensor(self.upper))
        elif self.needs_statistics:
            mean = tf.convert_to_tensor(self.mean)
            outputs = (outputs - mean) / tf.convert_to_tensor(self.deviation)
        return tf.cast(outputs, inputs.dtype)
