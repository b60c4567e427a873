"""What a user gives -> what a signature takes."""

import tensorflow as tf

from tbnets.annotations import Photos, Strings
from tbnets.checked_numbers import (
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data.images import read_content
from tbnets.errors import InputError, check_kind
from tbnets.serving.tree_reader import TreeReader
from tbnets.text.trees import Tree

IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""
ARGUMENTS = {
    "embed_image": "images",
    "embed_text": "texts",
    "embed_features": "features",
    "embed_phrases": "phrases",
    "embed_regions": "features",
}
"""Endpoints that embed -> how an error calls what they are given."""
Texts = Strings | list[Tree]
Inputs = Photos | Texts


def as_input(argument, spec, values):
    """Converts one input; says what is wrong with its shape or type.

    Args:
        argument: how the message calls it.
        spec: its `tf.TensorSpec`.
        values: list of strings, or float array; for `IMAGE_BYTES` photos, as
            `images.read_content` takes them.

    Returns:
        A tensor.

    Raises:
        TypeError: one of its strings or photos is none.
        ValueError: it is no list, holds no numbers, or is of another shape.
    """
    if spec.dtype == tf.string and spec.shape.rank == 0:
        value = read_content(values) if spec.name == IMAGE_BYTES else values
        return tf.constant(value, tf.string, [])
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [read_content(one) for one in values]
        else:
            values = _encoded(argument, values)
        return tf.constant(values, tf.string, [len(values)])
    if spec.dtype == tf.int32 and not spec.shape.rank:
        most = spec.dtype.max
        number = checked_number(argument, values, 1, whole=True, most=most)
        return tf.constant(number, spec.dtype)
    advice = "Use such features as it was trained on."
    dtype, shape = spec.dtype.as_numpy_dtype, spec.shape
    shape = None if shape.rank is None else tuple(shape)
    values = as_numbers(argument, values, "numbers", shape, advice, dtype)
    check_finite(argument, values)
    return tf.constant(values)


def _encoded(argument, values):
    """Returns strings as bytes; names the first that is none."""
    advice = "Leave it out, or write it as text."
    encoded = []
    for row, value in enumerate(values):
        value = value.numpy() if tf.is_tensor(value) else value
        name = f"{argument}[{row}]"
        check_kind(name, value, (str, bytes), advice)
        try:
            encoded.append(value.encode() if isinstance(value, str) else value)
        except UnicodeEncodeError as error:
            raise InputError(
                f"`{name}` must be text. Received: {name}={value!r}, which "
                f"UTF-8 has no bytes for. {advice}"
            ) from error
    return encoded


def is_trees(spec):
    """Tells whether an input takes trees as `TreeReader.read` makes them."""
    return spec.name == TreeReader.spec.name
