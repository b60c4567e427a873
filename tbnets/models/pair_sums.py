"""Sums over the batches of an epoch, and the covariances they come to."""

import numpy as np
import tensorflow as tf

from tbnets.losses import replicas


class PairSums:
    """Sums over matching pairs, from which their covariances come.

    A plain object, so that Keras counts none of it among a model's weights.
    Features are shifted by the mean of the first batch, so that a mean far
    from 0 swallows no variance; batches are multiplied in float32 and summed
    in float64.

    Args:
        num_images: size of image features.
        num_texts: size of text features.
    """

    def __init__(self, num_images, num_texts):
        sizes = num_images, num_texts
        self.count = _zeros(is_known=True)
        self.shifts = [_zeros(size, is_known=True) for size in sizes]
        self.sums = [_zeros(size) for size in sizes]
        kinds = (0, 0), (1, 1), (0, 1)
        self.products = {(i, j): _zeros(sizes[i], sizes[j]) for i, j in kinds}

    def add(self, images, texts, pairs):
        """Adds a batch.

        Args:
            images: float32 `[n, num_images]`.
            texts: float32 `[m, num_texts]`.
            pairs: float32 `[n, m]`, 1 where image and text match, else 0.
        """
        rows, sides, is_first = [], (images, texts), self.count == 0
        uses = tf.reduce_sum(pairs, 1), tf.reduce_sum(pairs, 0)
        totals = [tf.linalg.matvec(*side, True) for side in zip(sides, uses)]
        *totals, count = replicas.summed([*totals, tf.reduce_sum(pairs)])
        for i, features in enumerate(sides):
            mean = totals[i] / tf.maximum(count, 1)
            shift = tf.where(is_first, _wide(mean), self.shifts[i])
            self.shifts[i].assign(shift)
            rows.append(features - tf.cast(shift, tf.float32))
            used = rows[i] * uses[i][:, None]
            self.sums[i].assign_add(_wide(tf.reduce_sum(used, 0)))
            squares = tf.matmul(rows[i], used, transpose_a=True)
            self.products[i, i].assign_add(_wide(squares))
        texts_of_images = tf.matmul(pairs, rows[1])
        between = tf.matmul(rows[0], texts_of_images, transpose_a=True)
        self.products[0, 1].assign_add(_wide(between))
        self.count.assign_add(_wide(count))

    def means(self):
        """Returns the means of images and texts over pairs, float64."""
        count = _read(self.count)
        sides = zip(self.shifts, self.sums)
        return [_read(shift) + _read(total) / count for shift, total in sides]

    def covariance(self, *sides):
        """Returns the covariance of two of images (0) and texts (1), once.

        The shift is the mean of one batch: what is left of the mean goes
        here. The sum is given up for its covariance.
        """
        count = _read(self.count)
        covariance = _read(self.products.pop(sides))
        covariance /= count
        left, right = [_read(self.sums[side]) / count for side in sides]
        covariance -= np.outer(left, right)
        return covariance


def _zeros(*shape, is_known=False):
    """Returns a variable that each replica has for itself.

    Args:
        *shape: of it.
        is_known: whether all replicas have the same; else what they have is
            summed where it is read.
    """
    kinds = tf.VariableAggregation
    return tf.Variable(
        tf.zeros(shape, tf.float64),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=kinds.ONLY_FIRST_REPLICA if is_known else kinds.SUM,
    )


def _read(variable):
    return tf.convert_to_tensor(variable).numpy()


def _wide(values):
    return tf.cast(values, tf.float64)
