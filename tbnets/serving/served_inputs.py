"""What a user gives -> what a signature takes."""

import os

import numpy as np
import PIL.Image
import tensorflow as tf

from tbnets.annotations import Photos, Strings
from tbnets.checked_numbers import check_finite, checked_number
from tbnets.errors import InputError, check_kind
from tbnets.images import read_content
from tbnets.serving.tree_reader import TreeReader
from tbnets.short_repr import shown
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
        ValueError: it is no list, or of another shape.
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
        return tf.constant(checked_number(argument, values, 1, whole=True))
    values = np.asarray(values, spec.dtype.as_numpy_dtype)
    if not spec.shape.is_compatible_with(values.shape):
        raise InputError(
            f"`{argument}` must be of shape {tuple(spec.shape)}. Received: "
            f"shape={values.shape}. Use such features as it was trained on."
        )
    check_finite(argument, values)
    return tf.constant(values)


def as_embeddings(argument, rows, dim):
    """Converts embeddings; says what is wrong with their shape.

    Args:
        argument: how the message calls them.
        rows: float array or nested lists `[n, dim]`.
        dim: numbers in an embedding.

    Returns:
        float32 NumPy array `[n, dim]`.

    Raises:
        ValueError: they are no numbers, or of another shape.
    """
    try:
        values = np.asarray(rows, np.float32)
        found = f"shape={values.shape}"
    except (TypeError, ValueError):  # As NumPy refuses words, or other lists.
        values, found = None, shown(rows)
    if values is None or values.ndim != 2 or values.shape[1] != dim:
        raise InputError(
            f"`{argument}` must be embeddings of shape (None, {dim}). "
            f"Received: {found}. Give what this model embeds."
        )
    return values


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


def refuse_single(argument, values):
    """Refuses a string, a path, bytes, a photo or no list at all."""
    single = str | bytes | os.PathLike | PIL.Image.Image
    is_pixels = isinstance(values, np.ndarray) and values.ndim in (2, 3)
    is_one = isinstance(values, single) or is_pixels
    if is_one or not hasattr(values, "__len__"):
        raise InputError(
            f"`{argument}` must be a list. Received: one "
            f"{type(values).__name__}. Give a list, of a single one too."
        )
