"""The Full-Network Embedding: all layers, in the context of the data set.

The activations of every convolutional and fully-connected layer of a
network, averaged over positions, standardised by the training images and cut
to {-1, 0, +1}: unusually low, as usual, unusually high.

Source: Vilalta et al. 2017, Sec. 3.1. Departures: none; the thresholds are
those of the authors' code, which the paper refers to and does not print.
"""

import keras
import numpy as np
import tensorflow as tf

FULL_NETWORK = "full_network"
LOW_THRESHOLD = -0.25
HIGH_THRESHOLD = 0.15


def _consumers(network):
    """Returns output tensor's id -> layers that read it."""
    found = {}
    for layer in network.layers:
        try:
            tensors = tf.nest.flatten(layer.input)
        except AttributeError:  # a layer that is applied twice
            continue
        for tensor in tensors:
            found.setdefault(id(tensor), []).append(layer)
    return found


def _activation(layer, consumers):
    """Returns the output of a layer after its normalisation and activation."""
    following = (
        keras.layers.BatchNormalization,
        keras.layers.Activation,
        keras.layers.ReLU,
    )
    output = layer.output
    readers = consumers.get(id(output), [])
    while len(readers) == 1 and isinstance(readers[0], following):
        output = readers[0].output
        readers = consumers.get(id(output), [])
    return output


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
    consumers = _consumers(cnn.network)
    return [
        (layer.name, _activation(layer, consumers))
        for layer in cnn.weighty_layers()
    ]


def ternary_bounds(mean, deviation, low=LOW_THRESHOLD, high=HIGH_THRESHOLD):
    """Returns the features at which a dimension counts as low or high.

    `(x - mean) / deviation < low` is the same as `x < mean + low *
    deviation`, which needs no division and no rounding of x. The bounds are
    rounded outwards, so that a comparison in float32 decides as exact
    arithmetic would.

    Args:
        mean: float64 `[dim]`, of the training images.
        deviation: float64 `[dim]`; 0 where a feature never changes, which
            then is 0 always.
        low: threshold in standard deviations. Authors: -0.25.
        high: the upper one. Authors: +0.15.

    Returns:
        (lower, upper): float32 `[dim]` each.

    Raises:
        ValueError: `low` is above `high`.
    """
    if low > high:
        raise ValueError(
            "`low` must not be above `high`. Received: "
            f"low={low}, high={high}. Use for example -0.25 and 0.15."
        )
    mean, deviation = np.asarray(mean), np.asarray(deviation)
    lower = np.where(deviation > 0, mean + low * deviation, -np.inf)
    upper = np.where(deviation > 0, mean + high * deviation, np.inf)
    below, above = lower.astype(np.float32), upper.astype(np.float32)
    infinity = np.float32(np.inf)
    below = np.where(below < lower, np.nextafter(below, infinity), below)
    above = np.where(above > upper, np.nextafter(above, -infinity), above)
    return below, above


def ternary(features, lower, upper):
    """Cuts features to -1 (below), 0 and +1 (above).

    Args:
        features: float32 `[n, dim]`, array or tensor.
        lower: float32 `[dim]`, from `ternary_bounds`.
        upper: float32 `[dim]`.

    Returns:
        int8 `[n, dim]`, of the kind of `features`.
    """
    if tf.is_tensor(features):
        return tf.cast(features > upper, tf.int8) - tf.cast(
            features < lower, tf.int8
        )
    features = np.asarray(features, np.float32)
    return (features > upper).astype(np.int8) - (features < lower)
