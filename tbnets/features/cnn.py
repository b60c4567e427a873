"""Convolutional networks by name: built, loaded and asked for activations.

Any network of `keras.applications`, and SqueezeNet 1.1. A network's layers
are found by name; a convolutional map is averaged over its positions, so
that every layer gives one vector a picture.
"""

import dataclasses
import hashlib
import inspect

import keras
import tensorflow as tf

from tbnets.features.cnn_weights import load_weights

LAST = "last"
DEFAULT_SIZE = 224
CONVOLUTIONS = (
    keras.layers.Conv2D,
    keras.layers.DepthwiseConv2D,
    keras.layers.SeparableConv2D,
)
SQUEEZE, EXPAND = (16, 16, 32, 32, 48, 48, 64, 64), (64, 128, 192, 256)


def SqueezeNet(  # noqa: N802 - named as the networks of Keras are
    include_top=False, weights=None, input_shape=None
):
    """Builds SqueezeNet 1.1 without its classifier, 722,496 parameters.

    A 3x3 convolution of stride 2, then eight fire modules: a 1x1 squeeze
    and, from it, 1x1 and 3x3 expansions side by side. Convolutions 1 and
    the poolings (3x3, stride 2) pad nothing.

    Args:
        include_top: must be False: the classifier is not part of it.
        weights: must be None: `build_cnn` loads them.
        input_shape: `(height, width, 3)`; at least 47 pixels a side.

    Returns:
        A functional Keras model, float `[n, height, width, 3]` -> `[n,
        height', width', 512]`.

    Source: Iandola et al. 2016, "SqueezeNet", and the authors' release 1.1.
    """
    if include_top or weights:
        raise ValueError(
            "`include_top` and `weights` must be left out for SqueezeNet. "
            f"Received: include_top={include_top}, weights={weights}. Ask "
            "for one of its layers, and name a weights file."
        )
    layers = keras.layers
    inputs = keras.Input(input_shape)
    outputs = layers.Conv2D(64, 3, 2, activation="relu", name="conv1")(inputs)
    outputs = layers.MaxPooling2D(3, 2, name="pool1")(outputs)
    for i, squeeze in enumerate(SQUEEZE):
        name = f"fire{i + 2}"
        squeezed = layers.Conv2D(
            squeeze, 1, activation="relu", name=f"{name}_squeeze1x1"
        )(outputs)
        expanded = [
            layers.Conv2D(
                EXPAND[i // 2],
                side,
                padding="same",
                activation="relu",
                name=f"{name}_expand{side}x{side}",
            )(squeezed)
            for side in (1, 3)
        ]
        outputs = layers.Concatenate(name=f"{name}_concat")(expanded)
        if name in ("fire3", "fire5"):
            outputs = layers.MaxPooling2D(3, 2, name=f"pool{name[-1]}")(outputs)
    return keras.Model(inputs, outputs, name="squeezenet")


def _preprocess_squeezenet(pixels):
    """BGR minus the mean colour of ImageNet."""
    return keras.applications.imagenet_utils.preprocess_input(
        pixels, mode="caffe"
    )


def _networks():
    """Returns name -> (constructor, preprocessing)."""
    found = {"SqueezeNet": (SqueezeNet, _preprocess_squeezenet)}
    for _, module in inspect.getmembers(keras.applications, inspect.ismodule):
        preprocess = getattr(module, "preprocess_input", None)
        for name, constructor in inspect.getmembers(module, callable):
            if preprocess and name[0].isupper():
                found[name] = (constructor, preprocess)
    for name in ("MobileNetV3Small", "MobileNetV3Large"):
        found[name] = (
            getattr(keras.applications, name),
            keras.applications.mobilenet_v3.preprocess_input,
        )
    return found


NETWORKS = _networks()


@dataclasses.dataclass(frozen=True, eq=False)
class Cnn:
    """A built network with what belongs to it.

    Args:
        name: a key of `NETWORKS`.
        network: functional Keras model on preprocessed pixels.
        preprocess: RGB in [0, 255] -> what the network was trained on.
        image_size: side of its square input in pixels.
        top: whether it has fully-connected layers and a classifier.
    """

    name: str
    network: keras.Model
    preprocess: object
    image_size: int
    top: bool

    def weights_hash(self) -> str:
        """Returns the sha256 of all weights, wherever they came from."""
        digest = hashlib.sha256()
        for layer in self.network.layers:
            for tensor in layer.get_weights():
                digest.update(tensor.tobytes())
        return digest.hexdigest()

    def _with_classifier(self):
        kinds = (*CONVOLUTIONS, keras.layers.Dense)
        return [x for x in self.network.layers if isinstance(x, kinds)]

    def weighty_layers(self):
        """Returns the convolutional and dense layers, without classifier."""
        layers = self._with_classifier()
        return layers[:-1] if self.top else layers

    def last_output(self):
        """Returns the Keras tensor that a classifier would read."""
        if self.top:
            return self._with_classifier()[-1].input
        return self.network.output

    def layer(self, name):
        """Returns a layer by name.

        Raises:
            ValueError: there is none of that name; the message lists those
                that give features.
        """
        for layer in self.network.layers:
            if layer.name == name:
                return layer
        names = [layer.name for layer in self.network.layers]
        raise ValueError(
            f"`layers` must be layers of {self.name}. Received: {name}. Its "
            f"layers are: {', '.join(names)}. Change --layers."
        )


def build_cnn(name, weights=None, image_size=None, top=True):
    """Builds a network and loads its weights.

    Args:
        name: a key of `NETWORKS`.
        weights: `imagenet` (fetched by Keras), a path to an HDF5 weights
            file, or None for random weights of the global seed.
        image_size: side of the square input in pixels; None for what the
            network was made for. Papers: 224.
        top: whether the fully-connected layers and the classifier are built
            (VGG's `fc1` and `fc2` are among them). SqueezeNet has none.

    Returns:
        A `Cnn`.

    Raises:
        FileNotFoundError: there is no such weights file.
        ValueError: the name is unknown, or the weights do not fit; the
            message names the tensor.
    """
    if name not in NETWORKS:
        raise ValueError(
            f"`name` must be one of {', '.join(sorted(NETWORKS))}. Received: "
            f"name={name}. Change --cnn or --image_encoder."
        )
    constructor, preprocess = NETWORKS[name]
    by_keras = weights == "imagenet"
    if constructor is SqueezeNet:
        top = False
        if by_keras:
            raise ValueError(
                "`weights` must be a file for SqueezeNet, which Keras does "
                "not hold. Received: weights=imagenet. Name an HDF5 file."
            )
    if not top:
        image_size = image_size or DEFAULT_SIZE
    try:
        network = constructor(
            include_top=top,
            weights="imagenet" if by_keras else None,
            input_shape=(image_size, image_size, 3) if image_size else None,
        )
    except ValueError as error:
        raise ValueError(
            f"`image_size` must suit {name}. Received: image_size="
            f"{image_size}, weights={weights} ({_one_line(error)}). Change "
            "--image_size."
        ) from error
    except Exception as error:  # What Keras raises when it can not fetch.
        raise ValueError(
            "`weights` must be weights that can be fetched, or a file. "
            f"Received: weights={weights} for {name} ({_one_line(error)}). "
            "Fetch that file elsewhere, and name it by --image_weights in "
            "training or --cnn_weights."
        ) from error
    if weights and not by_keras:
        load_weights(network, weights)
    side = int(network.input_shape[1])
    return Cnn(name, network, preprocess, side, top)


def _one_line(error):
    return " ".join(str(error).split())


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
    # Ones, as a padding by zeros would be merged with a convolution that
    # follows, to a kernel of oneDNN that pads height and width alone.
    padded = tf.pad(
        photos, [[0, num_added], [0, 0], [0, 0], [0, 0]], constant_values=1
    )
    return function(padded)[:num_photos]


def layer_outputs(cnn, layers):
    """Returns the outputs of layers by name.

    Args:
        cnn: a `Cnn`.
        layers: names of layers; `last` is the last one before a classifier.

    Returns:
        list of (name, Keras tensor).

    Raises:
        ValueError: a layer is unknown; the message lists the layers.
    """
    return [
        (
            name,
            cnn.last_output() if name == LAST else cnn.layer(name).output,
        )
        for name in layers
    ]


def pooled_network(cnn, outputs):
    """Cuts a network so that it gives one vector a picture.

    Args:
        cnn: a `Cnn`.
        outputs: list of (name, Keras tensor) of the network.

    Returns:
        Functional Keras model on preprocessed pixels `[n, image_size,
        image_size, 3]` -> `[n, dim]`: maps averaged over their positions,
        all vectors side by side.

    Raises:
        ValueError: an output is neither a map nor a vector.
    """
    vectors = [_vector(name, output) for name, output in outputs]
    if len(vectors) > 1:
        vectors = [keras.layers.Concatenate(name="side_by_side")(vectors)]
    return keras.Model(cnn.network.input, vectors[0])


def _vector(name, output):
    """Averages a map over its positions; leaves a vector as it is."""
    if len(output.shape) == 4:
        return keras.layers.GlobalAveragePooling2D()(output)
    if len(output.shape) != 2:
        raise ValueError(
            "`layers` must give maps [n, height, width, channels] or vectors "
            f"[n, dim]. Received: {name} of shape {tuple(output.shape)}. "
            "Change --layers."
        )
    return output
