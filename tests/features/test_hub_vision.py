"""Photos -> vectors by presets of Keras Hub."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features.photo_features import (
    PhotoFeatures,
    build_named_cnn,
    open_photo_features,
)
from tbnets.features.regions import make_region_extractor
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


def _expected(folder, photos, embed):
    """Returns what Keras Hub itself gives, photo by photo."""
    import keras_hub

    backbone = keras_hub.models.Backbone.from_preset(folder)
    converter = keras_hub.layers.ImageConverter.from_preset(folder)
    inputs = [converter(one.astype(np.float32))[None] for one in photos]
    return np.concatenate([embed(backbone, one) for one in inputs])


def _projected(backbone, pixels):
    return backbone.get_vision_embeddings(pixels)


def _class_token(backbone, pixels):
    return backbone(pixels)[:, 0]


def _map_mean(backbone, pixels):
    return np.mean(backbone(pixels), axis=(1, 2))


@pytest.mark.parametrize(
    ("kind", "embed"),
    [
        ("clip", _projected),
        ("metaclip2", _projected),
        ("siglip", _projected),
        ("dinov2", _class_token),
        ("vit", _class_token),
        ("resnet", _map_mean),
    ],
)
def test_last_is_the_vector_as_it_was_trained(
    hub_presets, photos, files, kind, embed
):
    folder = hub_presets[kind]
    features = PhotoFeatures(build_named_cnn(f"hub:{folder}", "imagenet"))
    expected = _expected(folder, photos, embed)
    found = features(files).numpy()
    assert found.shape == expected.shape == (2, features.dim)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert folder not in str(features.description())


def test_features_are_the_same_in_the_graph_and_reopened(hub_presets, files):
    name = f"hub:{hub_presets['resnet']}"
    features = PhotoFeatures(build_named_cnn(name, "imagenet"))
    decoded = tf.stack([features.decode(one) for one in files])
    apart = features.compiled_forward(decoded).numpy()
    np.testing.assert_allclose(features(files), apart, rtol=1e-4, atol=1e-5)
    assert features.forward(decoded[:0]).shape == (0, features.dim)
    told = features.description()
    assert open_photo_features(told, name).description() == told


def test_other_layers_are_averaged_over_positions(hub_presets, files):
    import keras_hub

    folder = hub_presets["clip"]
    layers = ["last", "vision_encoder_block_0", "vision_embedding"]
    cnn = build_named_cnn(f"hub:{folder}", None)
    features = PhotoFeatures(cnn, layers)
    assert features.dim == 6 + 16 + 16
    backbone = keras_hub.models.Backbone.from_preset(folder)
    pixels = cnn.preprocess(tf.stack([features.decode(one) for one in files]))
    tokens = backbone.vision_encoder.embedding(pixels)
    found = features(files)[:, -16:]
    np.testing.assert_allclose(found, np.mean(tokens, axis=1), atol=1e-5)
    with refusals.refused("layers"):
        PhotoFeatures(cnn, ["vision_encoder_block_1"])
    levels = build_named_cnn(f"hub:{hub_presets['resnet']}", None)
    assert PhotoFeatures(levels, ["P2", "P3"]).dim == 64 + 6


def test_another_size_is_one_that_the_backbone_can(hub_presets, files):
    features = {
        kind: PhotoFeatures(
            build_named_cnn(f"hub:{hub_presets[kind]}", None, 24)
        )
        for kind in ("dinov2", "resnet")
    }
    for kind, each in features.items():
        assert each.photo_size == each.description()["image_size"] == 24
        told = each.description()
        again = open_photo_features(told, f"hub:{hub_presets[kind]}")
        assert again.description() == told
    with pytest.raises(InputError, match="24"):
        build_named_cnn(f"hub:{hub_presets['clip']}", None, 24)


def test_ten_crops_are_cut_from_what_the_converter_gives(hub_presets, files):
    cnn = build_named_cnn(f"hub:{hub_presets['vit']}", None)
    features = PhotoFeatures(cnn, crops="ten")
    assert features.photo_size == round(16 * 256 / 224)
    found = features(files)
    square = cnn.photos_of(18)(tf.io.decode_png(files[0]))
    crops = [square[y : y + 16, x : x + 16] for x in (0, 2) for y in (0, 2)]
    crops = tf.stack([*crops, square[1:17, 1:17]])
    crops = tf.concat([crops, crops[:, :, ::-1]], 0)
    expected = tf.reduce_mean(cnn.network(cnn.preprocess(crops)), axis=0)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_regions_are_cut_out_or_averaged_where_there_are_maps(
    hub_presets, photos
):
    boxes = np.array([[0, 0, 50, 30], [5, 5, 20, 20]])
    clip = build_named_cnn(f"hub:{hub_presets['clip']}", None)
    resnet = build_named_cnn(f"hub:{hub_presets['resnet']}", None)
    warped = make_region_extractor(clip, "warp")
    assert warped(photos[0], boxes).shape == (2, 6)
    averaged = make_region_extractor(resnet, "roi_average", ["last", "P2"])
    found = averaged(photos[0], boxes)
    assert found.shape == (2, 6 + 64 + 5) and np.isfinite(found).all()
    for cnn, kind in ((clip, "roi_average"), (clip, "roi_pool")):
        with pytest.raises(InputError):
            make_region_extractor(cnn, kind)


def test_what_a_preset_can_not_is_refused(hub_presets):
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
