"""Checks the inputs of endpoints: in the graph, and in Python before a call."""

import tensorflow as tf

from tbnets.checks import (
    Photos,
    Strings,
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data.images import require
from tbnets.data.pictures import read_content
from tbnets.errors import check_kind
from tbnets.text.trees import Tree


def guarded(function):
    """Returns a concrete function that rejects invalid inputs.

    The shapes must match the input signature, and the numbers must be finite.
    """
    inner = function.get_concrete_function()
    specs = inner.structured_input_signature[0]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs):
        return inner(*[_enter(x, spec) for x, spec in zip(inputs, specs)])

    return call.get_concrete_function()


def _enter(value, spec):
    value = tf.ensure_shape(value, spec.shape)
    if not spec.dtype.is_floating:
        return value
    finite = tf.math.is_finite(value)
    if spec.shape.rank:
        finite = tf.reduce_all(finite, axis=list(range(1, spec.shape.rank)))
    return require_rows(
        value, finite, f"`{spec.name}` must be finite numbers. Received: row"
    )


def require_rows(value, good, expectation):
    """Returns `value` after checking that all rows are valid.

    `good` is bool `[n]`, whether each row is valid, or `[]` for a single value.
    If a row is invalid, the graph raises `tf.errors.InvalidArgumentError` with
    the message `expectation` and the index of the row.
    """
    good = tf.reshape(good, [-1])
    first = tf.argmin(tf.cast(tf.concat([good, [False]], 0), tf.int32))
    return require(value, tf.reduce_all(good), expectation, first)


IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""
ARGUMENTS = {
    "embed_image": "images",
    "embed_text": "texts",
    "embed_features": "features",
    "embed_cells": "images",
    "embed_phrases": "phrases",
    "embed_regions": "features",
}
"""Maps each embedding endpoint to the name of its argument in error
messages."""
Texts = Strings | list[Tree]
Inputs = Photos | Texts


def as_input(argument, spec, values):
    """Converts an input to a tensor, after checking its shape and type.

    `argument` is its name in error messages. `values` is a list of strings, a
    float array or, for `IMAGE_BYTES`, photos as in `pictures.read_content`.
    Raises TypeError or ValueError if `values` does not match `spec`.
    """
    if spec.dtype == tf.string and spec.shape.rank == 0:
        value = read_content(values) if spec.name == IMAGE_BYTES else values
        return tf.constant(value, tf.string, [])
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [read_content(photo) for photo in values]
        else:
            values = _encoded(argument, values)
        return tf.constant(values, tf.string, [len(values)])
    if spec.dtype == tf.int32 and not spec.shape.rank:
        most = spec.dtype.max
        number = checked_number(argument, values, 1, whole=True, most=most)
        return tf.constant(number, spec.dtype)
    advice = "Use the features that the model was trained on."
    dtype, shape = spec.dtype.as_numpy_dtype, spec.shape
    shape = None if shape.rank is None else tuple(shape)
    values = as_numbers(argument, values, "numbers", shape, advice, dtype)
    check_finite(argument, values)
    return tf.constant(values)


def _encoded(argument, values):
    advice = "Leave it out, or write it as text."
    encoded = []
    for row, value in enumerate(values):
        value = value.numpy() if tf.is_tensor(value) else value
        check_kind(f"{argument}[{row}]", value, (str, bytes), advice)
        encoded.append(value.encode() if isinstance(value, str) else value)
    return encoded
