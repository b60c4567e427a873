import math

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import distances


def test_euclidean_is_exact_without_a_bias():
    # 2 - 2s for s = 1, 0.5, 0, -1: roots of 0, 1, 2, 4.
    values = distances.euclidean(tf.constant([1.0, 0.5, 0.0, -1.0]))
    np.testing.assert_allclose(values, [0, 1, math.sqrt(2), 2], rtol=1e-6)
    assert values[0] == 0.0


def test_euclidean_counts_rounding_beyond_one_as_one():
    assert distances.euclidean(tf.constant(1.0000002)) == 0.0


def test_euclidean_gradient_is_finite_where_points_coincide(compiled):
    def slope(similarities):
        with tf.GradientTape() as tape:
            tape.watch(similarities)
            values = distances.euclidean(similarities)
        return tape.gradient(values, similarities)

    # d = sqrt(2 - 2s) has slope -1/d: at s = 0.5 it is -1.
    found = compiled(slope)(tf.constant([1.0, 1.1, 0.5]))
    np.testing.assert_allclose(found, [0.0, 0.0, -1.0], rtol=1e-6)


def test_a_nan_is_not_taken_for_distance_zero():
    for distance in distances.DISTANCES.values():
        assert np.isnan(distance(tf.constant(float("nan"))))


def test_cosine_shrinks_when_closer():
    values = distances.DISTANCES["cosine"](tf.constant([1.0, 0.0, -1.0]))
    np.testing.assert_array_equal(values, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_similarities_are_float32_for_every_input(dtype):
    queries = tf.cast([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]], dtype)
    candidates = tf.cast([[1.0, 1.0], [2.0, 0.0]], dtype)
    found = distances.similarities(queries, candidates)
    assert found.dtype == tf.float32
    # Rows (1, 2), (0, 1), (3, 0) with columns (1, 1), (2, 0).
    np.testing.assert_array_equal(found, [[3, 2], [1, 0], [3, 6]])


def test_similarities_keep_small_differences_of_half_precision_inputs():
    # 1 * 1 + 2^-8 * 1 has no bfloat16, whose spacing above 1 is 2^-7.
    row = tf.cast([[1.0, 2.0**-8]], tf.bfloat16)
    ones = tf.cast([[1.0, 1.0]], tf.bfloat16)
    assert distances.similarities(row, ones) == 1.0 + 2.0**-8
