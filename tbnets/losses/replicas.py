"""Several devices that learn from one batch, each from its rows of it.

Under a `tf.distribute` strategy a train step runs once a device, in a replica.
A replica has its rows of everything in a batch; the whole batch is the rows of
all replicas, in their order. What compares rows with each other has to see the
whole: it is gathered, and each replica computes the loss of the whole batch.
Gradients go back the way that the rows came, to the replica that has them, so
that the sum over replicas of the gradients of `part_of(loss)` is the gradient
of the loss.

Outside of a strategy, and where it has one replica, a graph computes nothing
more for it.
"""

import tensorflow as tf


def num_replicas():
    """Returns how many replicas share the batch of this step, an int."""
    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync if context else 1


def gather(*rows):
    """Returns the rows of all replicas of each tensor, differentiably.

    Args:
        *rows: `[n, ...]`, or None, which is let through; all replicas agree
            in everything but n.

    Returns:
        List of `[sum of n, ...]`, the first replica's rows first.
    """
    if num_replicas() == 1:
        return list(rows)
    context = tf.distribute.get_replica_context()
    # One by one: of several in a list, TensorFlow's graph optimizer takes the
    # shape of one for that of all (2.21).
    return [one if one is None else _gathered(context, one) for one in rows]


def _gathered(context, rows):
    """Returns the rows of all replicas of one tensor."""
    # No message takes bool, and an input of the step stands on no device.
    is_bool = rows.dtype == tf.bool
    own = tf.cast(rows, tf.int32) if is_bool else tf.identity(rows)
    return _densely(tf.cast(context.all_gather(own, 0), rows.dtype))


@tf.custom_gradient
def _densely(rows):
    """Returns rows whose gradient is no `tf.IndexedSlices`.

    Those of rows that were picked are, and all_gather's gradient takes none.
    """
    return tf.identity(rows), tf.convert_to_tensor


def summed(tensors):
    """Returns tensors summed over replicas, differentiably.

    Args:
        tensors: nested structure; `tf.IndexedSlices` are put together.
    """
    if num_replicas() == 1:
        return tensors
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def part_of(tensor):
    """Returns a tensor, the same on all replicas, divided by their number.

    Args:
        tensor: of floats, or None; `tf.IndexedSlices` become dense: put
            together, they would be as many times as long at the next sum.
    """
    count = num_replicas()
    if count == 1 or tensor is None:
        return tensor
    return tf.math.scalar_mul(1 / count, tf.convert_to_tensor(tensor))


def own_rows(rows):
    """Returns of rows that all replicas have those that this one works on.

    Args:
        rows: `[n, ...]`, the same on all replicas.

    Returns:
        `[k, ...]`: the parts of all replicas are equally long but for a row,
        and together they are all rows.
    """
    if num_replicas() == 1:
        return rows
    context = tf.distribute.get_replica_context()
    place = tf.cast(context.replica_id_in_sync_group, tf.int32)
    count = tf.shape(rows)[0]
    start, stop = ((place + i) * count // num_replicas() for i in range(2))
    return rows[start:stop]


def span(num_rows):
    """Returns the place of this replica's rows among those of all replicas.

    Args:
        num_rows: int32 scalar, how many rows this replica has.

    Returns:
        (first, total): int32 scalars, the place of its first row, and the
        number of rows of all replicas.
    """
    if num_replicas() == 1:
        return 0, num_rows
    context = tf.distribute.get_replica_context()
    place = context.replica_id_in_sync_group
    counts = summed(
        tf.one_hot(place, num_replicas(), dtype=tf.int32) * num_rows
    )
    return tf.cumsum(counts, exclusive=True)[place], tf.reduce_sum(counts)
