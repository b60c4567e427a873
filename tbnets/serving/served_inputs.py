"""What a user gives -> what a signature takes; photos that are none."""

import os

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.images import BrokenImageError, read_content
from tbnets.serving.tree_reader import TreeReader

IMAGE_BYTES = "image_bytes"
"""Name of the input that takes encoded photos."""


def as_input(argument, spec, values):
    """Converts one input; says what is wrong with its shape or type.

    Args:
        argument: how the message calls it.
        spec: its `tf.TensorSpec`.
        values: list of strings, or float array; for `IMAGE_BYTES` paths will
            do too.

    Returns:
        A tensor.

    Raises:
        ValueError: it is no list, or of another shape.
    """
    if spec.dtype == tf.string:
        refuse_single(argument, values)
        if spec.name == IMAGE_BYTES:
            values = [photo_content(one) for one in values]
        return tf.constant(list(values), tf.string, [len(values)])
    values = np.asarray(values, np.float32)
    if not spec.shape.is_compatible_with(values.shape):
        raise InputError(
            f"`{argument}` must be of shape {tuple(spec.shape)}. Received: "
            f"shape={values.shape}. Use the features the network was trained "
            "on."
        )
    finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not finite.all():  # As the graph would say, which knows no argument.
        bad = np.flatnonzero(~finite)
        raise InputError(
            f"`{argument}` must be finite. Received: NaN or infinity in "
            f"{len(bad)} of {finite.size}, first in row {bad[0]}. Check the "
            "features."
        )
    return tf.constant(values)


def is_trees(spec):
    """Tells whether an input takes trees as `TreeReader.read` makes them."""
    return spec.name == TreeReader.spec.name


def refuse_single(argument, values):
    """Refuses a string, a path or bytes where a list of such belongs."""
    if isinstance(values, str | bytes | os.PathLike):
        raise InputError(
            f"`{argument}` must be a list. Received: one "
            f"{type(values).__name__}. Put it into a list."
        )


def photo_content(photo):
    """Returns the content of a photo: a path, or `bytes` as they are."""
    return photo if isinstance(photo, bytes) else read_content(photo)


def broken(photo, reason):
    """Returns the error for what is no photo; it has a name or a length.

    Args:
        photo: as `photo_content` takes it.
        reason: what is wrong with it, a few words after "which".
    """
    is_content = isinstance(photo, bytes)
    name = f"{len(photo)} bytes" if is_content else photo
    return BrokenImageError(name, reason)
