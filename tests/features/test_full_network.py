"""Tests of the Full-Network Embedding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.cnn import build_cnn
from tbnets.features.full_network import full_network_outputs
from tbnets.features.full_network import ternary
from tbnets.features.full_network import ternary_bounds
from tbnets.statistics import StreamingStatistics
from tests.features.tiny_cnn import TOP
from tests.features.tiny_cnn import tiny_cnn


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


def test_ternary_literal():
    # Mean 3, population deviation 1: z is -1, 1; 2.7 is at -0.3, 3.1 at 0.1,
    # 3.2 at 0.2.
    statistics = StreamingStatistics()
    statistics.update([[2.0], [4.0]])
    bounds = ternary_bounds(statistics.mean, statistics.deviation)
    rows = np.array([[2.0], [4.0], [2.7], [3.0], [3.1], [3.2]])
    assert ternary(rows, *bounds).ravel().tolist() == [-1, 1, -1, 0, 0, 1]


@pytest.mark.parametrize("thresholds", [(-0.25, 0.15), (0.0, 0.0), (-1, 2)])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_ternary_agrees_with_the_oracle(thresholds, offset):
    generator = np.random.default_rng(0)
    train = generator.gamma(0.5, size=(50, 7)).astype(np.float32) + offset
    train[:, 3] = 0.1  # never changes
    train = train.astype(np.float32)
    others = generator.gamma(0.5, size=(9, 7)).astype(np.float32) + offset
    others = others.astype(np.float32)
    statistics = StreamingStatistics()
    for start in range(0, 50, 8):
        statistics.update(train[start : start + 8])
    bounds = ternary_bounds(statistics.mean, statistics.deviation, *thresholds)
    for rows in (train, others):
        expected = oracle(train, rows, *thresholds)
        expected[:, 3] = 0
        found = ternary(rows, *bounds)
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, expected)
        in_graph = tf.function(ternary)(tf.constant(rows), *bounds)
        np.testing.assert_array_equal(in_graph, expected)


def test_bounds_are_strict_and_rounded_outwards():
    # 1 + 0.15 and 1 - 0.25: 0.75 is a float32, so 0.75 itself is not low;
    # 1.15 is none: the nearest, 1.14999998, is not above it.
    lower, upper = ternary_bounds(np.array([1.0]), np.array([1.0]))
    edge = np.float32(0.75)
    rows = np.array([[edge], [np.nextafter(edge, np.float32(0))]])
    assert ternary(rows, lower, upper).ravel().tolist() == [0, -1]
    near = np.float32(1.15)
    rows = np.array([[near], [np.nextafter(near, np.float32(2))]])
    assert ternary(rows, lower, upper).ravel().tolist() == [0, 1]


def test_features_nearest_to_a_bound_are_decided_exactly():
    # Half of the float32 nearest to a bound lie below it, half above.
    generator = np.random.default_rng(2)
    mean = generator.uniform(1, 9, 99)
    deviation = generator.uniform(1, 9, 99)
    low, high = mean - 0.25 * deviation, mean + 0.15 * deviation
    bounds = ternary_bounds(mean, deviation)
    near = low.astype(np.float32)
    expected = -(near.astype(np.float64) < low).astype(int)
    np.testing.assert_array_equal(ternary(near[None], *bounds)[0], expected)
    near = high.astype(np.float32)
    expected = (near.astype(np.float64) > high).astype(int)
    np.testing.assert_array_equal(ternary(near[None], *bounds)[0], expected)
    assert 0 < expected.sum() < 99


def test_thresholds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="low=0.15, high=-0.25"):
        ternary_bounds(np.zeros(1), np.ones(1), 0.15, -0.25)


@pytest.mark.parametrize("sizes", [[1], [20], [7, 0, 13], [1] * 20])
def test_streaming_statistics_agree_with_one_pass_over_all(sizes):
    rows = np.random.default_rng(1).normal(1e4, 1e-2, (sum(sizes), 3))
    statistics = StreamingStatistics()
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        statistics.update(batch)
    assert statistics.count == len(rows)
    np.testing.assert_allclose(statistics.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(statistics.variance, rows.var(axis=0), rtol=1e-6)


def test_noise_on_a_constant_is_no_deviation():
    statistics = StreamingStatistics()
    for _ in range(3):
        statistics.update(np.full((5, 1), 0.1))
    assert statistics.deviation.tolist() == [0.0]


def test_full_network_takes_every_layer_but_the_classifier():
    outputs = full_network_outputs(tiny_cnn())
    assert [name for name, _ in outputs] == ["first", "second", "fc1", "fc2"]
    shapes = [tuple(output.shape)[1:] for _, output in outputs]
    assert shapes == [(8, 8, 4), (4, 4, 6), (5,), (3,)]


def test_full_network_without_top_takes_the_convolutions():
    names = [name for name, _ in full_network_outputs(tiny_cnn(top=False))]
    assert names == ["first", "second"]


def test_activations_are_taken_after_normalisation_and_relu():
    # In the tiny network `second` is a plain convolution, then batch
    # normalisation and ReLU: what leaves it is never negative.
    cnn = tiny_cnn()
    outputs = dict(full_network_outputs(cnn))
    network = keras.Model(cnn.network.input, outputs["second"])
    pixels = np.random.default_rng(0).normal(size=(4, 8, 8, 3))
    values = network(pixels.astype(np.float32)).numpy()
    assert values.min() == 0 and values.max() > 0


def test_full_network_of_vgg16_has_12416_dimensions():
    # 2 * 64 + 2 * 128 + 3 * 256 + 6 * 512 = 4224 channels, 2 * 4096 units.
    outputs = full_network_outputs(build_cnn("VGG16", image_size=32))
    sizes = [int(output.shape[-1]) for _, output in outputs]
    assert sum(sizes) == 4224 + 8192 == 12416
    assert TOP not in dict(outputs)
