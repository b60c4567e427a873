import math

import numpy as np
import tensorflow as tf

from tbnets.losses import distances


def test_euclidean_is_exact_without_a_bias():
    # 2 - 2s for s = 1, 0.5, 0, -1: roots of 0, 1, 2, 4. Rounding beyond 1
    # counts as 1.
    similarities = tf.constant([1.0, 0.5, 0.0, -1.0, 1.0000002])
    values = distances.euclidean(similarities)
    np.testing.assert_allclose(values, [0, 1, math.sqrt(2), 2, 0], rtol=1e-6)


def test_euclidean_gradient_is_finite_where_points_coincide(compiled):
    def slope(similarities):
        with tf.GradientTape() as tape:
            tape.watch(similarities)
            values = distances.euclidean(similarities)
        return tape.gradient(values, similarities)

    # d = sqrt(2 - 2s) has slope -1/d: at s = 0.5 it is -1.
    found = compiled(slope)(tf.constant([1.0, 1.1, 0.5]))
    np.testing.assert_allclose(found, [0.0, 0.0, -1.0], rtol=1e-6)


def test_similarities_keep_small_differences_of_half_precision_inputs():
    # 1 * 1 + 2^-8 * 1 has no bfloat16, whose spacing above 1 is 2^-7.
    row = tf.cast([[1.0, 2.0**-8]], tf.bfloat16)
    ones = tf.cast([[1.0, 1.0]], tf.bfloat16)
    found = distances.similarities(row, ones)
    assert found == 1.0 + 2.0**-8 and found.dtype == tf.float32
