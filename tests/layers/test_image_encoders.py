import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.image_encoders import ApplicationEncoder
from tbnets.layers.image_encoders import SmallConvNet


def test_small_conv_net_halves_at_each_stage():
    encoder = SmallConvNet((4, 6))
    encoder.build((None, 20, 12, 3))
    # 20 x 12 -> 10 x 6 -> 5 x 3 maps of 6 channels.
    assert encoder.output_dim == 5 * 3 * 6
    assert encoder(tf.zeros((2, 20, 12, 3))).shape == (2, 90)


def test_small_conv_net_takes_odd_sizes():
    encoder = SmallConvNet((4, 4))
    output = encoder(tf.zeros((1, 9, 7, 3)))
    assert output.shape == (1, encoder.output_dim)


def test_small_conv_net_needs_a_known_size():
    with pytest.raises(ValueError, match="--image_size"):
        SmallConvNet().build((None, None, None, 3))


def test_application_preprocesses_inside():
    encoder = ApplicationEncoder("MobileNetV2", image_size=32)
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 32, 32, 3))
    output = encoder(tf.constant(pixels, tf.float32))
    expected = encoder.network(
        tf.constant(pixels / 127.5 - 1, tf.float32), training=False
    )
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert output.shape[1] == encoder.output_dim


def test_frozen_application_has_nothing_to_train():
    encoder = ApplicationEncoder("MobileNetV2", image_size=32)
    encoder.build((None, 32, 32, 3))
    assert not encoder.trainable_variables
    tuned = ApplicationEncoder("MobileNetV2", image_size=32, fine_tune=True)
    assert tuned.trainable_variables


def test_unknown_application_lists_the_known():
    with pytest.raises(ValueError, match="MobileNetV2.*VGG19"):
        ApplicationEncoder("AlexNet")
