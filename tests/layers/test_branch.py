"""Branches, the dropout in them, and the steps of feature transforms."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.branch import Branch, SeededDropout
from tbnets.layers.feature_transform import FeatureTransform


@pytest.mark.parametrize(
    "where, names",
    [
        ("last", ["fc1", "relu1", "drop", "fc2", "bn"]),
        ("first", ["fc1", "bn", "relu1", "drop", "fc2"]),
        ("none", ["fc1", "relu1", "drop", "fc2"]),
    ],
)
def test_batch_normalization_is_at_the_chosen_position(where, names):
    branch = Branch((4, 3), batch_normalization=where)
    found = [
        "drop" if isinstance(step, SeededDropout) else step.name
        for step in branch.steps
    ]
    assert found == names


@pytest.mark.parametrize("units", [(2,), (8, 2), (5, 8, 2)])
def test_a_branch_equals_numpy(units):
    keras.utils.set_random_seed(0)
    branch = Branch(units, batch_normalization="none")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    branch.build((None, 4))
    expected, variables = x, [v.numpy() for v in branch.trainable_variables]
    for place in range(0, len(variables), 2):
        expected = np.maximum(expected, 0) if place else expected
        expected = expected @ variables[place] + variables[place + 1]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(branch(x), expected, atol=1e-6)


def test_a_row_of_zeros_has_a_finite_gradient():
    branch = Branch((3,), batch_normalization="none")
    x = tf.Variable([[0.0, 0.0], [1.0, -1.0]])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(branch(x))
    assert np.isfinite(tape.gradient(total, x)).all()


def test_dropout_keeps_the_mean_and_drops_the_rate_in_training():
    drop, ones = SeededDropout(0.25, seed=1), tf.ones((200, 100))
    output = drop(ones, training=True).numpy()
    # Kept units are scaled to 1 / 0.75.
    assert set(np.round(np.unique(output), 4)) == {0.0, np.float32(1.3333)}
    assert abs((output == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(drop(ones), ones)


def test_dropout_continues_from_restored_weights():
    drop, again = SeededDropout(0.5, seed=3), SeededDropout(0.5, seed=3)
    x, other = tf.ones((4, 32)), SeededDropout(0.5, seed=4)
    again.build(x.shape)
    first = drop(x, training=True)
    assert not np.array_equal(first, other(x, training=True))
    again.set_weights(drop.get_weights())
    second = drop(x, training=True)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(second, again(x, training=True))


@pytest.mark.parametrize(
    "steps, expected",
    [
        ((), [9.0, -16.0]),
        (("l2",), [9 / 337**0.5, -16 / 337**0.5]),
        (("signed_sqrt",), [3.0, -4.0]),
        (("signed_sqrt", "l2"), [0.6, -0.8]),
    ],
)
def test_feature_transform_values(steps, expected):
    output = FeatureTransform(steps)(tf.constant([[9.0, -16.0], [0.0, 0.0]]))
    np.testing.assert_allclose(output, [expected, [0, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    "last, expected",
    [
        # Roots are (1, 2), (3, 2): means 2 and 2, variances 1 and 0.
        ("standardize", [[-1, 0], [1, 0]]),
        # One deviation for all: sqrt((1 + 0) / 2).
        ("center", [[-(2**0.5), 0], [2**0.5, 0]]),
        # Beyond -0.25 and 0.15 deviations; what never changes is 0.
        ("ternary", [[-1, 0], [1, 0]]),
    ],
)
def test_feature_transform_takes_the_training_statistics(last, expected):
    rows = np.array([[1.0, 4.0], [9.0, 4.0]], np.float32)
    transform = FeatureTransform(("signed_sqrt", last))
    transform.build((None, 2))
    transform.adapt([rows[:1], rows[1:]])
    np.testing.assert_allclose(transform(tf.constant(rows)), expected, 1e-5)
    assert not transform.trainable_variables
