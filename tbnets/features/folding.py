"""Folds batch normalisation into convolutions, for faster inference."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

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
