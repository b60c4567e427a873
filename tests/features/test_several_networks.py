"""Tests of photos that several networks see."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.photo_features import PhotoFeatures
from tbnets.features.several_networks import SeveralNetworks, decode_squares
from tbnets.images import decode_image
from tests.features.test_photo_features import photo
from tests.features.tiny_cnn import tiny_cnn


def corner(image):
    """Makes a square otherwise than by squeezing."""
    return tf.cast(image[:2, :2], tf.float32)


@functools.cache
def traced(sizes):
    """Returns `decode_squares` of any photo, as a graph."""
    spec = [tf.TensorSpec([], tf.string)]
    return tf.function(lambda one: decode_squares(one, sizes), spec)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [(100, 70), (200, 130), (300, 290)])
@pytest.mark.parametrize(
    "sizes", [(8, 12), (16, 8, 16), (corner, 8), (corner,)]
)
def test_squares_are_those_of_one_after_the_other(format, size, sizes):
    # Of 130 pixels a side, JPEG is decoded at a half for 8, whole for 12.
    content = photo(format=format, size=size)
    for found in decode_squares(content, sizes), traced(sizes)(content):
        for square, one in zip(found, sizes, strict=True):
            np.testing.assert_array_equal(square, decode_image(content, one))


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
