"""The mean over an epoch of what each step reports."""

import keras
import tensorflow as tf


class StepMean(keras.metrics.Metric):
    """Averages a scalar of each step.

    As `keras.metrics.Mean` does, but replicas keep it for themselves: they all
    report the same, so a mean of each is the mean of all, where Keras 3 would
    sum both its variables over all replicas at each step.
    """

    def __init__(self, name):
        super().__init__(name=name)
        total_and_count = tf.Variable(
            tf.zeros([2]),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        # A function: Keras 2 would count the variable among a model's weights.
        self._total_and_count = lambda: total_and_count

    def update_state(self, value):
        """Counts the value of a step, a scalar."""
        value = tf.cast(value, tf.float32)
        self._total_and_count().assign_add([value, 1.0])

    def result(self):
        """Returns the mean of the steps so far, 0 before the first."""
        both = tf.convert_to_tensor(self._total_and_count())
        return tf.math.divide_no_nan(*tf.unstack(both))

    def reset_state(self):
        """Begins anew."""
        self._total_and_count().assign(tf.zeros([2]))
