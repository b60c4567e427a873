"""Batch normalisation, also of a batch that replicas share."""

import keras
import tensorflow as tf

from tbnets.annotations import Array
from tbnets.losses import replicas


def batch_normalization(name, dtype=None):
    """Returns the layer that keeps 90 % of its history a step.

    Made in the scope of a strategy of several replicas it normalises by the
    statistics of all rows of a batch, unless `replicas.batch_statistics` says
    otherwise.
    """
    layer = keras.layers.BatchNormalization
    if replicas.are_statistics_shared():
        layer = _SharedNormalization
    return layer(momentum=0.9, name=name, dtype=dtype)


def share_statistics(network):
    """Lets a network of Keras normalise as `batch_normalization` would.

    By Keras' own layers, those that `network.layers` names, of nested models
    too; what layers of other kinds have within keeps the statistics of its
    replica.
    """
    if not replicas.are_statistics_shared():
        return
    for layer in getattr(network, "layers", ()):
        share_statistics(layer)
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True
            layer.fused = False  # Keras 2 has fused kernels go first.


class _SharedNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` by the statistics of all replicas.

    Keras' own `synchronized=True` takes the variance for the mean square less
    the square of the mean, which loses digits where the mean is large, and
    sends three messages, where here are two.
    """

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns normalised `inputs`, in their shape and dtype."""
        if not (training and self.trainable and replicas.num_replicas() > 1):
            return super().call(inputs, training=training)
        rows = tf.cast(inputs, tf.float32)
        axes = list(range(rows.shape.rank - 1))
        count = tf.size(rows) // rows.shape[-1]
        own = [tf.reduce_sum(rows, axes), tf.cast(count, tf.float32)]
        total, count = replicas.summed(own)
        mean = total / count
        squares = tf.reduce_sum(tf.math.squared_difference(rows, mean), axes)
        variance = replicas.summed(squares) / count
        moving = (self.moving_mean, mean), (self.moving_variance, variance)
        for kept, now in moving:
            before = tf.convert_to_tensor(kept)
            kept.assign(before * self.momentum + now * (1 - self.momentum))
        learned = map(tf.convert_to_tensor, (self.beta, self.gamma))
        outputs = tf.nn.batch_normalization(
            rows, mean, variance, *learned, self.epsilon
        )
        return tf.cast(outputs, inputs.dtype)
