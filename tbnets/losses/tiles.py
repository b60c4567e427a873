"""Computes the loss terms of large batches, a few anchors at a time."""

import tensorflow as tf

from tbnets.losses import replicas
from tbnets.losses.positives import View, sides_of
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


def over_tiles(visit, rows, candidates, state, num_tiles=1):
    """Calls `visit(tile_rows, is_padding, *state)` for a few rows at a time.

    `visit` returns the next state. All tiles have the same size: the last tile
    may repeat a row, for which `is_padding` is True.

    Args:
        visit: function of int32 `[size]`, bool `[size]` and the state.
        rows: int32 `[n]`, the rows of the anchors.
        candidates: `[num_candidates, ...]`, compared with each tile.
        state: sequence of tensors.
        num_tiles: size of a tile, in units of `TILES`.
    """

    def step(tile, *state):
        # Sizes are computed in the loop, where XLA knows them.
        num_rows, size = _tile_size(rows, candidates, num_tiles)
        positions = tile * size + tf.range(size)
        tile_rows = tf.gather(rows, tf.minimum(positions, num_rows - 1))
        return tile + 1, *visit(tile_rows, positions >= num_rows, *state)

    num_rows, size = _tile_size(rows, candidates, num_tiles)
    return tf.while_loop(
        lambda tile, *_: tile * size < num_rows,
        step,
        (0, *state),
        parallel_iterations=1,
    )[1:]


def _tile_size(rows, candidates, num_tiles):
    """Returns the number of rows, and the number of rows per tile."""
    num_rows = tf.shape(rows)[0]
    num_candidates = tf.maximum(tf.shape(candidates)[0], 1)
    most = num_tiles * TILES["cpu" if no_accelerator() else "accelerator"]
    most = tf.maximum(most // num_candidates, 1)
    count = -(-num_rows // most)
    return num_rows, -(-num_rows // tf.maximum(count, 1))


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
        total, *slopes = _sums_and_slopes(loss, term, *sides, matches)
        return total, lambda upstream: [upstream[0] * x for x in slopes]

    return run(*sides)


def _sums_and_slopes(loss, term, anchors, candidates, matches):
    """Returns (sums, first sum's gradients for anchors and for candidates)."""

    def visit(rows, is_padding, total, by_anchors, by_candidates):
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
        return total + tile_sums, by_anchors, by_candidates + slopes[1]

    own = replicas.own_rows(tf.range(tf.shape(anchors)[0]))
    start = tf.zeros([3]), tf.zeros_like(anchors), tf.zeros_like(candidates)
    return over_tiles(visit, own, candidates, start)
