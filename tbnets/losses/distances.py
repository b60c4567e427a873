"""Distances between unit vectors, written as functions of inner products.

Everything downstream mines and compares on similarities, the inner products
of a whole batch; a distance is asked only of the few pairs that survive.
Every distance here shrinks as the pair gets closer.
"""

import tensorflow as tf


def similarities(queries, candidates):
    """Computes all inner products of queries and candidates.

    Args:
        queries: Float `[num_queries, embedding_dim]`. Half precision inputs
            are widened first, so that the result never has their spacing.
        candidates: Float `[num_candidates, embedding_dim]`.

    Returns:
        float32 `[num_queries, num_candidates]`; larger is closer.
    """
    return tf.matmul(
        tf.cast(queries, tf.float32),
        tf.cast(candidates, tf.float32),
        transpose_b=True,
    )


def euclidean(similarities):
    r"""Turns inner products of unit vectors into Euclidean distances.

    $$d(x, y) = \lVert x - y \rVert = \sqrt{2 - 2 x^\top y}$$

    No constant is added under the root: it would bias small distances. Where
    the distance is 0 its gradient is taken as 0, which keeps it finite. A NaN
    stays a NaN.

    Args:
        similarities: float32 of any shape, inner products of unit vectors.
            Values beyond 1 by rounding count as 1.

    Returns:
        float32 of the same shape, in `[0, 2]`.

    Source: Wang et al. 2018, Sec. 3.2.1; departures: none.
    """
    squares = 2.0 - 2.0 * similarities
    coincide = squares <= 0.0
    roots = tf.sqrt(tf.where(coincide, tf.ones_like(squares), squares))
    return tf.where(coincide, tf.zeros_like(squares), roots)


def cosine(similarities):
    r"""Turns inner products of unit vectors into cosine distances.

    $$d(x, y) = 1 - x^\top y$$

    Args:
        similarities: float32 of any shape, inner products of unit vectors.

    Returns:
        float32 of the same shape, in `[0, 2]`.

    Source: the similarity of Kiros et al. 2014 and VSE++ (Faghri et al.
    2018), turned round; a difference of two distances is their difference of
    two similarities, so the margin keeps its unit.
    """
    return 1.0 - similarities


DISTANCES = {"euclidean": euclidean, "cosine": cosine}
