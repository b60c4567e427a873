"""Gradients by similarities, at a few pairs of each row -> by embeddings.

With X the rows of a matrix of similarities, Y its columns and G the gradient
by it, that of X is G Y and that of Y is G^T X. G is zero but for the pairs
that a loss has picked. On CPUs G is never written out: the products are those
of a matrix of compressed sparse rows, and cost what their pairs cost. XLA does
not compile these, and accelerators are at their best where all is dense: there
G is put together first.
"""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tbnets.cores import no_accelerator


def by_pairs():
    """Tells whether products of single pairs run here: on CPUs without XLA.

    A function that was traced without XLA keeps them: to compile it, let
    `jit_compile` trace it.
    """
    graph = tf.compat.v1.get_default_graph()
    by_xla = control_flow_util.GraphOrParentsInXlaContext(graph)
    return no_accelerator() and not by_xla


class PairSlopes:
    """Gradients of embeddings, which grow by each group of pairs.

    Args:
        sides: float32 `[rows, dim]` and `[columns, dim]`; of a set that is
            compared with itself one, whose gradient is that of both.
    """

    def __init__(self, sides):
        self._sides = sides

    def of_pairs(self, pairs, values, turned=False):
        """Returns what pairs add: a list of one gradient a side.

        Args:
            pairs: int32 `[n, 2]`, an anchor and its candidate, sorted by
                anchor. A pair may be told more than once.
            values: float32 `[n]`, the gradient by their similarities.
            turned: Whether the anchors are columns, not rows.
        """
        anchors, candidates = self._sides[0], self._sides[-1]
        if turned:
            anchors, candidates = candidates, anchors
        sizes = tf.shape(anchors)[0], tf.shape(candidates)[0]
        slopes = tf.raw_ops.SparseTensorToCSRSparseMatrix(
            indices=tf.cast(pairs, tf.int64),
            values=values,
            dense_shape=tf.cast(tf.stack(sizes), tf.int64),
        )
        found = [_product(slopes, candidates)]
        # Turned round first: the product of a transpose takes five times as
        # long.
        slopes = tf.raw_ops.SparseMatrixTranspose(input=slopes, type=tf.float32)
        found.append(_product(slopes, anchors))
        if len(self._sides) == 1:
            return [found[0] + found[1]]
        return found[::-1] if turned else found

    def of_sides(self, state):
        """Returns the gradients of the sides, of all that was added."""
        return state


class MatrixSlopes:
    """A matrix of slopes, as `PairSlopes`, and their products at the end."""

    def __init__(self, sides):
        self._sides = sides

    def of_pairs(self, pairs, values, turned=False):
        """Returns what pairs add: a list of one matrix."""
        pairs = pairs[:, ::-1] if turned else pairs
        sizes = [tf.shape(self._sides[i])[0] for i in (0, -1)]
        num_rows, num_columns = tf.unstack(tf.cast(sizes, tf.int64))
        rows, columns = tf.unstack(tf.cast(pairs, tf.int64), axis=1)
        # As a sum of segments it takes a third of the time of a scatter.
        sums = tf.math.unsorted_segment_sum(
            values, rows * num_columns + columns, num_rows * num_columns
        )
        return [tf.reshape(sums, [num_rows, num_columns])]

    def of_sides(self, state):
        """Returns the gradients of the sides."""
        [slopes] = state
        rows, columns = self._sides[0], self._sides[-1]
        if len(self._sides) == 1:
            return [tf.matmul(slopes + tf.transpose(slopes), rows)]
        turned = tf.matmul(slopes, rows, transpose_a=True)
        return [tf.matmul(slopes, columns), turned]


def _product(sparse, dense):
    return tf.raw_ops.SparseMatrixMatMul(a=sparse, b=dense)
