"""Tests of photos that several networks see."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.images import decode_image
from tbnets.features.photo_features import PhotoFeatures, SeveralNetworks
from tests.features.test_photo_features import photo
from tests.features.tiny_cnn import tiny_cnn


@pytest.fixture(scope="module")
def squares():
    """Returns a network of photos of 8 pixels, and one of 9, side by side."""
    parts = [PhotoFeatures(tiny_cnn()), PhotoFeatures(tiny_cnn(), crops="ten")]
    return SeveralNetworks(parts)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [(100, 70), (200, 130), (300, 290)])
def test_squares_are_those_of_one_after_the_other(squares, format, size):
    # Of 130 pixels a side, JPEG is decoded at a half for 8, whole for 9.
    content = photo(format=format, size=size)
    graph = tf.function(squares.decode, [tf.TensorSpec([], tf.string)])
    for found in squares.decode(content), graph(content):
        for square, side in zip(found, (8, 9), strict=True):
            np.testing.assert_array_equal(square, decode_image(content, side))


def test_features_are_those_of_each_network():
    parts = [
        PhotoFeatures(tiny_cnn(), ["first", "last"]),
        PhotoFeatures(tiny_cnn(seed=1), ["full_network"], "ten"),
    ]
    features = SeveralNetworks(parts)
    photos = [photo(0), photo(1, size=(200, 150))]
    found = features(photos)
    assert found.shape == (2, features.dim)
    np.testing.assert_array_equal(
        found, np.concatenate([part(photos) for part in parts], axis=1)
    )
    decoded = [tf.stack(some) for some in zip(*map(features.decode, photos))]
    np.testing.assert_array_equal(features.forward(decoded), found)
    assert features([]).shape == (0, features.dim)
