"""Distances between unit vectors, computed from their inner products.

Losses select pairs by similarity (inner product) and compute distances only for
selected pairs. A smaller distance means a closer pair.
"""

import tensorflow as tf


def similarities(queries, candidates):
    """Computes all inner products of queries and candidates.

    Args:
        queries: Float `[num_queries, embedding_dim]`. Half precision is cast to
            float32 before the product.
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
    r"""Computes Euclidean distances from inner products of unit vectors.

    $$d(x, y) = \lVert x - y \rVert = \sqrt{2 - 2 x^\top y}$$

    No constant is added under the root; it would bias small distances. The
    gradient at distance 0 is defined as 0, hence finite. NaN remains NaN.

    Args:
        similarities: float32, any shape, inner products of unit vectors.
            Values that rounding puts above 1 count as 1.

    Returns:
        float32 in `[0, 2]`, shaped like `similarities`.

    Source: Wang et al. 2018, Sec. 3.2.1; departures: none.
    """
    squares = 2.0 - 2.0 * similarities
    coincide = squares <= 0.0
    roots = tf.sqrt(tf.where(coincide, tf.ones_like(squares), squares))
    return tf.where(coincide, tf.zeros_like(squares), roots)


def cosine(similarities):
    r"""Computes cosine distances from inner products of unit vectors.

    $$d(x, y) = 1 - x^\top y$$

    Args:
        similarities: float32, any shape, inner products of unit vectors.

    Returns:
        float32 in `[0, 2]`, shaped like `similarities`.

    Source: 1 minus the similarity of Kiros et al. 2014 and VSE++ (Faghri et al.
    2018). Differences of distances equal differences of similarities, so the
    margin keeps its unit.
    """
    return 1.0 - similarities


DISTANCES = {"euclidean": euclidean, "cosine": cosine}
