"""Distances between unit vectors, computed from their inner products."""

import tensorflow as tf


def similarities(queries, candidates):
    """Returns inner products, float32 `[num_queries, num_candidates]`.

    Queries and candidates are float arrays `[n, embedding_dim]`.
    """
    return tf.matmul(
        tf.cast(queries, tf.float32),
        tf.cast(candidates, tf.float32),
        transpose_b=True,
    )


def euclidean(similarities):
    r"""Computes Euclidean distances from inner products of unit vectors.

    $$d(x, y) = \lVert x - y \rVert = \sqrt{2 - 2 x^\top y}$$

    No epsilon is added under the root, because it would bias small distances.
    The gradient at distance 0 is defined as 0.

    The similarities are float32 of any shape. Rounding may make a similarity
    exceed 1. The distances are in `[0, 2]`.

    Source: Wang et al. 2018, Sec. 3.2.1.
    """
    squares = 2.0 - 2.0 * similarities
    coincide = squares <= 0.0
    roots = tf.sqrt(tf.where(coincide, tf.ones_like(squares), squares))
    return tf.where(coincide, tf.zeros_like(squares), roots)


def cosine(similarities):
    r"""Computes cosine distances from inner products of unit vectors.

    $$d(x, y) = 1 - x^\top y$$

    The similarities are float32 of any shape, and the distances are in `[0,
    2]`.

    Source: Kiros et al. 2014 and VSE++ (Faghri et al. 2018). Their losses
    compare similarities, so the published margins apply unchanged.
    """
    return 1.0 - similarities


DISTANCES = {"euclidean": euclidean, "cosine": cosine}
