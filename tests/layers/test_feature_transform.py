"""Tests of the ternary step of `FeatureTransform`, and its statistics.

test_branch.py has the other steps.
"""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers import feature_transform
from tbnets.layers.feature_transform import (
    feature_statistics,
    standard_deviation,
    ternary,
    ternary_bounds,
)


def cut(rows, bounds):
    """Returns what `ternary` makes of float32 rows, as an array."""
    return ternary(tf.constant(rows, tf.float32), *bounds).numpy()


def oracle(train, features, low=-0.25, high=0.15):
    """The definition of Vilalta 2017, Sec. 3.1, in float64."""
    train = np.asarray(train, np.float64)
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    result = np.zeros(features.shape, np.int8)
    for i, row in enumerate(features):
        for j, value in enumerate(row):
            if deviation[j] > 0:
                z = (np.float64(value) - mean[j]) / deviation[j]
                result[i, j] = int(z > high) - int(z < low)
    return result


@pytest.mark.parametrize(
    "thresholds, offset",
    [((-0.25, 0.15), 0.0), ((0.0, 0.0), 1000.0), ((-1, 2), 1000.0)],
)
def test_ternary_agrees_with_the_oracle(
    compiled, thresholds, offset, monkeypatch
):
    for name, value in zip(("LOW", "HIGH"), thresholds):
        monkeypatch.setattr(feature_transform, name, value)
    generator = np.random.default_rng(0)
    train = generator.gamma(0.5, size=(50, 7)).astype(np.float32) + offset
    train[:, 3] = 0.1  # never changes
    train = train.astype(np.float32)
    others = train[:9] * np.float32(1.01)
    _, mean, variance = feature_statistics(np.array_split(train, 7))
    bounds = ternary_bounds(mean, standard_deviation(mean, variance))
    for rows in (train, others):
        expected = oracle(train, rows, *thresholds)
        expected[:, 3] = 0
        found = compiled(ternary)(tf.constant(rows), *bounds)
        assert found.dtype == tf.float32
        np.testing.assert_array_equal(found, expected)


def test_features_nearest_to_a_bound_are_decided_exactly():
    # Half of the float32 nearest to a bound lie below it, half above.
    generator = np.random.default_rng(2)
    mean = generator.uniform(1, 9, 99)
    deviation = generator.uniform(1, 9, 99)
    low, high = mean - 0.25 * deviation, mean + 0.15 * deviation
    bounds = ternary_bounds(mean, deviation)
    near = low.astype(np.float32)
    expected = -(near.astype(np.float64) < low).astype(int)
    np.testing.assert_array_equal(cut(near[None], bounds)[0], expected)
    near = high.astype(np.float32)
    expected = (near.astype(np.float64) > high).astype(int)
    np.testing.assert_array_equal(cut(near[None], bounds)[0], expected)
    assert 0 < expected.sum() < 99


@pytest.mark.parametrize("sizes", [[1], [20], [7, 0, 13], [1] * 20])
def test_streaming_statistics_agree_with_one_pass_over_all(sizes):
    rows = np.random.default_rng(1).normal(1e4, 1e-2, (sum(sizes), 3))
    batches = np.split(rows, np.cumsum(sizes)[:-1])
    count, mean, variance = feature_statistics(batches)
    assert count == len(rows)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-6)


def test_rounding_noise_of_a_constant_counts_as_no_deviation():
    _, mean, variance = feature_statistics([np.full((5, 1), 0.1)] * 3)
    assert standard_deviation(mean, variance).tolist() == [0.0]
