"""Checks, builds and calls the encoders and branches of a network.

An encoder or a branch may be any Keras layer or model that takes one tensor and
returns one vector per row.
"""

import keras
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features.cnn import call_with_any_batch
from tbnets.layers.branch import Branch, CanonicalProjection, SeededDropout
from tbnets.layers.chunks import encode_in_chunks, inner_layers
from tbnets.layers.configured import ConfiguredLayer
from tbnets.progress import say

_UNIT = Branch, CanonicalProjection
_STRING_LAYERS = keras.layers.TextVectorization, keras.layers.StringLookup


def draw_apart(image_branch, text_branch):
    """Gives two branches different dropout masks, even for equal seeds.

    With equal masks, a network could recognise matching rows by their masks.
    """
    seeds = {layer.seed for layer in _dropouts(image_branch)}
    for layer in _dropouts(text_branch):
        if layer.seed in seeds:
            layer.draw_apart()


def _dropouts(branch):
    steps = getattr(branch, "steps", ())
    return [step for step in steps if isinstance(step, SeededDropout)]


def input_dtype(layer):
    """Returns the dtype of a layer's inputs, or a guess based on its class."""
    if inputs := getattr(layer, "inputs", None):
        return inputs[0].dtype
    if layers := getattr(layer, "layers", None):
        return input_dtype(layers[0])
    if isinstance(layer, _STRING_LAYERS):
        return "string"
    is_lookup = isinstance(layer, keras.layers.Embedding)
    return "int32" if is_lookup else "float32"


def build_layer(name, layer, shape, dtype):
    """Builds a layer. Returns the shape `(None, dim)` and dtype of its outputs.

    Raises ValueError, with `name`, if the layer does not return one vector per
    row.
    """
    if isinstance(layer, ConfiguredLayer) and hasattr(layer, "output_dim"):
        if not layer.built:
            layer.build(shape)
        return (None, layer.output_dim), "float32"
    outputs = layer(keras.Input(tuple(shape[1:]), dtype=dtype))
    output_shape = tuple(outputs.shape)
    if len(output_shape) != 2 or output_shape[1] is None:
        raise InputError(
            name,
            "return one vector per row, (None, dim)",
            f"{layer.name!r}, which returns {output_shape}",
        )
    return output_shape, outputs.dtype


def read_dtype(inputs):
    """Returns the dtype to which inputs are cast before a layer reads them."""
    dtype = tf.as_dtype(inputs.dtype)
    is_number = dtype.is_floating or dtype == tf.uint8
    return "float32" if is_number else dtype.name


def check_vocabularies(model):
    """Raises an error if a TextVectorization layer has no vocabulary."""
    for layer in inner_layers(model.text_reader):
        is_text = isinstance(layer, keras.layers.TextVectorization)
        if is_text and len(layer.get_vocabulary()) <= 2:
            raise InputError(
                "text_encoder",
                "have a vocabulary",
                f"{layer.name!r} without words. Call its `adapt` first",
            )


def say_normalised(model):
    """Prints which branches are followed by L2 normalisation."""
    for name in ("image_branch", "text_branch"):
        branch = last = getattr(model, name)
        while layers := getattr(last, "layers", None):
            last = layers[-1]
        if not isinstance(last, (*_UNIT, keras.layers.UnitNormalization)):
            kind = type(branch).__name__
            say(f"`{name}` ({kind}) is followed by L2 normalisation.")


def unit_rows(branch, rows, training):
    """Applies a branch. Returns float32 rows of length 1, `[n, dim]`."""
    rows = branch(rows, training=training)
    if isinstance(branch, _UNIT):
        return rows
    return tf.math.l2_normalize(tf.cast(rows, tf.float32), axis=-1)


def encode(encoder, inputs, training, chunk, size):
    """Applies an encoder; in training, `chunk` rows at a time if not None.

    `size` is the output size.
    """
    if training and chunk:
        return encode_in_chunks(encoder, inputs, chunk, size)

    def call(rows):
        return encoder(rows, training=training)

    own = isinstance(encoder, ConfiguredLayer)
    if training or own or tf.TensorShape(inputs.shape).rank != 4:
        return call(inputs)
    return call_with_any_batch(call, inputs)
