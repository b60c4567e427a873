"""Selects triplets in a batch from similarities and boolean masks.

All functions return indices of a fixed shape and a mask of valid entries. They
do not propagate gradients, they need memory for only a few arrays of shape
`[rows, columns]`, and XLA can compile them.
"""

import warnings

import numpy as np
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.errors import InputError, InputTypeError

# Argument checks for losses and miners. Shapes and dtypes are checked while a
# step is traced, and vector lengths only in eager mode.

UNIT_TOLERANCE = 0.01
"""Maximum deviation of a vector's length from 1; half precision needs it."""
_checked_arguments = set()
"""Arguments whose vector lengths were checked; empty before the check."""


def checked_row(name, values, dtype=tf.int64):
    """Casts integers to an integer `dtype`, or floats to a float `dtype`."""
    values = tf.convert_to_tensor(values)
    source, received = values.dtype, f"{name}={values.dtype.name}{values.shape}"
    if not (source.is_integer if dtype.is_integer else source.is_floating):
        kind = "integers" if dtype.is_integer else "floats"
        raise InputTypeError(name, f"be {kind}", received)
    if values.shape.rank not in (1, None):
        raise InputError(name, "be of shape [n]", received)
    return tf.cast(values, dtype)


def check_as_many(name, ids, rows_name, rows):
    """Raises an error if the numbers of ids and rows differ."""
    shapes = tf.convert_to_tensor(ids).shape, tf.convert_to_tensor(rows).shape
    if not shapes[0][:1].is_compatible_with(shapes[1][:1]):
        raise InputError(
            name,
            f"have an id for each row of `{rows_name}`",
            f"{name}.shape={shapes[0]}, {rows_name}.shape={shapes[1]}",
        )


def embeddings_of_loss(**named):
    """Checks embeddings `[n, dim]` of one shared space; casts them to float32.

    The first eager call warns about rows whose length is neither 1 nor 0.
    """
    arrays = {key: tf.convert_to_tensor(rows) for key, rows in named.items()}
    for name, rows in arrays.items():
        if rows.shape.rank not in (2, None):
            raise InputError(name, "be of shape [n, dim]", rows.shape)
    if tf.executing_eagerly() and not _checked_arguments:
        _checked_arguments.update(arrays)
        _warn_of_lengths(arrays)
    return [tf.cast(rows, tf.float32) for rows in arrays.values()]


def _warn_of_lengths(arrays):
    for name, rows in arrays.items():
        lengths = np.linalg.norm(rows.numpy().astype(np.float32), axis=1)
        off = (np.abs(lengths - 1) > UNIT_TOLERANCE) & (lengths != 0)
        if off.any():
            warnings.warn(
                f"`{name}` should have rows of length 1. Received: lengths "
                f"from {lengths[off].min():.3g} to {lengths[off].max():.3g}. "
                "Normalise them: tf.math.l2_normalize(rows, axis=1).",
                stacklevel=4,
            )
            return


def checked_mask(name, mask, shape):
    """Returns the mask; raises an error if its dtype or shape is wrong."""
    mask, shape = tf.convert_to_tensor(mask), tf.TensorShape(shape)
    if mask.dtype != tf.bool or not mask.shape.is_compatible_with(shape):
        received = f"{mask.dtype.name}{mask.shape}"
        raise InputError(name, f"be bool{shape}", received)
    return mask


_GROUP = 16
_WORD = 8


def hardest_negatives(
    similarities: Array, positive_mask: Array, num_negatives: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the most similar non-positive columns of every row.

    Args:
        similarities: float32 `[rows, columns]`; larger is closer.
        positive_mask: bool `[rows, columns]`, True for columns that are not
            negatives. If a set is compared with itself, the diagonal must be
            True.
        num_negatives: Number of negatives K per row, at least 1 (Wang 2016 uses
            50, Wang 2018 uses 10).

    Returns:
        `(indices, valid)`, each `[rows, min(K, columns)]`. `indices` contains
        int32 columns, the most similar first. `valid` is False for padding.

    Raises:
        ValueError: If an argument has the wrong shape or dtype.

    Example:
        mask = tbnets.positive_masks(image_ids, caption_image_ids)
        indices, valid = tbnets.hardest_negatives(
            image_embeddings @ text_embeddings.T, mask.image_to_text, 10)

    Source: Wang et al. 2016, Sec. 2.2, "Triplet sampling"; departures:
    negatives are selected per anchor, because they do not depend on the
    positive.
    """
    if not tf.is_tensor(num_negatives):
        checked_number("num_negatives", num_negatives, 1, whole=True)
    similarities = tf.stop_gradient(tf.cast(similarities, tf.float32))
    positive_mask = checked_mask(
        "positive_mask", positive_mask, similarities.shape
    )
    masked = tf.where(positive_mask, tf.constant(float("-inf")), similarities)
    count = _minimum(num_negatives, _shape(masked)[1])
    values, columns = largest(padded(masked, float("-inf"), [1]), count)
    return columns, tf.not_equal(values, float("-inf"))


def padded(rows, value, axes=(0, 1)):
    """Pads axes of a matrix to positive multiples of `_GROUP`."""
    sizes = _shape(rows)
    groups = [-(-_at_least_one(size) // _GROUP) for size in sizes]
    paddings = [
        [0, groups[axis] * _GROUP - size if axis in axes else 0]
        for axis, size in enumerate(sizes)
    ]
    return tf.pad(rows, paddings, constant_values=value)


def largest(values, count, transposed=False):
    """Finds the `count` largest values of every row.

    `values` is float32 `[rows, columns]`, padded with `padded`. `transposed`
    transposes it first. Returns the largest values in descending order, and
    their int32 columns, both `[rows, min(count, columns)]`.
    """
    # A row's k largest values are in the k groups of neighbouring columns with
    # the largest maxima, so only these groups are searched.
    num_rows, num_columns = _shape(values)[:: -1 if transposed else 1]
    num_groups = num_columns // _GROUP
    if transposed:
        grouped = tf.reshape(values, [num_groups, _GROUP, num_rows])
        best = tf.transpose(tf.reduce_max(grouped, axis=1))
    else:
        grouped = tf.reshape(values, [num_rows, num_groups, _GROUP])
        best = tf.reduce_max(grouped, axis=2)
    best, groups = tf.math.top_k(
        best, _minimum(count, num_groups), sorted=False
    )
    if transposed:
        columns = _flat_rows(groups[:, :, None] * _GROUP + tf.range(_GROUP))
        positions = tf.cast(columns, tf.int64) * tf.cast(num_rows, tf.int64)
        positions += tf.range(num_rows, dtype=tf.int64)[:, None]
        members = tf.gather(tf.reshape(values, [-1]), positions)
    else:
        members = _flat_rows(tf.gather(grouped, groups, batch_dims=1))
    # Each of the `count` best groups holds a value that is at least the
    # smallest of their maxima, so smaller values can be dropped.
    least = tf.reduce_min(best, axis=1, keepdims=True)
    least = tf.where(count <= num_groups, least, float("-inf"))
    members = tf.where(members < least, float("-inf"), members)
    top, positions = tf.math.top_k(members, _minimum(count, num_columns))
    columns = _columns(groups, positions, _GROUP)
    return top, tf.where(tf.not_equal(top, float("-inf")), columns, 0)


def first_positives(positive_mask, limit):
    """Finds up to `limit` True columns of every row.

    Returns int32 columns and a bool mask, False for padding, both `[rows,
    min(limit, columns)]`. If a row has more than `limit` True columns, any of
    them may be returned.
    """
    num_rows, num_columns = _shape(positive_mask)
    padding = -num_columns % _WORD
    num_words = (num_columns + padding) // _WORD
    flags = tf.reshape(
        tf.pad(tf.cast(positive_mask, tf.uint8), [[0, 0], [0, padding]]),
        [num_rows, num_words, _WORD],
    )
    # A sparse mask takes little longer than reading eight columns as one int64.
    occupied = tf.not_equal(tf.bitcast(flags, tf.int64), 0)
    _, words = tf.math.top_k(
        tf.cast(occupied, tf.int32), _minimum(limit, num_words), sorted=False
    )
    members = _flat_rows(tf.gather(flags, words, batch_dims=1))
    values, positions = tf.math.top_k(
        tf.cast(members, tf.int32), _minimum(limit, num_columns)
    )
    valid = tf.greater(values, 0)
    return tf.where(valid, _columns(words, positions, _WORD), 0), valid


def first_true(mask):
    """Returns the first True column for each row, or -1 if there is none."""
    positions = tf.range(tf.shape(mask)[1])
    # XLA rejects argmax for a matrix without columns.
    first = tf.reduce_min(
        tf.where(mask, positions, positions.dtype.max), axis=1
    )
    return tf.where(first == positions.dtype.max, -1, first)


def _shape(matrix):
    known, running = matrix.shape, tf.shape(matrix)
    return [running[i] if known[i] is None else known[i] for i in range(2)]


def _minimum(count, size):
    if isinstance(size, int):
        return min(count, size)
    return tf.minimum(count, size)


def _at_least_one(size):
    return max(size, 1) if isinstance(size, int) else tf.maximum(size, 1)


def _columns(groups, positions, size):
    groups = tf.gather(groups, positions // size, batch_dims=1)
    return groups * size + positions % size


def _flat_rows(values):
    shape = tf.shape(values)
    return tf.reshape(values, [shape[0], shape[1] * shape[2]])
