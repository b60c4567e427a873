r"""InfoNCE: a softmax loss over a batch, with any number of positives.

$$L = \sum_t \lambda_t \frac{1}{|A_t|} \sum_{a \in A_t}
    \frac{1}{|P_a|} \sum_{p \in P_a} -\log \frac{\exp(a^\top p / \tau)}
    {\sum_{c \in P_a \cup N_a} \exp(a^\top c / \tau)}$$

Here t is a term of a `RankingLoss`, A_t are its anchors, and P_a and N_a are
the positives and negatives of anchor a. Anchor weights multiply the losses, but
do not change |A_t|.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.losses import tiles
from tbnets.losses.positives import Matches
from tbnets.losses.presets import CROSS_TERMS
from tbnets.losses.ranking import RankingLoss
from tbnets.losses.replicas import num_replicas

SMALLEST = 1e-6
"""Minimum temperature; the softmax overflows below it."""


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(eq=False)
class InfoNCELoss(RankingLoss):
    """Softmax loss over the candidates in a batch; ids define the positives.

    The candidates of an anchor are its positives and negatives, never the
    anchor itself. The loss of a positive is the negative log of its softmax
    probability among the candidates, with inner products divided by the
    temperature. The loss of an anchor is the mean over its positives.

    A term is the mean over anchors with at least one positive and one negative.
    If there is no such anchor, the term and its gradient are 0.
    `active_fraction` is the fraction of these anchors whose closest candidate
    is not a positive; ties count as errors.

    XLA can compile the loss. To save memory, a batch with more than 8192 images
    or texts is compared in tiles.

    Example:
        network.compile("adam", tbnets.InfoNCELoss(temperature=0.05))

    Args:
        temperature: Divisor of the similarities, at least 1e-6 (0.07 in Wu
            2018, and CLIP's initial value).
        term_weights: Mapping from a term in `TERMS` to its non-negative weight.
            Missing terms are not computed. In CLIP, `image_to_text` and
            `text_to_image` have weight 0.5.
        similarity_dtype: "float32", or "bfloat16" for similarities that are
            less exact, but faster on accelerators.

    Source: van den Oord et al. 2018, Eq. 4, in both directions as in Radford et
    al. 2021 (CLIP), Fig. 3; several positives as in Khosla et al. 2020, Eq. 2.
    Departures: ids define the matches; in CLIP, row i matches column i.
    """

    temperature: float = 0.07
    term_weights: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(CROSS_TERMS, 0.5)
    )
    similarity_dtype: str = "float32"

    def __post_init__(self):
        self.temperature = checked_number(
            "temperature", self.temperature, SMALLEST
        )
        super().__post_init__()

    def scores(self, anchors: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
        """Returns the logits, the inner products divided by the temperature."""
        sides = (
            tf.cast(rows, self.similarity_dtype)
            for rows in (anchors, candidates)
        )
        matrix = tf.cast(tf.matmul(*sides, transpose_b=True), tf.float32)
        return matrix / self.temperature

    def anchor_losses(
        self, scores: tf.Tensor, positive: tf.Tensor, negative: tf.Tensor
    ) -> tf.Tensor:
        """Computes the losses of the anchors of one term."""
        num_positives = tf.reduce_sum(tf.cast(positive, tf.float32), axis=1)
        logits = tf.where(positive | negative, scores, float("-inf"))
        log_sums = tf.reduce_logsumexp(logits, axis=1)
        sums = tf.reduce_sum(tf.where(positive, scores, 0.0), axis=1)
        return log_sums - tf.math.divide_no_nan(sums, num_positives)

    def sums_in_tiles(
        self,
        terms: Sequence[str],
        images: tf.Tensor,
        texts: tf.Tensor,
        matches: Matches,
    ) -> dict[str, tf.Tensor]:
        """Computes `sums`; both terms of images and texts share their tiles."""
        cross = [term for term in terms if term in CROSS_TERMS]
        if len(cross) < 2 or num_replicas() > 1:
            return super().sums_in_tiles(terms, images, texts, matches)
        sums = _cross_sums(self, images, texts, matches)
        tail = [term for term in terms if term not in CROSS_TERMS]
        others = super().sums_in_tiles(tail, images, texts, matches)
        return dict(zip(CROSS_TERMS, tf.unstack(sums))) | others


# The terms `image_to_text` and `text_to_image` of large batches. A tile
# compares a few images with all texts, so it has the whole softmax of its
# images, and a part of the softmax of each text. A first pass over the tiles
# therefore carries statistics of the texts from tile to tile. A second pass
# computes the gradient with respect to the logits,
#
# $$G_{ij} = u_i \frac{\exp(x_{ij} - m_i)}{s_i}
#     + v_j \frac{\exp(x_{ij} - m_j)}{s_j}
#     - [i \sim j] \Big(\frac{u_i}{|P_i|} + \frac{v_j}{|P_j|}\Big)$$
#
# with the weight u_i of image i, the maximum m_i of its logits and the sum s_i
# of their exponentials (v_j, m_j and s_j of text j), and multiplies it with the
# embeddings.

LARGEST, EXPONENTIALS, RIVAL, POSITIVES, COUNT = range(5)
"""Statistics of an anchor: its largest logit; the sum of exponentials, relative
to the largest; its largest negative logit; the sum and number of its positive
logits."""
_NUM_TILES = 2
"""Size of a tile in `tiles.TILES`. Only two arrays of this size exist."""
_INF = float("inf")


def _cross_sums(loss, images, texts, matches):
    """Computes the sums of both terms between images and texts, `[2, 3]`."""
    # As a Python number, XLA would multiply by its inverse.
    temperature = tf.constant(loss.temperature)
    counts, dtype = matches.counts, loss.similarity_dtype
    text_exists = tf.range(tf.shape(texts)[0]) < counts[1]

    def tile(sides, rows, is_padding):
        anchors = tf.gather(sides[0], rows)
        products = tf.matmul(anchors, sides[1], transpose_b=True)
        exists = ~is_padding & (rows < counts[0])
        exists = exists[:, None] & text_exists[None, :]
        labels = matches.image_labels(rows)
        return anchors, (products, *labels, exists, temperature)

    def statistics(sides):
        def visit(rows, is_padding, per_image, per_text):
            added = _tile_statistics(*tile(sides, rows, is_padding)[1])
            own = tf.transpose(tf.where(is_padding, 0.0, added[0]))
            per_image = tf.tensor_scatter_nd_add(per_image, rows[:, None], own)
            return per_image, _merged(per_text, added[1])

        zeros = tf.zeros([tf.shape(sides[0])[0], 5])
        empty = tf.constant([tf.float32.min, 0, -_INF, 0, 0])[:, None]
        empty = tf.tile(empty, [1, tf.shape(sides[1])[0]])
        per_image, per_text = _over_images(visit, sides, (zeros, empty))
        return tf.transpose(per_image), per_text

    def slopes(sides, weights):
        def visit(rows, is_padding, by_images, by_texts):
            anchors, arguments = tile(sides, rows, is_padding)
            own = tf.gather(weights[0], rows, axis=1)
            by_logits = _tile_slopes(*arguments, own, weights[1])
            by_logits = tf.cast(by_logits, dtype)
            added = tf.cast(tf.matmul(by_logits, sides[1]), tf.float32)
            by_images = tf.tensor_scatter_nd_add(
                by_images, rows[:, None], added
            )
            # The gradient of the texts is transposed, which is faster.
            added = tf.matmul(anchors, by_logits, transpose_a=True)
            return by_images, by_texts + tf.cast(added, tf.float32)

        start = [tf.zeros_like(side, tf.float32) for side in sides]
        start[1] = tf.transpose(start[1])
        by_images, by_texts = _over_images(visit, sides, start)
        return by_images / temperature, tf.transpose(by_texts) / temperature

    @tf.custom_gradient
    def run(images, texts):
        sides = tf.cast(images, dtype), tf.cast(texts, dtype)
        both = statistics(sides)

        def gradient(upstream):
            weights = map(_weights, both, tf.unstack(upstream[:, 0], 2))
            return slopes(sides, [*weights])

        return tf.stack([_sums(each) for each in both]), gradient

    return run(images, texts)


def _over_images(visit, sides, state):
    rows = tf.range(tf.shape(sides[0])[0])
    return tiles.over_tiles(visit, rows, sides[1], state, _NUM_TILES)


def _counts(statistics):
    """Returns a mask of anchors that have both a positive and a negative."""
    return (statistics[COUNT] > 0) & tf.not_equal(statistics[RIVAL], -_INF)


def _sums(statistics):
    counts = _counts(statistics)
    means = tf.math.divide_no_nan(statistics[POSITIVES], statistics[COUNT])
    logs = statistics[LARGEST] + tf.math.log(statistics[EXPONENTIALS])
    losses = tf.where(counts, logs - means, 0.0)
    # The largest logit is that of a positive if no negative has it.
    wrong = counts & ~(statistics[LARGEST] > statistics[RIVAL])
    parts = losses, tf.cast(counts, tf.float32), tf.cast(wrong, tf.float32)
    return tf.stack([tf.reduce_sum(part) for part in parts])


def _weights(statistics, upstream):
    """Returns m, u / s and u / |P| of each anchor, `[3, n]`."""
    weight = tf.where(_counts(statistics), upstream, 0.0)
    divisors = statistics[EXPONENTIALS], statistics[COUNT]
    shares = [tf.math.divide_no_nan(weight, each) for each in divisors]
    return tf.stack([statistics[LARGEST], *shares])


def _merged(old, new):
    """Merges statistics of the same texts over different images."""
    largest = tf.maximum(old[LARGEST], new[LARGEST])
    exponentials = tf.add_n(
        [s[EXPONENTIALS] * tf.exp(s[LARGEST] - largest) for s in (old, new)]
    )
    rival = tf.maximum(old[RIVAL], new[RIVAL])
    merged = tf.stack([largest, exponentials, rival])
    return tf.concat([merged, old[POSITIVES:] + new[POSITIVES:]], axis=0)


def _logits(products, left, right, exists, temperature):
    """Returns the logits of a tile, -inf for padding, and the matching pairs.

    Pairs with equal labels, `left` and `right`, match.
    """
    logits = tf.cast(products, tf.float32) / temperature
    matching = tf.equal(left, right) & exists
    return tf.where(exists, logits, -_INF), matching


# XLA merges the elementwise operations, which otherwise take as long as the
# products. Tiles of one size are compiled once.
@tf.function(jit_compile=True, autograph=False)
def _tile_statistics(*tile):
    """Returns the statistics of a tile's images and texts, `[5, n]` each."""
    logits, matching = _logits(*tile)
    both = []
    for axis in (1, 0):
        largest = tf.reduce_max(logits, axis, keepdims=True)
        largest = tf.maximum(largest, logits.dtype.min)
        statistics = (
            tf.squeeze(largest, axis),
            tf.reduce_sum(tf.exp(logits - largest), axis),
            tf.reduce_max(tf.where(matching, -_INF, logits), axis),
            tf.reduce_sum(tf.where(matching, logits, 0.0), axis),
            tf.reduce_sum(tf.cast(matching, tf.float32), axis),
        )
        both.append(tf.stack(statistics))
    return both


@tf.function(jit_compile=True, autograph=False)
def _tile_slopes(*arguments):
    """Returns the gradient with respect to a tile's logits.

    The last two arguments are the `_weights` of its images and its texts.
    """
    *tile, images, texts = arguments
    logits, matching = _logits(*tile)
    slopes, targets = 0.0, 0.0
    for weights, axis in ((images, 1), (texts, 0)):
        largest, share, target = (
            tf.expand_dims(each, axis) for each in tf.unstack(weights)
        )
        slopes += share * tf.exp(logits - largest)
        targets += target
    return slopes - tf.where(matching, targets, 0.0)
