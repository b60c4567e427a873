"""Tests of cutting boxes out and of features of regions."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features import regions
from tbnets.features.cnn import Cnn
from tbnets.features.cnn_weights import weights_sha256
from tbnets.features.cutting import roi_average, roi_pool, warped_crops
from tbnets.features.regions import (
    AveragedFeatures,
    RoiFeatures,
    WarpFeatures,
    make_region_extractor,
)
from tests import reference, refusals
from tests.features.tiny_cnn import SIDE as TINY_SIDE
from tests.features.tiny_cnn import tiny_cnn

SIDE = 16


def random_photo(height, width, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    return pixels.astype(np.uint8)


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


def test_warped_crop_of_the_whole_photo_is_a_resize():
    photo = random_photo(23, 31)
    crops = warped_crops(photo, [[0, 0, 31, 23]], 10)
    expected = tf.image.resize(photo, [10, 10], "bilinear", antialias=True)
    np.testing.assert_allclose(crops[0], expected, atol=1e-3)


def test_warped_crop_at_its_own_size_is_the_slice(compiled_no_xla):
    photo = random_photo(20, 30)
    crop = compiled_no_xla(lambda boxes: warped_crops(photo, boxes, 8))
    # Columns 5 to 12 and rows 3 to 10, and another place.
    crops = crop(tf.constant([[5, 3, 13, 11], [22, 12, 30, 20]], tf.float32))
    np.testing.assert_allclose(crops[0], photo[3:11, 5:13], atol=1e-3)
    np.testing.assert_allclose(crops[1], photo[12:20, 22:30], atol=1e-3)


@pytest.fixture(params=["eager", "graph"])
def compiled_no_xla(request):
    return tf.function if request.param == "graph" else lambda f: f


def test_warped_crop_squeezes_each_axis_by_itself():
    photo = np.zeros((8, 16, 3), np.float32)
    photo[:, 8:] = 100  # The right half.
    [crop] = warped_crops(photo, [[4, 0, 12, 4]], 4).numpy()
    # 8 columns on 4, an edge in the middle: each column averages its own
    # two with the nearer neighbours, weights 1/8 3/8 3/8 1/8; at the edge
    # one of the eight belongs to the other half.
    expected = [0, 100 / 8, 700 / 8, 100]
    np.testing.assert_allclose(crop[:, :, 0], [expected] * 4, atol=1e-3)


def test_warped_crop_context_shows_the_surroundings():
    photo = random_photo(20, 20)
    # Half of the square, 4 of 8 pixels, is the box; 2 on each side are not.
    [crop] = warped_crops(photo, [[8, 6, 12, 10]], 8, context=0.25).numpy()
    np.testing.assert_allclose(crop, photo[4:12, 6:14], atol=1e-3)


def test_warped_crop_beyond_the_photo_is_its_mean_colour():
    photo = random_photo(8, 8)
    [crop] = warped_crops(photo, [[0, 0, 8, 8]], 16, context=0.25).numpy()
    mean = photo.mean(axis=(0, 1))
    np.testing.assert_allclose(crop[0], [mean] * 16, atol=1e-3)
    np.testing.assert_allclose(crop[4:12, 4:12], photo, atol=1e-3)


def test_warped_crops_of_no_boxes_and_of_a_line():
    photo = random_photo(8, 8)
    assert warped_crops(photo, np.zeros((0, 4)), 5).shape == (0, 5, 5, 3)
    line = warped_crops(photo, [[3, 2, 3, 7]], 5)
    assert np.isfinite(line.numpy()).all()


# Pooling of maps.


def loop_roi_pool(feature_map, boxes, size):
    """Fast R-CNN's pooling, cell by cell."""
    rows, columns, channels = feature_map.shape
    pooled = np.zeros((len(boxes), size, size, channels), feature_map.dtype)
    for number, box in enumerate(boxes):
        x_min, y_min, x_max, y_max = (math.floor(edge + 0.5) for edge in box)
        x_min = min(max(x_min, 0), columns - 1)
        y_min = min(max(y_min, 0), rows - 1)
        x_max = min(max(x_max, x_min + 1), columns)
        y_max = min(max(y_max, y_min + 1), rows)
        for i in range(size):
            for j in range(size):
                cells = []
                for y in range(y_min, y_max):
                    for x in range(x_min, x_max):
                        height, width = y_max - y_min, x_max - x_min
                        inside = (
                            math.floor(i * height / size) <= y - y_min
                            and y - y_min < math.ceil((i + 1) * height / size)
                            and math.floor(j * width / size) <= x - x_min
                            and x - x_min < math.ceil((j + 1) * width / size)
                        )
                        if inside:
                            cells.append(feature_map[y, x])
                pooled[number, i, j] = np.max(cells, axis=0)
    return pooled


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_roi_pool_is_the_loop(size, compiled_no_xla):
    random = np.random.default_rng(size)
    feature_map = random.normal(size=(9, 13, 2)).astype(np.float32)
    corners = random.uniform(-3, 15, (20, 2, 2)).astype(np.float32)
    corners.sort(axis=1)
    boxes = corners.reshape(20, 4)
    boxes = np.concatenate([boxes, [[0, 0, 13, 9], [4.5, 2.5, 4.5, 2.5]]])
    pool = compiled_no_xla(lambda some: roi_pool(feature_map, some, size))
    found = pool(tf.constant(boxes, tf.float32))
    np.testing.assert_array_equal(
        found, loop_roi_pool(feature_map, boxes, size)
    )
    assert pool(tf.zeros((0, 4))).shape == (0, size, size, 2)


# Features of regions.


@pytest.mark.parametrize("kind", ["warp", "roi_pool"])
@pytest.mark.parametrize("layer", ["fc1", "last"])
def test_region_of_the_whole_photo_is_the_plain_forward_pass(kind, layer):
    cnn = vgg_like()
    photo = random_photo(SIDE, SIDE)
    sides = {"shorter_side": SIDE} if kind == "roi_pool" else {}
    extract = make_region_extractor(cnn, kind, layer, **sides)
    [found] = extract(photo, [[0, 0, SIDE, SIDE]])
    name = "fc2" if layer == "last" else layer
    expected = plain_forward(cnn, name, photo[None].astype(np.float32))[0]
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert extract.dim == 6 and found.dtype == np.float32


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
        extract = make_region_extractor(cnn, kind, "second_relu", **options)
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


def test_roi_features_of_a_box_are_the_head_on_its_bins():
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


@pytest.mark.parametrize("height, width", [(16, 16), (17, 22)])
def test_roi_features_of_a_map_are_averaged_bins(height, width):
    cnn = vgg_like()
    extract = RoiFeatures(cnn, "conv2", 3, shorter_side=height)
    photo = random_photo(height, width).astype(np.float32)
    feature_map = extract.feature_map(photo).numpy()
    assert feature_map.shape == (8, width // 2, 5) and extract.dim == 5
    if height == SIDE:
        expected = plain_forward(cnn, "conv2", photo[None])[0]
        np.testing.assert_allclose(feature_map, expected, rtol=1e-5, atol=1e-5)
    # Of 17 rows the map has 8, which is less than a half.
    scale = np.array([0.5, 8 / height] * 2)
    boxes = np.array([[0, 0, 16, 16], [3, 1, 15, 15], [3, 5, 12, 9]])
    bins = loop_roi_pool(feature_map, boxes * scale, 3)
    found = extract(photo, boxes)
    np.testing.assert_allclose(found, bins.mean(axis=(1, 2)), rtol=1e-4)


@pytest.mark.parametrize("joint, bins", [("average", 8), ("flatten", None)])
def test_roi_features_where_the_map_is_averaged_or_not_pooled(joint, bins):
    photo = random_photo(SIDE, SIDE)
    cnn = vgg_like(joint, pool=False)
    extract = RoiFeatures(cnn, "fc2", output_size=bins, shorter_side=SIDE)
    # Bins of one cell each: the average of 8 x 8 bins is that of the map.
    assert extract.output_size == 8
    [found] = extract(photo, [[0, 0, SIDE, SIDE]])
    expected = plain_forward(cnn, "fc2", photo[None].astype("f"))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_roi_features_scale_the_photo_within_both_sides():
    extract = RoiFeatures(vgg_like(), "conv2", shorter_side=40, longest_side=60)
    # 10 x 12 by 4 is 40 x 48; 10 x 30 by 2, as 30 may become 60.
    for shape, expected in (((10, 12), (20, 24)), ((10, 30), (10, 30))):
        found = extract.feature_map(np.zeros((*shape, 3), np.float32))
        assert found.shape[:2] == expected


@pytest.mark.parametrize("kind", ["warp", "roi_pool", "roi_average"])
def test_region_features_in_blocks_are_those_at_once(kind, monkeypatch):
    cnn, layer = vgg_like(), "fc2"
    if kind == "roi_average":
        cnn, layer = two_depths(), "early"
    sides = {"shorter_side": 32} if kind == "roi_pool" else {}
    extract = make_region_extractor(cnn, kind, layer, **sides)
    photo = random_photo(20, 30)
    boxes = [[0, 0, 9, 9], [3, 4, 20, 19], [1, 1, 30, 20], [5, 5, 9, 9]]
    at_once = extract(photo, boxes)
    monkeypatch.setattr(regions, "CROPS_AT_ONCE", 3)
    monkeypatch.setattr(regions, "POOLED_AT_ONCE", 3)
    np.testing.assert_allclose(extract(photo, boxes), at_once, rtol=1e-5)
    # Each box by itself, too: nothing is shared between boxes.
    alone = np.concatenate([extract(photo, [box]) for box in boxes])
    np.testing.assert_allclose(alone, at_once, rtol=1e-4, atol=1e-6)
    assert not np.allclose(at_once[0], at_once[1], rtol=1e-2)
    assert extract(photo, np.zeros((0, 4))).shape == (0, extract.dim)


def test_warp_features_show_context():
    cnn = vgg_like()
    photo = random_photo(40, 40)
    box = [[12, 12, 20, 20]]
    found = WarpFeatures(cnn, "fc1", context=0.25)(photo, box)
    window = [[8, 8, 24, 24]]
    expected = WarpFeatures(cnn, "fc1")(photo, window)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_region_extractor_description_tells_what_matters():
    cnn = vgg_like()
    warp = make_region_extractor(cnn, "warp", "fc2", context=0.1)
    pooled = make_region_extractor(cnn, "roi_pool", "fc2")
    described = warp.description()
    assert described["regions"] == "warp" and described["context"] == 0.1
    assert described["layers"] == ["fc2"]
    assert described["weights_sha256"] == weights_sha256(cnn.network)
    assert pooled.description()["output_size"] == 4
    assert pooled.description()["shorter_side"] == 600


def test_region_extractor_that_can_not_be_is_refused():
    cnn, photo, box = vgg_like(), random_photo(9, 9), [[0, 0, 4, 4]]
    for argument, call in (
        ("kind", lambda: make_region_extractor(cnn, "crop")),
        ("layers", lambda: make_region_extractor(cnn, "warp", "fc7")),
        ("context", lambda: warped_crops(photo, box, 4, -0.1)),
        ("context", lambda: warped_crops(photo, box, 4, 0.5)),
    ):
        with refusals.refused(argument):
            call()
    with pytest.raises(InputError):
        make_region_extractor(cnn, "warp")(photo, [[5, 0, 2, 3]])
    inputs = keras.Input((8, 8, 3))
    pooled = keras.layers.Conv2D(2, 8)(inputs)
    reshaped = keras.layers.Reshape((2,), name="row")(pooled)
    network = keras.Model(inputs, reshaped)
    odd = Cnn("odd", network, lambda pixels: pixels, 8, False)
    with pytest.raises(InputError):
        RoiFeatures(odd, "row")


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


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_roi_average_is_the_loop(mode):
    average, specs = roi_average, [[None, None, 2], [None, 4]]
    if mode != "eager":
        options = {"autograph": False, "jit_compile": mode == "xla"}
        signature = [*map(tf.TensorSpec, specs)]
        average = tf.function(roi_average, signature, **options)
    random = np.random.default_rng(0)
    sizes = (5, 7), (1, 6), (1, 1)
    for height, width in sizes[:1] if mode == "xla" else sizes:
        feature_map = random.normal(size=(height, width, 2))
        corners = random.uniform(0, 1, (6, 2, 2)) * [width, height]
        corners.sort(axis=1)
        boxes = corners.reshape(6, 4)
        found = average(
            tf.constant(feature_map, tf.float32), tf.constant(boxes, tf.float32)
        )
        expected = [reference.roi_average(feature_map, box) for box in boxes]
        np.testing.assert_allclose(found, expected, atol=2e-3)
        none = average(tf.zeros((height, width, 2)), tf.zeros((0, 4)))
        assert none.shape == (0, 2)


def test_roi_average_of_the_whole_map_is_its_mean():
    feature_map = np.random.default_rng(1).normal(size=(7, 5, 3)).astype("f")
    found = roi_average(feature_map, [[0, 0, 5, 7], [-3, -2, 50, 70]])
    expected = [feature_map.mean(axis=(0, 1))] * 2
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_roi_average_of_a_point_is_the_interpolated_map():
    feature_map = np.random.default_rng(2).normal(size=(4, 4, 2))
    points = [(1.5, 2.5), (2, 2), (0, 0), (4, 4), (3.2, 0.1), (0.7, 3.9)]
    boxes = np.array([[x, y, x, y] for x, y in points])
    found = roi_average(feature_map.astype("f"), boxes)
    # A point counts as 1/16 of a cell, which rounds the corners of the map.
    expected = [reference.interpolated(feature_map, *p) for p in points]
    np.testing.assert_allclose(found, expected, atol=0.1)
    np.testing.assert_allclose(found[1:2], expected[1:2], atol=1e-5)


def test_roi_average_of_boxes_beyond_the_map_is_that_of_its_border():
    feature_map = np.random.default_rng(3).normal(size=(3, 3, 2)).astype("f")
    found = roi_average(feature_map, [[-9, 1, -5, 2], [0, 1, 0, 2]])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    cut = roi_average(feature_map, [[-9, 1, 2, 2], [0, 1, 2, 2]])
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)


def test_roi_average_of_a_grid_is_that_of_its_cells():
    feature_map = np.random.default_rng(4).normal(size=(5, 7, 3)).astype("f")
    boxes = np.array([[0, 0, 7, 5], [1.5, 0.5, 4.5, 5], [-2, 1, 2, 3]])
    found = roi_average(feature_map, boxes, 3)
    assert found.shape == (3, 27)
    for box, row in zip(boxes, found.numpy().reshape(3, 9, 3)):
        x = np.linspace(box[0], box[2], 4)
        y = np.linspace(box[1], box[3], 4)
        for i in range(3):
            for j in range(3):
                cell = [x[j], y[i], x[j + 1], y[i + 1]]
                [expected] = roi_average(feature_map, [cell])
                np.testing.assert_allclose(row[3 * i + j], expected, atol=1e-5)


# Features.


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


def test_a_layer_stands_beside_its_own_grid():
    cnn = two_depths()
    extract = AveragedFeatures(cnn, ["last", "early", "early"], grids=[1, 1, 2])
    photo = random_photo(20, 40)
    boxes = np.array([[4, 2, 36, 18], [0, 0, 10, 20]])
    found = extract(photo, boxes)
    assert found.shape == (2, 6 + 4 + 16 + 5) and extract.dim == 31
    plain = AveragedFeatures(cnn, ["last", "early"])(photo, boxes)
    np.testing.assert_allclose(found[:, :10], plain[:, :10], atol=1e-5)
    # The mean of the four parts is that of the box; the first part is the
    # box of the upper left quarter.
    parts = found[:, 10:26].reshape(2, 4, 4)
    np.testing.assert_allclose(parts.mean(1), plain[:, 6:10], atol=1e-4)
    quarter = AveragedFeatures(cnn, ["early"])(photo, [[4, 2, 20, 10]])
    np.testing.assert_allclose(parts[0, 0], quarter[0, :4], atol=1e-4)


def test_a_larger_box_is_cut_off_at_the_photo():
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


def test_what_gives_no_map_is_refused():
    two = ["last", "early"]
    for argument, call in (
        ("layers", lambda: AveragedFeatures(vgg_like(), ["fc2"])),
        ("layers", lambda: AveragedFeatures(vgg_like(), ["nowhere"])),
        ("grids", lambda: AveragedFeatures(two_depths(), two, grids=[2])),
        ("scales", lambda: AveragedFeatures(two_depths(), two, scales=[0, 1])),
    ):
        with refusals.refused(argument):
            call()
    with pytest.raises(InputError):
        AveragedFeatures(two_depths())(random_photo(9, 9), [[5, 0, 2, 3]])
