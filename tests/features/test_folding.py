"""Tests of folding batch normalisation into convolutions."""

import keras
import numpy as np
import pytest

from tbnets.features.cnn import fold_batch_normalization


def chain(between=lambda outputs: outputs, **options):
    """Convolutions of both kinds, each before a batch normalisation."""
    layers = keras.layers
    inputs = keras.Input((6, 6, 3))
    outputs = layers.Conv2D(4, 3, name="plain", **options)(inputs)
    outputs = layers.BatchNormalization(epsilon=0.5, name="a")(between(outputs))
    outputs = layers.DepthwiseConv2D(
        3, depth_multiplier=2, use_bias=False, name="each"
    )(outputs)
    outputs = layers.BatchNormalization(scale=False, center=False, name="b")(
        outputs
    )
    return keras.Model(inputs, layers.ReLU(name="relu")(outputs))


def with_statistics(network):
    """Fills all weights with positive numbers."""
    rng = np.random.default_rng(0)
    for layer in network.layers:
        layer.set_weights(
            [rng.uniform(0.5, 1.5, w.shape) for w in layer.get_weights()]
        )
    return network


def num_normalisations(network):
    kind = keras.layers.BatchNormalization
    return sum(isinstance(layer, kind) for layer in network.layers)


PIXELS = np.random.default_rng(1).uniform(-1, 1, (2, 6, 6, 3)).astype("f4")


@pytest.mark.parametrize("use_bias", [False, True])
def test_a_folded_network_computes_the_same(use_bias):
    network = with_statistics(chain(use_bias=use_bias))
    folded = fold_batch_normalization(network)
    assert num_normalisations(network) == 2
    assert num_normalisations(folded) == 0
    expected = network(PIXELS, training=False)
    np.testing.assert_allclose(
        folded(PIXELS, training=False), expected, rtol=1e-5, atol=1e-5
    )


def test_one_pixel_by_hand():
    # Kernel 2, variance 3, epsilon 1: 2 * 3 / sqrt(3 + 1) = 3; bias
    # (5 - 1) * 3 / 2 + 7 = 13, for bias 5, mean 1, gamma 3, beta 7.
    inputs = keras.Input((1, 1, 1))
    outputs = keras.layers.Conv2D(1, 1, name="x")(inputs)
    outputs = keras.layers.BatchNormalization(epsilon=1.0, name="y")(outputs)
    network = keras.Model(inputs, outputs)
    network.get_layer("x").set_weights(
        [np.full((1, 1, 1, 1), 2.0), np.array([5.0])]
    )
    network.get_layer("y").set_weights(
        [np.array([value]) for value in (3.0, 7.0, 1.0, 3.0)]
    )
    folded = fold_batch_normalization(network)
    kernel, bias = folded.get_layer("x").get_weights()
    assert (kernel.item(), bias.item()) == (3.0, 13.0)


def test_an_activation_between_is_not_folded():
    network = with_statistics(chain(keras.layers.ReLU()))
    assert num_normalisations(fold_batch_normalization(network)) == 1
    network = with_statistics(chain(activation="relu"))
    assert num_normalisations(fold_batch_normalization(network)) == 1


def test_a_convolution_that_is_asked_for_stays():
    network = with_statistics(chain())
    outputs = [network.get_layer("plain").output, network.output]
    network = keras.Model(network.input, outputs)
    folded = fold_batch_normalization(network)
    assert num_normalisations(folded) == 1
    for found, expected in zip(
        folded(PIXELS, training=False), network(PIXELS, training=False)
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_nothing_to_fold_is_the_network_itself():
    inputs = keras.Input((6, 6, 3))
    network = keras.Model(inputs, keras.layers.Conv2D(4, 3)(inputs))
    assert fold_batch_normalization(network) is network
