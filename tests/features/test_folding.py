"""Tests of batch normalisation that is folded into convolutions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

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


def with_two_outputs(network, name):
    outputs = [network.get_layer(name).output, network.output]
    return keras.Model(network.input, outputs)


# The number of normalisations that are left, and the network.
CHAINS = {
    "no_bias": (0, lambda: chain(use_bias=False)),
    "bias": (0, lambda: chain(use_bias=True)),
    "activation_between": (1, lambda: chain(activation="relu")),
    "layer_between": (1, lambda: chain(keras.layers.ReLU())),
    "convolution_is_an_output": (1, lambda: with_two_outputs(chain(), "plain")),
}


@pytest.mark.parametrize("left, make", CHAINS.values(), ids=CHAINS)
def test_folded_network_gives_equal_outputs(left, make):
    network = with_statistics(make())
    folded = fold_batch_normalization(network)
    kinds = [type(layer) for layer in folded.layers]
    assert kinds.count(keras.layers.BatchNormalization) == left
    pixels = np.random.default_rng(1).uniform(-1, 1, (2, 6, 6, 3)).astype("f4")
    outputs = (tf.nest.flatten(one(pixels)) for one in (folded, network))
    for found, expected in zip(*outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if left == 0:
        assert fold_batch_normalization(folded) is folded
