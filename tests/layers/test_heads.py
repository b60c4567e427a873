"""Heads: the temperature, and constants that are solved."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.heads import CanonicalProjection, LogitScale


def with_gradient(layer, similarities, towards):
    with tf.GradientTape() as tape:
        total = towards * tf.reduce_sum(layer(similarities))
    return total, tape.gradient(total, layer.trainable_variables[0])


def test_similarities_are_divided_by_the_temperature():
    layer = LogitScale(0.25)
    np.testing.assert_allclose(layer(tf.constant([0.5])), [2.0], rtol=1e-6)
    # The slope by the log of the scale is the logits themselves.
    _, gradient = with_gradient(layer, tf.constant([0.5, 0.25]), 1.0)
    assert float(gradient) == pytest.approx(3.0, rel=1e-6)


def test_beyond_a_hundred_it_counts_as_that_and_only_comes_back():
    layer = LogitScale(0.01)
    layer.build()
    layer.logit_scale.assign(math.log(200))
    one = tf.constant([1.0])
    np.testing.assert_allclose(layer(one), [100.0], rtol=1e-5)
    # Down the gradient the scale would fall, or grow.
    assert float(with_gradient(layer, one, 1.0)[1]) == pytest.approx(100)
    assert float(with_gradient(layer, one, -1.0)[1]) == 0.0


def test_constants_are_float32_and_never_trained():
    layer = CanonicalProjection(2, dtype="float32", trainable=True)
    layer.build((None, 3))
    assert not layer.trainable and not layer.trainable_weights
    assert {weight.dtype for weight in layer.weights} <= {"float32", tf.float32}
