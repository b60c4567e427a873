"""Computes the image-text terms of InfoNCE for large batches, in blocks."""

import tensorflow as tf

from tbnets.startup import no_accelerator

# The logits of all pairs are computed in blocks, twice. The first pass computes
# statistics of all rows and columns, such as the log-sum-exp. The second pass
# computes the gradient with respect to the logits,
#
# $$G_{ij} = u_i \exp(x_{ij} - l_i) + v_j \exp(x_{ij} - l_j)
#     - [i \sim j] \Big(\frac{u_i}{|P_i|} + \frac{v_j}{|P_j|}\Big)$$
#
# with the weight u_i and the log-sum-exp l_i of row i, v_j and l_j of column j,
# and multiplies it with the embeddings.

BLOCKS = {"cpu": (2048, 4096), "accelerator": (8192, 8192)}
"""Numbers of images and texts in a block."""
BEST, RIVAL, LOG_SUM, POSITIVES, COUNT = range(5)
"""Statistics of an anchor: its largest positive and negative logit, the
log-sum-exp of its logits, and the sum and number of its positive logits."""
INF = float("inf")
LAST = 2**31 - 1


def sums(images, texts, matches, temperature, dtype="float32"):
    """Computes the sums of the terms `image_to_text` and `text_to_image`.

    `matches` is the `positives.Matches` of the batch. Embeddings are multiplied
    in `dtype`. Returns float32 `[2, 3]`: for each term, the sum of the losses,
    the number of anchors, and the number of anchors whose closest candidate is
    wrong.
    """

    @tf.custom_gradient
    def run(images, texts):
        blocks = _Blocks(images, texts, matches, temperature, dtype)
        statistics = blocks.statistics()

        def gradient(upstream):
            return blocks.slopes(statistics, upstream[:, 0])

        return tf.stack([_sums(each) for each in statistics]), gradient

    return run(images, texts)


def _sums(statistics):
    counts = _counts(statistics)
    means = tf.math.divide_no_nan(statistics[POSITIVES], statistics[COUNT])
    losses = tf.where(counts, statistics[LOG_SUM] - means, 0.0)
    wrong = counts & ~(statistics[BEST] > statistics[RIVAL])
    parts = losses, tf.cast(counts, tf.float32), tf.cast(wrong, tf.float32)
    return tf.stack([tf.reduce_sum(part) for part in parts])


def _counts(statistics):
    """Returns a mask of anchors that have both a positive and a negative."""
    return (statistics[COUNT] > 0) & tf.not_equal(statistics[RIVAL], -INF)


class _Blocks:
    """The logits of all pairs, computed one block at a time."""

    def __init__(self, images, texts, matches, temperature, dtype):
        self._temperature, self._matches = temperature, matches
        self._size = BLOCKS["cpu" if no_accelerator() else "accelerator"]
        self._sizes = tf.shape(images)[0], tf.shape(texts)[0]
        self._counts = matches.counts
        scaled = images / temperature, texts
        scaled = [tf.cast(rows, dtype) for rows in scaled]
        self._sides = [self._split(rows, 0, i) for i, rows in enumerate(scaled)]
        # A block without matches or padding needs no masks: the numbers of its
        # images and texts do not overlap. Padding overlaps all numbers.
        images, first, last = matches.numbers()
        self._bounds = []
        for padding, sides in (
            (-1, (images, first)),
            (LAST, (images, last)),
        ):
            bounds = []
            for i, (rows, count) in enumerate(zip(sides, self._counts)):
                exists = tf.range(tf.shape(rows)[0]) < count
                rows = tf.where(exists, rows, padding)
                bounds.append(self._split(rows, padding, i))
            self._bounds.append(bounds)

    def _split(self, rows, value, side):
        size = self._size[side]
        padding = -tf.shape(rows)[0] % size
        paddings = [[0, padding], *[[0, 0]] * (len(rows.shape) - 1)]
        padded = tf.pad(rows, paddings, constant_values=value)
        return tf.reshape(padded, [-1, size, *rows.shape[1:]])

    def _over(self, visit, state):
        """Applies `visit(block, *state)` to each block (row, column)."""
        num_rows, num_columns = (tf.shape(side)[0] for side in self._sides)

        def step(number, *state):
            block = number // num_columns, number % num_columns
            return number + 1, *visit(block, *state)

        return tf.while_loop(
            lambda number, *_: number < num_rows * num_columns,
            step,
            (0, *state),
            parallel_iterations=1,
        )[1:]

    def _on_block(self, block, function, *arguments):
        """Calls `function(logits, masks, *arguments)` for a block.

        `masks` is None, or (matching pairs, pairs that are not padding).
        """
        logits = tf.matmul(*self._of(self._sides, block), transpose_b=True)
        logits = tf.cast(logits, tf.float32)
        first, last = (self._of(bounds, block) for bounds in self._bounds)
        may_match = (tf.reduce_min(first[0]) <= tf.reduce_max(last[1])) & (
            tf.reduce_max(last[0]) >= tf.reduce_min(first[1])
        )
        return tf.cond(
            may_match,
            lambda: function(logits, self._masks(block), *arguments),
            lambda: function(logits, None, *arguments),
        )

    @staticmethod
    def _of(sides, block):
        return [side[i] for side, i in zip(sides, block)]

    def _masks(self, block):
        rows, exists = [], []
        for number, size, count in zip(block, self._size, self._counts):
            positions = number * size + tf.range(size)
            exists.append(positions < count)
            rows.append(tf.minimum(positions, count - 1))
        exists = exists[0][:, None] & exists[1][None, :]
        return self._matches.rows("image_to_text", *rows) & exists, exists

    def statistics(self):
        """Returns the statistics of images and of texts, `[5, n]` each."""

        def visit(block, *statistics):
            added = self._on_block(block, _block_statistics)
            return [
                tf.tensor_scatter_nd_update(
                    old, [[i]], _merged(tf.gather(old, i), new)[None]
                )
                for old, new, i in zip(statistics, added, block)
            ]

        nothing = tf.constant([-INF, -INF, -INF, 0.0, 0.0])[None, :, None]
        start = [
            tf.tile(nothing, [tf.shape(side)[0], 1, size])
            for side, size in zip(self._sides, self._size)
        ]
        statistics = self._over(visit, start)
        return [
            tf.reshape(tf.transpose(each, [1, 0, 2]), [5, -1])[:, :size]
            for each, size in zip(statistics, self._sizes)
        ]

    def slopes(self, statistics, upstream):
        """Returns the gradients with respect to the images and the texts.

        `upstream`, float32 `[2]`, is the gradient with respect to the sums.
        """
        weights = []
        for i, each in enumerate(statistics):
            counts = _counts(each)
            weight = tf.where(counts, upstream[i], 0.0)
            parts = (
                tf.where(counts, each[LOG_SUM], INF),
                weight,
                tf.math.divide_no_nan(weight, each[COUNT]),
            )
            weights.append(self._split(tf.stack(parts, axis=1), 0.0, i))

        def visit(block, *slopes):
            of_logits = self._on_block(
                block, _block_slopes, *self._of(weights, block)
            )
            images, texts = self._of(self._sides, block)
            of_logits = tf.cast(of_logits, images.dtype)
            # The gradient of the texts is transposed, which is faster.
            added = (
                tf.matmul(of_logits, texts),
                tf.matmul(images, of_logits, transpose_a=True),
            )
            return [
                tf.tensor_scatter_nd_add(
                    old, [[i]], tf.cast(new, tf.float32)[None]
                )
                for old, new, i in zip(slopes, added, block)
            ]

        images, texts = (
            tf.zeros_like(side, tf.float32) for side in self._sides
        )
        start = images, tf.transpose(texts, [0, 2, 1])
        images, texts = self._over(visit, start)
        images, texts = (
            tf.reshape(each, [-1, tf.shape(each)[2]])[:size]
            for each, size in zip(
                (images / self._temperature, tf.transpose(texts, [0, 2, 1])),
                self._sizes,
            )
        )
        return images, texts


def _merged(old, new):
    log_sums = tf.stack([old[LOG_SUM], new[LOG_SUM]])
    return tf.concat(
        [
            tf.maximum(old[:LOG_SUM], new[:LOG_SUM]),
            tf.reduce_logsumexp(log_sums, axis=0, keepdims=True),
            old[POSITIVES:] + new[POSITIVES:],
        ],
        axis=0,
    )


# XLA merges the elementwise operations, which otherwise take as long as the
# products. Blocks of one size are compiled once.
@tf.function(jit_compile=True, autograph=False)
def _block_statistics(logits, masks):
    """Returns the statistics of a block's rows and columns, `[5, n]` each."""
    return [_statistics(logits, masks, axis) for axis in (1, 0)]


def _statistics(logits, masks, axis):
    if masks is None:
        rival = tf.reduce_max(logits, axis)
        shifted = tf.exp(logits - tf.expand_dims(rival, axis))
        log_sum = rival + tf.math.log(tf.reduce_sum(shifted, axis))
        nothing = tf.zeros_like(rival)
        return tf.stack([nothing - INF, rival, log_sum, nothing, nothing])
    positive, exists = masks
    best, rival = (
        tf.reduce_max(tf.where(mask, logits, -INF), axis)
        for mask in (positive, exists & ~positive)
    )
    largest = tf.maximum(tf.maximum(best, rival), logits.dtype.min)
    shifted = tf.exp(logits - tf.expand_dims(largest, axis))
    total = tf.reduce_sum(tf.where(exists, shifted, 0.0), axis)
    return tf.stack(
        [
            best,
            rival,
            largest + tf.math.log(total),
            tf.reduce_sum(tf.where(positive, logits, 0.0), axis),
            tf.reduce_sum(tf.cast(positive, tf.float32), axis),
        ]
    )


@tf.function(jit_compile=True, autograph=False)
def _block_slopes(logits, masks, rows, columns):
    """Returns the gradient with respect to a block's logits.

    `rows` and `columns` are `[n, 3]`: each anchor's log-sum-exp, the weight of
    its loss, and this weight per positive.
    """
    slopes, targets = 0.0, 0.0
    for side, axis in ((rows, 1), (columns, 0)):
        log_sum, weight, target = (
            tf.expand_dims(each, axis) for each in tf.unstack(side, axis=1)
        )
        slopes += weight * tf.exp(logits - log_sum)
        targets += target
    if masks is None:
        return slopes
    positive, exists = masks
    slopes = tf.where(exists, slopes, 0.0)
    return slopes - tf.where(positive, targets, 0.0)
