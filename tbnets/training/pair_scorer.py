"""Scores pairs with a network whose similarity is learned, tile by tile."""

import numpy as np
import tensorflow as tf

from tbnets.evaluation.score_tiles import (
    PAIRS_AT_ONCE,
    PairScores,
    compare_all,
)


class PairScorer:
    """Turns embeddings into `PairScores` by a network's head.

    The branches have run once for each image and each text; what is left is
    the head, once for each pair. Its graphs are traced once.

    Args:
        network: a built `SimilarityNetwork`.
        memory_limit_mb: MiB for the rows of the pairs in work.
    """

    def __init__(self, network, memory_limit_mb=512):
        rows = tf.TensorSpec((None, network.embedding_dim), tf.float32)
        self._tile, self._pairs = (
            tf.function(compare, input_signature=[rows, rows])
            for compare in (network.similarities, network.judge)
        )
        width = 2 * network.embedding_dim + sum(network.head.units)
        fitting = int(memory_limit_mb * 2**20) // (4 * width)
        self.pairs_at_once = max(1, min(PAIRS_AT_ONCE, fitting))

    def scores(self, image_embeddings, text_embeddings):
        """Returns the `PairScores` of images and texts.

        Args:
            image_embeddings: float32 `[n, embedding_dim]`.
            text_embeddings: float32 `[m, embedding_dim]`.
        """

        def tile(image_rows, text_rows):
            sides = image_embeddings[image_rows], text_embeddings[text_rows]
            return compare_all(self._tile, *sides, self.pairs_at_once)

        def pairs(image_rows, text_rows):
            sides = image_rows, text_rows
            cut = [_cut(rows, self.pairs_at_once) for rows in sides]
            found = [
                self._pairs(image_embeddings[i], text_embeddings[j])
                for i, j in zip(*cut)
            ]
            return np.concatenate(found)

        sizes = len(image_embeddings), len(text_embeddings)
        return PairScores(*sizes, tile, pairs)


def _cut(rows, size):
    """Returns rows in pieces; at least one, which may be empty."""
    starts = range(0, len(rows) or 1, size)
    return [rows[start : start + size] for start in starts]
