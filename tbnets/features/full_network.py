"""All layers of a network, for the Full-Network Embedding.

It takes the activations of every convolutional and fully-connected layer,
averaged over positions. The step that standardises them by the training
images and cuts them to {-1, 0, +1} is `ternary` of
`layers.feature_transform`.

Source: Vilalta et al. 2017, Sec. 3.1. Departures: none.
"""

import contextlib

import keras
import tensorflow as tf

FULL_NETWORK = "full_network"


def consumers(network):
    """Returns output tensor's id -> layers that read it."""
    found = {}
    for layer in network.layers:
        with contextlib.suppress(AttributeError):  # One applied twice.
            for tensor in tf.nest.flatten(layer.input):
                found.setdefault(id(tensor), []).append(layer)
    return found


def _activation(layer, readers_of):
    """Returns the output of a layer after its normalisation and activation."""
    layers = keras.layers
    following = (layers.BatchNormalization, layers.Activation, layers.ReLU)
    readers = readers_of.get(id(layer.output), [])
    if len(readers) == 1 and isinstance(readers[0], following):
        return _activation(readers[0], readers_of)
    return layer.output


def full_network_outputs(cnn):
    """Returns the activations of all convolutional and dense layers.

    An activation is what leaves the layer after the batch normalisation and
    the non-linearity that follow it; the classifier is left out.

    Args:
        cnn: a `Cnn`.

    Returns:
        list of (layer name, Keras tensor), in the order of the network.

    For VGG16: 13 convolutions of 64 to 512 channels, 4224 in all, and two
    layers of 4096 units, 12,416 dimensions.
    """
    readers_of = consumers(cnn.network)
    layers = cnn.weighty_layers()
    layers = layers[:-1] if cnn.top else layers
    return [(layer.name, _activation(layer, readers_of)) for layer in layers]
