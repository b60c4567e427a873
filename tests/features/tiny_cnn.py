"""A convolutional network small enough for tests, with every kind of part."""

import contextlib

import keras
import pytest

from tbnets.features import cnn
from tbnets.tasks.recipes.image_features import ImageFeatures
from tbnets.tasks.settings.flag import PRESET

NAME = "Tiny"
SIDE = 8
TOP = "predictions"


def tiny_network(top=True, input_shape=(SIDE, SIDE, 3)):
    """Two convolutions, two fully-connected layers and a classifier."""
    layers = keras.layers
    inputs = keras.Input(input_shape)
    outputs = layers.Conv2D(
        4, 3, padding="same", activation="relu", name="first"
    )(inputs)
    outputs = layers.MaxPooling2D(2, name="pool")(outputs)
    outputs = layers.Conv2D(6, 3, padding="same", name="second")(outputs)
    outputs = layers.BatchNormalization(name="second_bn")(outputs)
    outputs = layers.ReLU(name="second_relu")(outputs)
    outputs = layers.MaxPooling2D(2, name="pool2")(outputs)
    if top:
        outputs = layers.Flatten(name="flatten")(outputs)
        for name, size in (("fc1", 5), ("fc2", 3)):
            outputs = layers.Dense(size, activation="relu", name=name)(outputs)
        outputs = layers.Dense(2, activation="softmax", name=TOP)(outputs)
    return keras.Model(inputs, outputs, name="tiny")


def tiny_cnn(top=True, seed=0):
    """Returns it as a `Cnn` whose preprocessing is `x / 127.5 - 1`."""
    keras.utils.set_random_seed(seed)
    return cnn.Cnn("tiny", tiny_network(top), _preprocess, SIDE, top)


@contextlib.contextmanager
def known(imagenet=None):
    """Makes it a network that `NAME` builds and flags may name.

    Args:
        imagenet: function that returns the file of what it has learned.
    """

    def build(input_shape, include_top, weights=None):
        return tiny_network(include_top, input_shape)

    with pytest.MonkeyPatch.context() as patch:
        row = cnn.Architecture(build, _preprocess, SIDE, find_imagenet=imagenet)
        patch.setitem(cnn.NETWORKS, NAME, row)
        # Its choices are those that there were when the verb was imported.
        flag = ImageFeatures.__dataclass_fields__["cnn"]
        choices = {"choices": (*sorted(cnn.NETWORKS), PRESET)}
        patch.setattr(flag, "metadata", {**flag.metadata, **choices})
        yield


def _preprocess(pixels):
    return pixels / 127.5 - 1.0
