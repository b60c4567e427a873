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

import contextlib
import contextvars

import tensorflow as tf

PHILOX = 1
"""What TensorFlow calls the algorithm behind stateless random numbers on CPUs
and GPUs; it counts in blocks of 16 bytes of random bits."""
_drawn = contextvars.ContextVar("drawn", default=None)
_statistics = contextvars.ContextVar("statistics", default="all")
STATISTICS = "all", "replica"


@contextlib.contextmanager
def _within(variable, value):
    """Gives a `ContextVar` a value in what is done within."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


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


class Shares:
    """Where the rows of this replica stand among those of all.

    That takes the replicas a message to each other, sent when it is asked.

    Args:
        **own: name -> int32 scalar, how many rows this replica has.
    """

    def __init__(self, **own):
        self._own, self._counts = own, None

    def _of(self, name):
        """Returns (first, own, total) of the rows of a name, int32 scalars."""
        if self._counts is None:
            context = tf.distribute.get_replica_context()
            place = context.replica_id_in_sync_group
            own = tf.stack(list(self._own.values()))
            rows = tf.one_hot(place, num_replicas(), dtype=own.dtype)
            counts = summed(rows[:, None] * own)
            first = tf.cumsum(counts, exclusive=True)[place]
            self._counts = first, own, tf.reduce_sum(counts, axis=0)
        column = list(self._own).index(name)
        return [one[column] for one in self._counts]

    def total(self, name):
        """Returns how many rows of a name all replicas have."""
        return self._own[name] if num_replicas() == 1 else self._of(name)[2]

    def own(self, name, rows):
        """Returns which rows of this replica some rows of the whole are.

        Args:
            name: of the rows.
            rows: int32 `[n]`, of all replicas' rows.

        Returns:
            int32 `[k]`, those that this replica has, counted from its first.
        """
        if num_replicas() == 1:
            return rows
        first, own, _ = self._of(name)
        rows -= first
        return tf.boolean_mask(rows, (rows >= 0) & (rows < own))

    def drawn(self, *names):
        """Layers draw random numbers for rows of these names, one by one.

        A layer is given this replica's rows of the first name, then those of
        the second, and drops of each what it would drop of it if all rows of
        the first name, then all of the second were there.

        Args:
            *names: of the rows; none for all, in their order.
        """
        return _within(_drawn, (self, names or [*self._own]))

    def _ranges(self, names):
        """Returns (first, own) of each name, behind all rows before it."""
        before, ranges = 0, []
        for name in names:
            first, own, total = self._of(name)
            ranges.append((before + first, own))
            before += total
        return ranges


def uniform_rows(seed, shape, dtype):
    """Draws random numbers of this replica's rows.

    They are those that `tf.random.stateless_uniform(shape, seed)` would draw
    for these rows if `shape` had the rows of all replicas.

    Args:
        seed: int32 `[2]`.
        shape: int32 `[rank]`, of this replica's rows.
        dtype: of the numbers.

    Returns:
        `dtype` of that shape, in [0, 1).
    """
    shape = tf.convert_to_tensor(shape)
    per_row = tf.cast(tf.reduce_prod(shape[1:]), tf.int64)
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    # A number takes four bytes of a block, a double eight.
    block = 2 if tf.as_dtype(dtype) == tf.float64 else 4
    parts = []
    shares, names = _drawn.get() or (Shares(rows=shape[0]), ["rows"])
    for first, count in shares._ranges(names):
        start, size = tf.unstack(tf.cast([first, count], tf.int64) * per_row)
        skipped = start % block
        blocks = tf.cast(tf.stack([start // block, 0]), tf.uint64)
        numbers = tf.raw_ops.StatelessRandomUniformV2(
            shape=[size + skipped],
            key=key,
            counter=counter + blocks,
            alg=PHILOX,
            dtype=dtype,
        )
        parts.append(numbers[skipped:])
    return tf.reshape(tf.concat(parts, axis=0), shape)


def are_statistics_shared():
    """Tells whether batch normalisation made here asks all replicas."""
    is_shared = tf.distribute.get_strategy().num_replicas_in_sync > 1
    return is_shared and _statistics.get() == "all"


def batch_statistics(whose):
    """Layers made within normalise by the statistics of "all" or "replica".

    Args:
        whose: of `STATISTICS`; of the whole batch, or of the rows of each
            replica.
    """
    return _within(_statistics, whose)
