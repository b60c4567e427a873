"""Rows of tensorflow-addons, which is on the stack of TensorFlow 2.15."""

import tensorflow as tf
from tensorflow_addons import losses

from benchmarks import loss
from benchmarks import peers_arrays as given


def hard_addons(arrays):
    """TripletHardLoss of tensorflow-addons, on one view."""
    return _learning(arrays, losses.triplet_hard_loss)


def semihard_addons(arrays):
    """TripletSemiHardLoss of tensorflow-addons, on one view."""
    return _learning(arrays, losses.triplet_semihard_loss)


def _learning(arrays, function):
    labels = tf.constant(given.labels(arrays))
    rows = tf.constant(given.one_view(arrays)["images"])

    @tf.function
    def learn(rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            total = function(labels, rows, given.MARGIN)
        return total, tape.gradient(total, rows)

    return loss.valued(learn, [rows])
