"""Tests of the image encoders."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.cnn import Cnn
from tbnets.features.image_encoders import (
    ApplicationEncoder,
    SmallConvNet,
)
from tbnets.features.photo_features import PhotoFeatures
from tests.features import tiny_cnn


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with tiny_cnn.known():
        yield


def test_small_conv_net_halves_at_each_stage():
    # 20 x 12 -> 10 x 6 -> 5 x 3 maps; of odd sides the larger half.
    for height, width, cells in ((20, 12, 5 * 3), (9, 7, 3 * 2)):
        encoder = SmallConvNet((4, 6))
        outputs = encoder(tf.zeros((2, height, width, 3)))
        assert outputs.shape == (2, cells * 6) == (2, encoder.output_dim)


def test_application_preprocesses_inside():
    encoder = tuned()
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3))
    output = encoder(tf.constant(pixels, tf.float32))
    expected = encoder.network(
        tf.constant(pixels / 127.5 - 1, tf.float32), training=False
    )
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert output.shape[1] == encoder.output_dim


def tuned(fine_tune=True):
    return ApplicationEncoder(tiny_cnn.NAME, tiny_cnn.SIDE, None, fine_tune)


@pytest.mark.parametrize("fine_tune", [False, True])
def test_batch_statistics_change_only_in_fine_tuning(fine_tune):
    encoder = tuned(fine_tune)
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3))
    pixels = tf.constant(pixels, tf.float32)
    before = encoder(pixels)
    means = encoder.network.get_layer("second_bn").get_weights()[2]
    with tf.GradientTape() as tape:
        outputs = encoder(pixels, training=True)
        loss = tf.reduce_sum(outputs**2)
    assert outputs.shape == (2, 6)
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert len(gradients) == (6 if fine_tune else 0)
    moved = encoder.network.get_layer("second_bn").get_weights()[2] - means
    assert np.any(moved) == fine_tune
    if not fine_tune:
        np.testing.assert_array_equal(outputs, before)


def test_empty_batch_with_one_dnn():
    """oneDNN makes of no images as many channels as it was given."""
    # The first layer is a convolution without padding, nothing before it.
    inputs = keras.Input((48, 48, 3))
    outputs = keras.layers.Conv2D(5, 3, name="first")(inputs)
    outputs = keras.layers.Conv2D(7, 3, name="second")(outputs)
    model = keras.Model(inputs, outputs)
    plain = Cnn("plain", model, lambda x: x, 48, False)
    signature = [tf.TensorSpec((None, 48, 48, 3))]
    for function, size in (
        (PhotoFeatures(plain, ["first", "second"]).forward, 12),
        (SmallConvNet((4, 6)), 12 * 12 * 6),
    ):
        function(tf.zeros((1, 48, 48, 3)))
        graph = tf.function(function, input_signature=signature)
        for call in (function, graph):
            assert call(tf.zeros((0, 48, 48, 3))).shape == (0, size)
