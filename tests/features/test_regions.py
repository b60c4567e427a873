"""Tests of cutting boxes out and of features of regions."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.features import regions
from tbnets.features.cnn import Cnn
from tbnets.features.cnn_weights import weights_sha256
from tbnets.features.regions import (
    AveragedFeatures,
    RoiFeatures,
    WarpFeatures,
    roi_average,
    roi_pool,
    warped_crops,
)
from tests import reference
from tests.features.tiny_cnn import SIDE as TINY_SIDE
from tests.features.tiny_cnn import tiny_cnn

SIDE = 16
BOXES = [tf.TensorSpec([None, 4])]
EAGERLY = pytest.mark.usefixtures("eagerly")


def random_photo(height, width, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    return pixels.astype(np.uint8)


@functools.cache
def vgg_like(joint="flatten", pool=True):
    """conv, pool, conv, pool, then fully-connected: VGG in small."""
    layers = keras.layers
    keras.utils.set_random_seed(1)
    inputs = keras.Input((SIDE, SIDE, 3))
    outputs = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    outputs = layers.MaxPooling2D(2)(outputs)
    outputs = layers.Conv2D(
        5, 3, padding="same", activation="relu", name="conv2"
    )(outputs)
    if pool:
        outputs = layers.MaxPooling2D(2, name="pool2")(outputs)
    if joint == "flatten":
        outputs = layers.Flatten(name="flatten")(outputs)
    else:
        outputs = layers.GlobalAveragePooling2D(name="average")(outputs)
    for name in ("fc1", "fc2"):
        outputs = layers.Dense(6, activation="relu", name=name)(outputs)
        outputs = layers.Dropout(0.5)(outputs)
    outputs = layers.Dense(3, name="predictions")(outputs)
    network = keras.Model(inputs, outputs, name="tiny")
    return Cnn("tiny", network, lambda pixels: pixels / 64 - 1, SIDE, True)


def plain_forward(cnn, layer, photos):
    """The features of whole photos, without any of the code under test."""
    output = cnn.network.get_layer(layer).output
    model = keras.Model(cnn.network.inputs[0], output)
    return np.asarray(model(cnn.preprocess(photos), training=False))


# Warped crops.


def test_warped_crop_context_shows_the_surroundings_or_the_mean_colour():
    photo = random_photo(20, 20)
    # Half of the square, 4 of 8 pixels, is the box; 2 on each side are not.
    [crop] = warped_crops(photo, [[8, 6, 12, 10]], 8, context=0.25).numpy()
    np.testing.assert_allclose(crop, photo[4:12, 6:14], atol=1e-3)
    [crop] = warped_crops(photo, [[0, 0, 20, 20]], 40, context=0.25).numpy()
    mean = photo.mean(axis=(0, 1))
    np.testing.assert_allclose(crop[0], [mean] * 40, atol=1e-3)
    np.testing.assert_allclose(crop[10:30, 10:30], photo, atol=1e-3)


# Pooling of maps.


def loop_roi_pool(feature_map, boxes, size):
    """Fast R-CNN's pooling, cell by cell."""

    def in_bin(cell, first, end, i):
        low = math.floor(i * (end - first) / size)
        return low <= cell - first < math.ceil((i + 1) * (end - first) / size)

    height, width, channels = feature_map.shape
    pooled = np.zeros((len(boxes), size, size, channels), feature_map.dtype)
    for number, box in enumerate(boxes):
        x_min, y_min, x_max, y_max = (math.floor(edge + 0.5) for edge in box)
        x_min = min(max(x_min, 0), width - 1)
        y_min = min(max(y_min, 0), height - 1)
        x_max = min(max(x_max, x_min + 1), width)
        y_max = min(max(y_max, y_min + 1), height)
        for i, j in np.ndindex(size, size):
            rows, columns = (
                [cell for cell in range(*side) if in_bin(cell, *side, place)]
                for side, place in (((y_min, y_max), i), ((x_min, x_max), j))
            )
            cells = feature_map[np.ix_(rows, columns)]
            pooled[number, i, j] = cells.max(axis=(0, 1))
    return pooled


@pytest.mark.parametrize("size", [1, 3])
def test_roi_pool_equals_the_loop(size):
    random = np.random.default_rng(size)
    feature_map = random.normal(size=(9, 13, 2)).astype(np.float32)
    corners = random.uniform(-3, 15, (20, 2, 2)).astype(np.float32)
    corners.sort(axis=1)
    boxes = corners.reshape(20, 4)
    boxes = np.concatenate([boxes, [[0, 0, 13, 9], [4.5, 2.5, 4.5, 2.5]]])
    pool = tf.function(lambda some: roi_pool(feature_map, some, size), BOXES)
    found = pool(tf.constant(boxes, tf.float32))
    np.testing.assert_array_equal(
        found, loop_roi_pool(feature_map, boxes, size)
    )
    assert pool(tf.zeros((0, 4))).shape == (0, size, size, 2)


# Features of regions.


@EAGERLY
@pytest.mark.parametrize(
    "kind, options",
    [
        ("warp", {}),
        # The map has 4 x 4 cells: each is a bin.
        ("roi_pool", {"output_size": 4, "shorter_side": TINY_SIDE}),
    ],
)
def test_batch_normalisation_is_folded_in_any_policy(kind, options):
    cnn = tiny_cnn(top=False)
    cnn.network.get_layer("second_bn").set_weights(
        np.random.default_rng(0).uniform(0.5, 1.5, (4, 6)).astype("f4")
    )
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        extract = regions.EXTRACTORS[kind](cnn, "second_relu", **options)
        assert keras.mixed_precision.global_policy().name == "mixed_bfloat16"
    finally:
        keras.mixed_precision.set_global_policy("float32")
    network = extract.network if kind == "warp" else extract.convolutions
    assert not any(
        isinstance(layer, keras.layers.BatchNormalization)
        for layer in network.layers
    )
    photo = random_photo(TINY_SIDE, TINY_SIDE)
    maps = plain_forward(cnn, "second_relu", photo[None].astype("f4"))
    np.testing.assert_allclose(
        extract(photo, [[0, 0, TINY_SIDE, TINY_SIDE]]),
        maps.mean(axis=(1, 2)),
        rtol=1e-5,
        atol=1e-5,
    )


@EAGERLY
def test_roi_features_equal_the_head_on_pooled_bins():
    cnn = vgg_like()
    photo = random_photo(SIDE, 2 * SIDE, 3).astype(np.float32)
    extract = RoiFeatures(cnn, "fc1", shorter_side=2 * SIDE)
    assert extract.output_size == 4
    boxes = np.array([[1, 2, 13, 15], [20, 0, 32, 9], [0, 0, 32, 16]])
    found = extract(photo, boxes)
    # Scaled to 32 x 64 pixels, the map has 16 x 32 cells: boxes times 1.
    scaled = tf.image.resize(photo, [32, 64], antialias=True)
    first, pool, second = cnn.network.layers[1:4]
    feature_map = second(pool(first(cnn.preprocess(scaled[None]))))[0]
    bins = loop_roi_pool(feature_map.numpy(), boxes, 4)
    expected = cnn.network.get_layer("fc1")(bins.reshape(3, -1))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@EAGERLY
@pytest.mark.parametrize("joint, bins", [("average", 8), ("flatten", None)])
def test_roi_features_with_average_pooling_or_without_pooling(joint, bins):
    photo = random_photo(SIDE, SIDE)
    cnn = vgg_like(joint, pool=False)
    extract = RoiFeatures(cnn, "fc2", output_size=bins, shorter_side=SIDE)
    # Bins of one cell each: the average of 8 x 8 bins is that of the map.
    assert extract.output_size == 8
    [found] = extract(photo, [[0, 0, SIDE, SIDE]])
    expected = plain_forward(cnn, "fc2", photo[None].astype("f"))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@EAGERLY
def test_roi_features_scale_the_photo_within_both_sides():
    extract = RoiFeatures(vgg_like(), "conv2", shorter_side=40, longest_side=60)
    # 10 x 12 by 4 is 40 x 48; 10 x 30 by 2, as 30 may become 60.
    for shape, expected in (((10, 12), (20, 24)), ((10, 30), (10, 30))):
        found = extract.feature_map(np.zeros((*shape, 3), np.float32))
        assert found.shape[:2] == expected


@pytest.mark.parametrize("kind", ["warp", "roi_pool", "roi_average"])
def test_region_features_do_not_depend_on_the_block_size(kind, monkeypatch):
    cnn, layer = vgg_like(), "fc2"
    if kind == "roi_average":
        cnn, layer = two_depths(), "early"
    sides = {"shorter_side": 32} if kind == "roi_pool" else {}
    extract = regions.EXTRACTORS[kind](cnn, layer, **sides)
    photo = random_photo(20, 30)
    boxes = [[0, 0, 9, 9], [3, 4, 20, 19], [1, 1, 30, 20], [5, 5, 9, 9]]
    at_once = extract(photo, boxes)
    monkeypatch.setattr(regions, "CROPS_AT_ONCE", 3)
    monkeypatch.setattr(regions, "POOLED_AT_ONCE", 3)
    in_blocks = extract(photo, boxes)
    np.testing.assert_allclose(in_blocks, at_once, rtol=1e-4, atol=1e-6)
    # Each box by itself, too: nothing is shared between boxes.
    alone = np.concatenate([extract(photo, [box]) for box in boxes])
    np.testing.assert_allclose(alone, at_once, rtol=1e-4, atol=1e-6)
    assert not np.allclose(at_once[0], at_once[1], rtol=1e-2)
    assert extract(photo, np.zeros((0, 4))).shape == (0, extract.dim)


@EAGERLY
def test_warped_features_include_context():
    cnn, photo = vgg_like(), random_photo(40, 40)
    wide = WarpFeatures(cnn, "fc1", context=0.25)
    found = wide(photo, [[12, 12, 20, 20]])
    expected = WarpFeatures(cnn, "fc1")(photo, [[8, 8, 24, 24]])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    described = wide.description()
    assert described["regions"] == "warp" and described["context"] == 0.25
    assert described["layers"] == ["fc1"]
    assert described["weights_sha256"] == weights_sha256(cnn.network)
    described = RoiFeatures(cnn, "fc2").description()
    assert (described["output_size"], described["shorter_side"]) == (4, 600)


@functools.cache
def two_depths():
    """Maps of 8 x 8 cells of 4 channels and, averaged, 4 x 4 of 6."""
    layers = keras.layers
    keras.utils.set_random_seed(1)
    inputs = keras.Input((SIDE, SIDE, 3))
    outputs = layers.Conv2D(4, 3, 2, "same", use_bias=False)(inputs)
    outputs = layers.BatchNormalization()(outputs)
    outputs = layers.ReLU(6.0, name="early")(outputs)
    outputs = layers.Conv2D(6, 3, 2, "same", name="late")(outputs)
    outputs = layers.GlobalAveragePooling2D(name="average")(outputs)
    outputs = layers.Dense(3, name="predictions")(outputs)
    network = keras.Model(inputs, outputs, name="tiny")
    return Cnn("tiny", network, lambda pixels: pixels / 64 - 1, SIDE, True)


# Averages of boxes.


def test_roi_average_equals_the_loop():
    signature = [*map(tf.TensorSpec, [[None, None, 2], [None, 4]])]
    graph, xla = (
        tf.function(roi_average, signature, autograph=False, jit_compile=xla)
        for xla in (False, True)
    )
    random = np.random.default_rng(0)
    for height, width, calls in (
        (5, 7, (roi_average, graph, xla)),
        *((*sides, (roi_average, graph)) for sides in ((1, 6), (1, 1))),
    ):
        feature_map = random.normal(size=(height, width, 2))
        corners = random.uniform(0, 1, (6, 2, 2)) * [width, height]
        corners.sort(axis=1)
        boxes = corners.reshape(6, 4)
        expected = [
            reference.roi_average(feature_map, box, 32) for box in boxes
        ]
        feature_map = tf.constant(feature_map, tf.float32)
        for average in calls:
            found = average(feature_map, tf.constant(boxes, tf.float32))
            np.testing.assert_allclose(found, expected, atol=5e-3)
            assert average(feature_map, tf.zeros((0, 4))).shape == (0, 2)


def test_roi_average_of_a_grid_equals_its_cells():
    feature_map = np.random.default_rng(4).normal(size=(5, 7, 3)).astype("f")
    boxes = np.array([[0, 0, 7, 5], [1.5, 0.5, 4.5, 5], [-2, 1, 2, 3]])
    found = roi_average(feature_map, boxes, 3)
    cells = []
    for x_min, y_min, x_max, y_max in boxes:
        x, y = np.linspace(x_min, x_max, 4), np.linspace(y_min, y_max, 4)
        cells += [[x[j], y[i], x[j + 1], y[i + 1]] for i, j in np.ndindex(3, 3)]
    expected = roi_average(feature_map, cells)
    np.testing.assert_allclose(found, np.reshape(expected, (3, 27)), atol=1e-5)


# Features.


@EAGERLY
def test_features_are_averages_of_each_map_and_geometry():
    cnn = two_depths()
    extract = AveragedFeatures(cnn, ["last", "early"])
    photo = random_photo(20, 40)
    boxes = np.array([[0, 0, 40, 20], [3, 1, 12, 19], [38, 0, 40, 1]])
    found = extract(photo, boxes)
    assert found.shape == (3, 6 + 4 + 5) and extract.dim == 15
    squeezed = tf.image.resize(photo, [SIDE, SIDE], antialias=True)[None]
    for layer, cells, columns in (
        ("late", 4, slice(0, 6)),
        ("early", 8, slice(6, 10)),
    ):
        [feature_map] = plain_forward(cnn, layer, squeezed)
        scaled = boxes * ([cells / 40, cells / 20] * 2)
        expected = [reference.roi_average(feature_map, box) for box in scaled]
        np.testing.assert_allclose(found[:, columns], expected, atol=2e-3)
    expected = [reference.box_geometry(box, 40, 20) for box in boxes]
    np.testing.assert_allclose(found[:, 10:], expected, rtol=1e-6)
    described = extract.description()
    assert described["layers"] == ["last", "early"] and described["geometry"]
    assert described["grids"] == described["scales"] == [1, 1]
    assert described["weights_sha256"] == weights_sha256(cnn.network)


@EAGERLY
def test_box_is_clipped_to_the_photo():
    extract = AveragedFeatures(
        two_depths(), ["early", "early"], geometry=False, scales=[1, 1.5]
    )
    # 16 wide and 8 high, half as much again, and the same at a corner.
    found = extract(random_photo(20, 40), [[12, 6, 28, 14], [0, 0, 16, 8]])
    larger = extract(random_photo(20, 40), [[8, 4, 32, 16], [0, 0, 20, 10]])
    np.testing.assert_allclose(found[:, 4:], larger[:, :4], atol=1e-5)
    beyond, cut = extract(
        random_photo(20, 30), [[-5, 3, 40, 60], [0, 3, 30, 20]]
    )
    np.testing.assert_array_equal(beyond[:4], cut[:4])
