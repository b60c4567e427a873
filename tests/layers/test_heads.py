"""Tests of the heads: constants that are solved."""

import tensorflow as tf

from tbnets.layers.heads import CanonicalProjection


def test_constants_are_float32_and_never_trained():
    layer = CanonicalProjection(2, dtype="float32", trainable=True)
    layer.build((None, 3))
    assert not layer.trainable and not layer.trainable_weights
    assert {weight.dtype for weight in layer.weights} <= {"float32", tf.float32}
