"""Batch normalisation, also of a batch that replicas share."""

import keras
import tensorflow as tf


def batch_normalization(name, dtype=None):
    """Returns the layer that keeps 90 % of its history a step.

    Made in the scope of a strategy with several replicas, it normalises by the
    statistics of all rows of a batch.
    """
    return keras.layers.BatchNormalization(
        momentum=0.9, name=name, dtype=dtype, synchronized=_has_replicas()
    )


def share_statistics(network):
    """Makes the layers of a Keras network normalise as `batch_normalization`.

    Layers of nested models too, but none within layers of other kinds: these
    keep the statistics of their replica.
    """
    if not _has_replicas():
        return
    for layer in getattr(network, "layers", ()):
        share_statistics(layer)
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True
            layer.fused = False  # Keras 2 uses fused kernels first.


def _has_replicas():
    """Returns whether the scope's strategy has several replicas."""
    return tf.distribute.get_strategy().num_replicas_in_sync > 1
