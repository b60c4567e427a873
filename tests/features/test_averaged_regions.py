"""Tests of averaging boxes from maps and of features made of that."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.images import decode_photo
from tbnets.errors import InputError
from tbnets.features.cnn import Cnn
from tbnets.features.cnn_weights import weights_sha256
from tbnets.features.cutting import roi_average
from tbnets.features.regions import AveragedFeatures, make_region_extractor
from tests import reference, refusals
from tests.features.test_photo_features import photo as encoded_photo
from tests.features.test_regions import plain_forward, random_photo, vgg_like

SIDE = 16


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


def test_roi_average_is_the_loop(compiled):
    average = compiled(roi_average)
    random = np.random.default_rng(0)
    for height, width in ((5, 7), (1, 6), (1, 1)):
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


def test_each_box_is_by_itself_and_none_is_fine():
    extract = make_region_extractor(two_depths(), "roi_average", ["early"])
    photo = random_photo(9, 30)
    boxes = [[0, 0, 9, 9], [3, 4, 20, 9], [1, 1, 30, 8]]
    at_once = extract(photo, boxes)
    alone = np.concatenate([extract(photo, [box]) for box in boxes])
    np.testing.assert_allclose(alone, at_once, rtol=1e-5, atol=1e-6)
    assert not np.allclose(at_once[0], at_once[1], rtol=1e-2)
    assert extract(photo, np.zeros((0, 4))).shape == (0, 9)
    # What lies beyond the photo is cut off.
    found = extract(photo, [[-5, 3, 40, 60], [0, 3, 30, 9]])
    np.testing.assert_array_equal(found[0], found[1])


def test_exported_features_are_those_of_the_extraction(tmp_path):
    extract = AveragedFeatures(two_depths(), ["last", "early"])
    content = encoded_photo(3)
    boxes = np.array([[2, 1, 20, 25], [0, 0, 5, 5]], np.float32)
    module = tf.Module()
    module.network = extract.network
    module.features = tf.function(
        lambda photo, boxes: extract.of_decoded(*extract.decode(photo), boxes),
        input_signature=[
            tf.TensorSpec([], tf.string),
            tf.TensorSpec([None, 4], tf.float32),
        ],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    served = loaded.features(content, boxes)
    offline = extract(decode_photo(content), boxes)
    assert offline.shape == (2, 15)
    np.testing.assert_allclose(served, offline, rtol=1e-5, atol=1e-6)


def test_what_gives_no_map_is_refused():
    two = ["last", "early"]
    for argument, call in (
        ("layers", lambda: AveragedFeatures(vgg_like(), ["fc2"])),
        ("layers", lambda: AveragedFeatures(vgg_like(), ["nowhere"])),
        ("grids", lambda: AveragedFeatures(two_depths(), two, grids=[2])),
        ("scales", lambda: AveragedFeatures(two_depths(), two, scales=[0, 1])),
    ):
        with refusals.of(argument):
            call()
    with pytest.raises(InputError):
        AveragedFeatures(two_depths())(random_photo(9, 9), [[5, 0, 2, 3]])
