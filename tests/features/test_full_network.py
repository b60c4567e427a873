"""Tests of the layers of the Full-Network Embedding."""

import keras
import numpy as np

from tbnets.features.cnn import build_cnn, full_network_outputs
from tests.features.tiny_cnn import TOP, tiny_cnn


def test_full_network_takes_every_layer_but_the_classifier():
    shapes = {
        name: tuple(output.shape)[1:]
        for name, output in full_network_outputs(tiny_cnn())
    }
    maps = {"first": (8, 8, 4), "second": (4, 4, 6)}
    assert shapes == {**maps, "fc1": (5,), "fc2": (3,)}
    assert dict(full_network_outputs(tiny_cnn(top=False))).keys() == maps.keys()


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
