"""Gathers and sums tensors over replicas that share a batch.

Under a `tf.distribute` strategy, each replica runs the training step on its
rows of the batch. A loss that compares rows gathers the whole batch, in the
order of the replicas, and each replica computes the loss of the whole batch.
Summing the gradients of `part_of(loss)` over the replicas gives the gradient of
this loss.
"""

# With one replica, these functions add no operations to the graph.

import tensorflow as tf


def num_replicas():
    """Returns the number of replicas that share the batch."""
    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync if context else 1


def gather(*rows):
    """Concatenates the rows `[n, ...]` of all replicas, differentiably.

    Only n may differ between replicas. Returns a list with one tensor per
    argument, whose rows are ordered by replica. An argument may be None.
    """
    if num_replicas() == 1:
        return list(rows)
    context = tf.distribute.get_replica_context()
    # Given a list, the graph optimizer of TensorFlow 2.21 applies one tensor's
    # shape to all tensors. Therefore call it once per tensor.
    return [x if x is None else _gathered(context, x) for x in rows]


def _gathered(context, rows):
    # The collective does not support bool, and needs a tensor with a device,
    # which an input of the step lacks. Therefore cast or copy the rows.
    is_bool = rows.dtype == tf.bool
    local_rows = tf.cast(rows, tf.int32) if is_bool else tf.identity(rows)
    return _densely(tf.cast(context.all_gather(local_rows, 0), rows.dtype))


@tf.custom_gradient
def _densely(rows):
    """Returns the rows; makes their gradient dense, as all_gather requires."""
    return tf.identity(rows), tf.convert_to_tensor


def summed(tensors):
    """Sums each tensor of a nested structure over the replicas, differentiably.

    `tf.IndexedSlices` are concatenated.
    """
    if num_replicas() == 1:
        return tensors
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def part_of(tensor):
    """Divides a tensor by the number of replicas; returns None unchanged.

    `tf.IndexedSlices` become dense, because a sum over replicas would
    concatenate their slices.
    """
    count = num_replicas()
    if count == 1 or tensor is None:
        return tensor
    return tf.math.scalar_mul(1 / count, tf.convert_to_tensor(tensor))


def own_rows(rows):
    """Divides rows among the replicas; returns the rows of this replica.

    `rows` must be equal on all replicas. The numbers of rows per replica differ
    by at most one.
    """
    if num_replicas() == 1:
        return rows
    context = tf.distribute.get_replica_context()
    place = tf.cast(context.replica_id_in_sync_group, tf.int32)
    count = tf.shape(rows)[0]
    start, stop = ((place + i) * count // num_replicas() for i in range(2))
    return rows[start:stop]


def span(num_rows):
    """Returns (index of this replica's first row, total number of rows)."""
    if num_replicas() == 1:
        return 0, num_rows
    place = tf.distribute.get_replica_context().replica_id_in_sync_group
    [counts] = gather(tf.reshape(num_rows, [1]))
    return tf.cumsum(counts, exclusive=True)[place], tf.reduce_sum(counts)


def maximum(number):
    """Returns the maximum of an int32 scalar over the replicas."""
    if num_replicas() == 1:
        return number
    [numbers] = gather(tf.reshape(number, [1]))
    return tf.reduce_max(numbers)
