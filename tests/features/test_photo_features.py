"""Tests of photos -> features, of one network or several."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.images import decode_image
from tbnets.errors import InputError
from tbnets.features.cnn import build_cnn
from tbnets.features.photo_features import (
    PhotoFeatures,
    SeveralNetworks,
    open_photo_features,
    ten_crops,
)
from tests import photo_files, refusals
from tests.features.tiny_cnn import NAME, SIDE, known, tiny_cnn


def photo(seed=0, mode="RGB", format="JPEG", size=(40, 30)):
    return photo_files.encode(mode, format, size[::-1], seed)


@functools.cache
def vector(features, content):
    """Returns the features of one photo, which other tests compare with."""
    return features([content])[0].numpy()


def test_ten_crops_literal():
    # A 4 x 4 photo whose pixel (y, x) is 10 y + x, cut to 2 x 2.
    pixels = np.add.outer(10 * np.arange(4), np.arange(4)).astype(np.float32)
    photos = np.repeat(pixels[None, :, :, None], 3, axis=-1)
    crops = ten_crops(photos, 2).numpy()[..., 0].reshape(10, 4).tolist()
    assert crops[:5] == [
        [0, 1, 10, 11],
        [2, 3, 12, 13],
        [20, 21, 30, 31],
        [22, 23, 32, 33],
        [11, 12, 21, 22],
    ]
    assert crops[5] == [1, 0, 11, 10]
    assert crops[9] == [12, 11, 22, 21]


def test_ten_crops_do_not_mix_photos():
    photos = np.stack([np.zeros((4, 4, 3)), np.ones((4, 4, 3))])
    crops = ten_crops(photos.astype(np.float32), 2).numpy()
    assert crops.shape == (20, 2, 2, 3)
    assert (crops[:10] == 0).all() and (crops[10:] == 1).all()


@pytest.mark.parametrize(
    "crops, layers", [("one", ["first", "fc1"]), ("ten", ["last"])]
)
def test_features_agree_with_one_crop_after_the_other(crops, layers):
    features = PhotoFeatures(tiny_cnn(), layers, crops)
    content = photo()
    side = {"one": SIDE, "ten": 9}[crops]  # 256 / 224 of 8 is 9.1
    decoded = decode_image(content, side)
    views = decoded[None]
    if crops == "ten":
        views = ten_crops(views, SIDE)
    rows = [
        features.network(view[None] / 127.5 - 1.0)[0].numpy() for view in views
    ]
    np.testing.assert_allclose(
        features([content])[0], np.mean(rows, axis=0), rtol=1e-4, atol=1e-6
    )


def test_features_built_from_a_description_are_equal(tmp_path):
    path = tmp_path / "w.weights.h5"
    with known():
        cnn = build_cnn(NAME, image_size=16)
        cnn.network.save_weights(str(path))
        features = PhotoFeatures(cnn, ["first", "last"])
        again = open_photo_features(features.description(), path)
        with pytest.raises(InputError):
            open_photo_features(features.description(), None)
    content = photo()
    np.testing.assert_array_equal(features([content]), again([content]))
    with refusals.refused("crops"):
        PhotoFeatures(cnn, crops="5")


def test_features_of_two_networks_are_concatenated():
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


@pytest.mark.parametrize(
    "crops, layers",
    [("one", ["first"]), ("one", ["pool2"]), ("one", ["pool2", "pool2"])],
)
def test_features_are_the_means_of_the_maps(crops, layers):
    features = PhotoFeatures(tiny_cnn(), layers, crops)
    photos = np.random.default_rng(0).uniform(0, 255, (2, SIDE, SIDE, 3))
    photos = photos.astype(np.float32)
    maps = features.maps(photos).numpy()
    assert maps.shape[0] == 2 and maps.shape[-1] == features.dim
    means = maps.mean(axis=(1, 2))
    np.testing.assert_allclose(
        means, features.forward(photos), rtol=1e-4, atol=1e-6
    )
    assert features.maps(photos[:0]).shape == (0, *maps.shape[1:])
