"""Gathers and sums the rows of replicas that share a batch.

Under a `tf.distribute` strategy a train step runs in a replica on each device,
with that replica's rows of the batch. A loss that compares rows gathers the
whole batch, the replicas' rows in order, and every replica computes the loss of
the whole batch. Gradients return to the replica that owns the row, so that the
sum over replicas of the gradients of `part_of(loss)` is the gradient of the
loss.

Without a strategy, or with one replica, these functions add no operations to
the graph.
"""

import tensorflow as tf


def num_replicas():
    """Returns the number of replicas that share the batch, an int."""
    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync if context else 1


def gather(*rows):
    """Concatenates the rows of all replicas, differentiably.

    Args:
        *rows: `[n, ...]`, or None, which is returned as is; replicas may differ
            only in n.

    Returns:
        List of `[sum of n, ...]`, the first replica's rows first.
    """
    if num_replicas() == 1:
        return list(rows)
    context = tf.distribute.get_replica_context()
    # One call per tensor: in a list, TensorFlow's graph optimizer applies one
    # tensor's shape to all (2.21).
    return [one if one is None else _gathered(context, one) for one in rows]


def _gathered(context, rows):
    """Concatenates the replicas' rows of one tensor."""
    # The collective does not support bool, and an input of the step has no
    # device: cast or copy it.
    is_bool = rows.dtype == tf.bool
    own = tf.cast(rows, tf.int32) if is_bool else tf.identity(rows)
    return _densely(tf.cast(context.all_gather(own, 0), rows.dtype))


@tf.custom_gradient
def _densely(rows):
    """Gives picked rows a dense gradient, which all_gather requires."""
    return tf.identity(rows), tf.convert_to_tensor


def summed(tensors):
    """Returns tensors summed over replicas, differentiably.

    Args:
        tensors: nested structure; `tf.IndexedSlices` are concatenated.
    """
    if num_replicas() == 1:
        return tensors
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def part_of(tensor):
    """Divides a tensor, equal on all replicas, by their number.

    Args:
        tensor: floats, or None. `tf.IndexedSlices` become dense: the next sum
            would concatenate all replicas' slices.
    """
    count = num_replicas()
    if count == 1 or tensor is None:
        return tensor
    return tf.math.scalar_mul(1 / count, tf.convert_to_tensor(tensor))


def own_rows(rows):
    """Returns this replica's share of rows that all replicas have.

    Args:
        rows: `[n, ...]`, equal on all replicas.

    Returns:
        `[k, ...]`; shares differ by at most one row and together hold all rows.
    """
    if num_replicas() == 1:
        return rows
    context = tf.distribute.get_replica_context()
    place = tf.cast(context.replica_id_in_sync_group, tf.int32)
    count = tf.shape(rows)[0]
    start, stop = ((place + i) * count // num_replicas() for i in range(2))
    return rows[start:stop]


def span(num_rows):
    """Returns where this replica's rows begin among all replicas' rows.

    Args:
        num_rows: int32 scalar, the number of this replica's rows.

    Returns:
        (first, total): int32 scalars, the index of its first row and the number
        of rows on all replicas.
    """
    if num_replicas() == 1:
        return 0, num_rows
    context = tf.distribute.get_replica_context()
    place = context.replica_id_in_sync_group
    counts = summed(
        tf.one_hot(place, num_replicas(), dtype=tf.int32) * num_rows
    )
    return tf.cumsum(counts, exclusive=True)[place], tf.reduce_sum(counts)
