"""Batch normalisation folded into the convolution before it.

In inference it multiplies each channel and adds to it, and so does the
convolution: one layer does both, and a map is written and read once less.
"""

import keras
import numpy as np

from tbnets.features.cnn import CONVOLUTIONS
from tbnets.features.full_network import consumers

_LINEAR = keras.activations.get("linear")


class _Folded(keras.layers.Layer):
    """Stands where a batch normalisation was, called as one."""

    def call(self, inputs, training=None, mask=None):
        """Returns the inputs."""
        return inputs


def fold_batch_normalization(network):
    """Returns a network for inference alone that computes the same.

    Folded is what only a batch normalisation reads of a convolution without
    activation. The outputs differ by rounding, some 2e-6 of the largest.

    Args:
        network: functional Keras model; it is left as it is.

    Returns:
        A functional Keras model of layers of the same names, or `network`
        where there is nothing to fold, or a layer that can not be copied
        with certainty.
    """
    pairs = _pairs(network)
    known = (*CONVOLUTIONS, keras.layers.BatchNormalization, keras.layers.Dense)
    others = [x for x in network.layers if not isinstance(x, known)]
    if not pairs or any(layer.weights for layer in others):
        return network
    gone = {layer.name for layer in pairs.values()}

    def copy(layer):
        if layer.name in gone:
            return _Folded(name=layer.name)
        config = layer.get_config()
        if layer.name in pairs:
            config["use_bias"] = True
        return layer.__class__.from_config(config)

    folded = keras.models.clone_model(network, clone_function=copy)
    for layer in network.layers:
        if layer.weights and layer.name not in gone:
            pair = pairs.get(layer.name)
            weights = _folded(layer, pair) if pair else layer.get_weights()
            folded.get_layer(layer.name).set_weights(weights)
    return folded


def _pairs(network):
    """Returns name of a convolution -> the batch normalisation to fold."""
    readers, found = consumers(network), {}
    outputs = {id(output) for output in network.outputs}
    for layer in network.layers:
        if type(layer) not in CONVOLUTIONS[:2] or id(layer.output) in outputs:
            continue
        following = readers.get(id(layer.output), [])
        if len(following) != 1 or layer.activation is not _LINEAR:
            continue
        if type(following[0]) is keras.layers.BatchNormalization:
            found[layer.name] = following[0]
    return found


def _folded(convolution, normalisation):
    """Returns kernel and bias of both, computed in float64."""
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
