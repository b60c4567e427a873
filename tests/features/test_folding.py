"""Tests of batch normalisation that is folded into convolutions."""

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
def test_folded_network_gives_equal_outputs(use_bias):
    network = with_statistics(chain(use_bias=use_bias))
    folded = fold_batch_normalization(network)
    assert num_normalisations(network) == 2
    assert num_normalisations(folded) == 0
    found, expected = (x(PIXELS, training=False) for x in (folded, network))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_batch_normalization_behind_an_activation_is_not_folded():
    for network in (chain(keras.layers.ReLU()), chain(activation="relu")):
        folded = fold_batch_normalization(with_statistics(network))
        assert num_normalisations(folded) == 1


def test_convolution_that_is_an_output_is_not_folded():
    network = with_statistics(chain())
    outputs = [network.get_layer("plain").output, network.output]
    network = keras.Model(network.input, outputs)
    folded = fold_batch_normalization(network)
    assert num_normalisations(folded) == 1
    for found, expected in zip(
        folded(PIXELS, training=False), network(PIXELS, training=False)
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_network_without_batch_normalization_is_returned_unchanged():
    inputs = keras.Input((6, 6, 3))
    network = keras.Model(inputs, keras.layers.Conv2D(4, 3)(inputs))
    assert fold_batch_normalization(network) is network
