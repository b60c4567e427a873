"""What losses and miners are given, checked by what is known before a step.

Shapes and types cost a compiled step nothing. Lengths are looked at where
numbers are at hand, outside of a `tf.function`.
"""

import warnings

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError, InputTypeError

UNIT_TOLERANCE = 0.01
"""By so much a length may differ from 1: half precision rounds."""
_looked = set()
"""Names of the arguments whose lengths were looked at; empty before that."""
MASKS_OF_IDS = (
    "Of ids, `tbnets.positive_masks(image_ids, caption_image_ids)` makes it."
)
TOGETHER = (
    "Number the ids of images and captions together; a float merges large ones."
)


def checked_row(name, values, dtype=tf.int64, advice=TOGETHER):
    """Returns a row of ids, or of floats; refuses what is none.

    Args:
        name: what the argument is called.
        values: integers `[n]`; floats where `dtype` is one of floats.
        dtype: what they become.
        advice: what to change where they are something else.
    """
    values = tf.convert_to_tensor(values)
    given, found = values.dtype, f"{name}={values.dtype.name}{values.shape}"
    if not (given.is_integer if dtype.is_integer else given.is_floating):
        kind = "integers" if dtype.is_integer else "floats"
        raise InputTypeError(
            f"`{name}` must be {kind}. Received: {found}. {advice}"
        )
    if values.shape.rank not in (1, None):
        raise InputError(
            f"`{name}` must be of shape [n]. Received: {found}. Flatten them."
        )
    return tf.cast(values, dtype)


def check_as_many(name, ids, rows_name, rows):
    """Refuses ids that are more or fewer than the rows they stand for."""
    if ids is None:
        raise InputError(
            f"`{name}` must be given. Received: None. Give ids of both views, "
            "or one view with its labels: loss(embeddings, labels)."
        )
    found = tf.convert_to_tensor(ids).shape, tf.convert_to_tensor(rows).shape
    if not found[0][:1].is_compatible_with(found[1][:1]):
        raise InputError(
            f"`{name}` must have an id for each row of `{rows_name}`. "
            f"Received: {name}.shape={found[0]}, {rows_name}.shape={found[1]}."
        )


def checked_embeddings(**named):
    """Returns embeddings of one space as float32, by name.

    The first time that they are at hand, rows that are not of unit length are
    warned of; rows of zeros stand for nothing, and are let through.

    Raises:
        TypeError: they are no numbers.
        ValueError: they are not `[n, dim]`, or differ in dim.
    """
    arrays = {key: tf.convert_to_tensor(rows) for key, rows in named.items()}
    first, last = next(iter(named)), next(reversed(named))
    for name, rows in arrays.items():
        if not (rows.dtype.is_floating or rows.dtype.is_integer):
            raise InputTypeError(
                f"`{name}` must hold numbers. Received: {rows.dtype.name}. "
                "Give what a network embeds, such as `embed_text`."
            )
        if rows.shape.rank not in (2, None):
            raise InputError(
                f"`{name}` must be of shape [n, dim]. Received: {name}.shape="
                f"{rows.shape}. Give an embedding a row."
            )
    sizes = [arrays[name].shape[-1:] for name in (first, last)]
    if not sizes[0].is_compatible_with(sizes[1]):
        raise InputError(
            f"`{last}` must have as many columns as `{first}`. Received: "
            f"{first}.shape={arrays[first].shape}, {last}.shape="
            f"{arrays[last].shape}. Embed both in one space."
        )
    if tf.executing_eagerly() and not _looked:
        _looked.update(arrays)
        _warn_of_lengths(arrays)
    return [tf.cast(rows, tf.float32) for rows in arrays.values()]


def _warn_of_lengths(arrays):
    """Warns of the first rows that are not unit vectors."""
    for name, rows in arrays.items():
        lengths = np.linalg.norm(rows.numpy().astype(np.float32), axis=1)
        off = (np.abs(lengths - 1) > UNIT_TOLERANCE) & (lengths != 0)
        if off.any():
            warnings.warn(
                f"`{name}` should be rows of length 1. Received: lengths from "
                f"{lengths[off].min():.3g} to {lengths[off].max():.3g}; "
                "distances are taken of unit vectors. Normalise: "
                "tf.math.l2_normalize(rows, axis=1).",
                stacklevel=5,
            )
            return


def checked_mask(name, mask, shape, advice="Give True or False for each."):
    """Returns a mask; refuses what is not bool, or of another shape."""
    mask, shape = tf.convert_to_tensor(mask), tf.TensorShape(shape)
    if mask.dtype != tf.bool or not mask.shape.is_compatible_with(shape):
        raise InputError(
            f"`{name}` must be bool{shape}. Received: {name}="
            f"{mask.dtype.name}{mask.shape}. {advice}"
        )
    return mask
