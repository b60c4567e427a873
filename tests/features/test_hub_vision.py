"""Photos -> vectors by presets of Keras Hub."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features.photo_features import (
    PhotoFeatures,
    build_named_cnn,
    open_photo_features,
)
from tbnets.features.regions import AveragedFeatures, RoiFeatures, WarpFeatures
from tests import refusals, tiny_hub


@pytest.fixture(scope="module")
def photos():
    """Returns two photos, broad and high, as pixels."""
    draw = np.random.default_rng(0)
    shapes = ((30, 50, 3), (40, 24, 3))
    return [draw.integers(0, 256, shape, np.uint8) for shape in shapes]


@pytest.fixture(scope="module")
def files(photos):
    """Returns the same as files of PNG."""
    return tf.constant([tf.io.encode_png(one).numpy() for one in photos])


@pytest.fixture(scope="module")
def cnns(hub_presets):
    """Returns a function that opens the network of a kind once."""

    @functools.cache
    def open_cnn(kind):
        return build_named_cnn(f"hub:{hub_presets[kind]}", "imagenet")

    return open_cnn


def _expected(folder, backbone, photos, embed):
    """Returns what a backbone gives of photos as Keras Hub prepares them."""
    import keras_hub

    converter = keras_hub.layers.ImageConverter.from_preset(folder)
    inputs = [converter(one.astype(np.float32)) for one in photos]
    return np.asarray(embed(backbone, np.stack(inputs)))


EMBEDDINGS = {
    "clip": lambda b, x: b.get_vision_embeddings(x),
    "siglip": lambda b, x: b.get_vision_embeddings(x),
    **dict.fromkeys(["dinov2", "vit"], lambda b, x: b(x)[:, 0]),
    "resnet": lambda b, x: np.mean(b(x), axis=(1, 2)),
}
"""Kind -> the vector for which a backbone was trained, of pixels."""


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_last_layer_gives_the_vectors_of_keras_hub(
    hub_presets, cnns, photos, files, kind
):
    folder = hub_presets[kind]
    features, backbone = PhotoFeatures(cnns(kind)), cnns(kind).preset.backbone
    expected = _expected(folder, backbone, photos, EMBEDDINGS[kind])
    found = features(files).numpy()
    assert found.shape == expected.shape == (2, features.dim)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert folder not in str(features.description())


def test_features_of_named_layers_are_averaged_over_positions(cnns, files):
    layers = ["last", "vision_encoder_block_0", "vision_embedding"]
    cnn = cnns("clip")
    features = PhotoFeatures(cnn, layers)
    assert features.dim == 6 + 16 + 16
    backbone = cnn.preset.backbone
    pixels = cnn.preprocess(tf.stack([features.decode(one) for one in files]))
    tokens = backbone.vision_encoder.embedding(pixels)
    found = features(files)[:, -16:]
    np.testing.assert_allclose(found, np.mean(tokens, axis=1), atol=1e-5)
    with refusals.refused("layers"):
        PhotoFeatures(cnn, ["vision_encoder_block_1"])
    assert PhotoFeatures(cnns("resnet"), ["P2", "P3"]).dim == 64 + 6


def test_image_size_is_supported_by_some_backbones(hub_presets):
    for kind in ("dinov2", "resnet"):
        name = f"hub:{hub_presets[kind]}"
        features = PhotoFeatures(build_named_cnn(name, None, 24))
        told = features.description()
        assert features.photo_size == told["image_size"] == 24
    assert open_photo_features(told, name).description() == told
    for kind in ("clip", "vit"):
        with pytest.raises(InputError, match="24"):
            build_named_cnn(f"hub:{hub_presets[kind]}", None, 24)


def test_ten_crops_are_cut_from_converted_photos(cnns, files):
    cnn = cnns("vit")
    features = PhotoFeatures(cnn, crops="ten")
    assert features.photo_size == round(16 * 256 / 224)
    found = features(files)
    square = cnn.photo_resizer(18)(tf.io.decode_png(files[0]))
    crops = [square[y : y + 16, x : x + 16] for x in (0, 2) for y in (0, 2)]
    crops = tf.stack([*crops, square[1:17, 1:17]])
    crops = tf.concat([crops, crops[:, :, ::-1]], 0)
    expected = tf.reduce_mean(cnn.network(cnn.preprocess(crops)), axis=0)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_regions_are_warped_or_averaged_from_feature_maps(cnns, photos):
    boxes = np.array([[0, 0, 50, 30], [5, 5, 20, 20]])
    clip, resnet = cnns("clip"), cnns("resnet")
    warped = WarpFeatures(clip)
    assert warped(photos[0], boxes).shape == (2, 6)
    averaged = AveragedFeatures(resnet, ["last", "P2"])
    found = averaged(photos[0], boxes)
    assert found.shape == (2, 6 + 64 + 5) and np.isfinite(found).all()
    for extractor in (AveragedFeatures, RoiFeatures):
        with pytest.raises(InputError):
            extractor(clip)


def test_unsupported_layers_and_weights_raise_errors(hub_presets):
    name = f"hub:{hub_presets['resnet']}"
    cnn = build_named_cnn(name, "random")
    assert cnn.image_size == tiny_hub.SIDE
    with pytest.raises(InputError, match="full_network"):
        PhotoFeatures(cnn, ["full_network"])
    told = PhotoFeatures(cnn).description()
    # No preset, one of other weights, and one of another config.
    for wrong, weights in (
        (told, "imagenet"),
        (told, name),
        ({**told, "config_sha256": "0"}, name),
    ):
        with pytest.raises(InputError):
            open_photo_features(wrong, weights)
