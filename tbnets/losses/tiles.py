"""Computes the loss terms of large batches, a few anchors at a time."""

import tensorflow as tf

from tbnets.losses import replicas
from tbnets.losses.views import View
from tbnets.startup import no_accelerator

# A loss needs several matrices of `4 * num_anchors * num_candidates` bytes.
# Here only the rows of a few anchors exist at a time. Each tile also computes
# its part of the gradient; otherwise the gradient would compute the tile again.

LARGEST = 8192
"""Maximum number of images and of texts that are compared without tiles."""
TILES = {"cpu": 2**23, "accelerator": 2**26}
"""Maximum number of pairs of a tile, if the tile has several anchors."""


def is_large(num_images, num_texts):
    """Returns whether a batch needs tiles; False if either number is None."""
    if num_images is None or num_texts is None:
        return False
    return max(num_images, num_texts) > LARGEST


def sides_of(term, images, texts):
    """Returns the anchors and the candidates of a term."""
    return [{"image": images, "text": texts}[s] for s in term.split("_to_")]


def sums(loss, term, images, texts, matches):
    """Computes `loss.sums` of one term, float32 `[3]`.

    `matches` is the `positives.Matches` of the batch.
    """
    sides = sides_of(term, images, texts)

    @tf.custom_gradient
    def run(anchors, candidates):
        # The tiles must be invisible to the caller's tape: it would keep all
        # intermediate values of loops that a second tape records.
        sides = tf.stop_gradient(anchors), tf.stop_gradient(candidates)
        total, *slopes = _over_tiles(loss, term, *sides, matches)
        return total, lambda upstream: [upstream[0] * x for x in slopes]

    return run(*sides)


def _over_tiles(loss, term, anchors, candidates, matches):
    """Returns (sums, first sum's gradients for anchors and for candidates)."""
    own = replicas.own_rows(tf.range(tf.shape(anchors)[0]))

    def step(tile, total, by_anchors, by_candidates):
        # Sizes are computed in the loop, where XLA knows them.
        num_own, size = _tile_size(own, candidates)
        positions = tile * size + tf.range(size)
        is_padding = positions >= num_own
        rows = tf.gather(own, tf.minimum(positions, num_own - 1))
        with tf.GradientTape() as tape:
            sides = tf.gather(anchors, rows), tf.identity(candidates)
            tape.watch(sides)
            masks = matches.masks(term, rows, is_padding)
            tile_sums = loss.sums({term: View(*sides, *masks)})[term]
        slopes = tape.gradient(
            tile_sums, sides, tf.one_hot(0, 3), unconnected_gradients="zero"
        )
        by_anchors = tf.tensor_scatter_nd_add(
            by_anchors, rows[:, None], slopes[0]
        )
        return (
            tile + 1,
            total + tile_sums,
            by_anchors,
            by_candidates + slopes[1],
        )

    num_own, size = _tile_size(own, candidates)
    start = 0, tf.zeros([3]), tf.zeros_like(anchors), tf.zeros_like(candidates)
    return tf.while_loop(
        lambda tile, *_: tile * size < num_own,
        step,
        start,
        parallel_iterations=1,
    )[1:]


def _tile_size(anchors, candidates):
    """Returns the number of anchors, and the number of anchors per tile."""
    num_anchors = tf.shape(anchors)[0]
    num_candidates = tf.maximum(tf.shape(candidates)[0], 1)
    most = TILES["cpu" if no_accelerator() else "accelerator"]
    most = tf.maximum(most // num_candidates, 1)
    num_tiles = -(-num_anchors // most)
    return num_anchors, -(-num_anchors // tf.maximum(num_tiles, 1))
