"""Losses that classify whether an image and a text match."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.checks import Array, Integers
from tbnets.losses import miners
from tbnets.losses.miners import checked_mask, checked_row
from tbnets.losses.positives import positive_masks

# Sampling of matching and non-matching pairs in a batch.
#
# Like the miners, these functions return indices of a fixed shape and a mask of
# valid entries, propagate no gradient and compile under XLA. The random numbers
# depend only on the caller's seed, so that a resumed run repeats them.


class PairSample(NamedTuple):
    """For each caption, its image, and captions that do not match that image.

    Attributes:
        images: int32 `[num_captions]`, row of the caption's image.
        negatives: int32 `[num_captions, num_candidates]`, rows of captions that
            do not match the image, drawn with replacement.
        valid: bool `[num_captions]`, False if the image is not in the batch or
            matches every caption. Other values of such a row are meaningless.
    """

    images: tf.Tensor
    negatives: tf.Tensor
    valid: tf.Tensor


def random_columns(mask, rows, draws):
    """Picks True columns uniformly at random in the given rows of a mask.

    `mask` is bool `[num_rows, num_columns]`, not empty. `rows` is int32 `[n]`
    with n >= 1; a negative value means no row. `draws` is float32 `[n, k]` and
    contains a random number in [0, 1) for each pick.

    Returns columns, int32 `[n, k]`, and a mask, bool `[n]`, False for rows
    without a True column.
    """
    num_columns = tf.shape(mask)[1]
    flags = tf.cast(mask, tf.int32)
    counts = tf.reduce_sum(flags, axis=1)
    up_to_row = tf.cumsum(counts, exclusive=True)
    # A running count over all rows lets a single search find every pick.
    running = tf.cumsum(tf.reshape(flags, [-1]))
    known = rows >= 0
    rows = tf.maximum(rows, 0)
    eligible = tf.where(known, tf.gather(counts, rows), 0)[:, None]
    picks = tf.cast(draws * tf.cast(eligible, tf.float32), tf.int32)
    # A draw close to 1 may round up to the count.
    picks = tf.minimum(picks, eligible - 1)
    ranks = tf.gather(up_to_row, rows)[:, None] + picks + 1
    positions = tf.searchsorted(running, tf.reshape(ranks, [-1]))
    columns = (
        tf.reshape(positions, tf.shape(ranks)) - rows[:, None] * num_columns
    )
    valid = eligible > 0
    return tf.where(valid, columns, 0), valid[:, 0]


def own_images(image_ids, caption_image_ids):
    """Returns the row of each caption's image, int32 `[num_captions]`.

    The row is the first one with the image's id, or -1 if there is none.
    """
    captions = tf.cast(caption_image_ids, tf.int64)[:, None]
    return miners.first_true(captions == tf.cast(image_ids, tf.int64))


def sample_pairs(
    image_ids: Integers,
    caption_image_ids: Integers,
    text_ids: Integers | None = None,
    *,
    seed: Integers,
    num_candidates: int = 1,
) -> PairSample:
    """Draws non-matching captions for each matching pair of a batch.

    Args:
        image_ids: integer `[num_images]`, at least one.
        caption_image_ids: integer `[num_captions]`, ids of the captions'
            images.
        text_ids: optional integer `[num_captions]`, one id per distinct text.
        seed: int32 `[2]`, for example the run's seed and the step.
        num_candidates: number of captions drawn per pair; the papers use 1.

    Raises:
        TypeError: If ids are not integers.

    Example:
        pairs = tbnets.sample_pairs([7, 8], [7, 8, 7], seed=[0, 1])
        pairs.images  # [0, 1, 0]: the row of the caption's image
        pairs.negatives[0]  # [1], the only caption that is not of image 7

    Source: Wang et al. 2018, Sec. 5.1.
    """
    matches = positive_masks(image_ids, caption_image_ids, text_ids)
    images = own_images(image_ids, caption_image_ids)
    draws = tf.random.stateless_uniform(
        tf.stack([tf.shape(images)[0], num_candidates]), seed, alg="philox"
    )
    negatives, valid = random_columns(~matches.image_to_text, images, draws)
    return PairSample(tf.maximum(images, 0), negatives, valid)


PAIR_LOSSES = ("logistic", "softmax")


class LogisticOutput(NamedTuple):
    """The result of `logistic_loss`; each value is a float32 scalar.

    Attributes:
        total: mean loss of the valid pairs, the value to minimise.
        positive_loss: mean loss of the valid matching pairs, or 0.
        negative_loss: mean loss of the valid non-matching pairs, or 0.
        pair_accuracy: fraction of valid pairs whose logit has the correct sign.
    """

    total: tf.Tensor
    positive_loss: tf.Tensor
    negative_loss: tf.Tensor
    pair_accuracy: tf.Tensor


class SoftmaxOutput(NamedTuple):
    """The result of `softmax_loss`; each value is a float32 scalar.

    Attributes:
        total: mean loss of the lists, the value to minimise.
        ranked_first: fraction of lists whose match has the largest logit; a tie
            counts as an error.
    """

    total: tf.Tensor
    ranked_first: tf.Tensor


def logistic_loss(
    logits: Array, is_match: Array, valid: Array | None = None
) -> LogisticOutput:
    """Computes the logistic loss of pairs that are labelled +1 or -1.

    ::

        log(1 + exp(-z p))

    Here p is a logit and z is a label. If no pair is valid, the loss and its
    gradient are 0.

    Args:
        logits: float `[pairs]`; larger means a better match.
        is_match: bool `[pairs]`; the label z is +1 where True and -1 elsewhere.
        valid: bool `[pairs]`, True for pairs that count; None if all count.

    Raises:
        TypeError: If logits are not numbers.
        ValueError: If a shape is wrong or a mask is not bool.

    Example:
        output = tbnets.logistic_loss([2.0, -1.0], [True, True])
        output.total, output.pair_accuracy  # 0.72, 0.5

    Source: Wang et al. 2018, Eq. 7; departures: the mean over pairs instead of
    the sum.
    """
    logits = checked_row("logits", logits, tf.float32)
    is_match = checked_mask("is_match", is_match, logits.shape)
    if valid is None:
        valid = tf.ones_like(is_match)
    valid = checked_mask("valid", valid, logits.shape)
    logits = tf.where(valid, logits, 0.0)
    labels = tf.where(is_match, 1.0, -1.0)
    values = tf.where(valid, tf.nn.softplus(-labels * logits), 0.0)
    right = tf.cast(labels * logits > 0.0, tf.float32)
    return LogisticOutput(
        total=_mean(values, valid),
        positive_loss=_mean(values, valid & is_match),
        negative_loss=_mean(values, valid & ~is_match),
        pair_accuracy=tf.stop_gradient(_mean(right, valid)),
    )


def softmax_loss(matches, non_matches, valid):
    r"""Computes the softmax loss of lists of a match and several non-matches.

    $$\log\Big(1 + \sum_j \exp(p_j - p)\Big)$$

    Here p is the logit of the match and p_j are the logits of the non-matches.
    Lists without non-matches do not count. If no list counts, the loss and its
    gradient are 0.

    Args:
        matches: float `[lists]`, logits of the matches.
        non_matches: float `[lists, size]`, logits of the non-matches.
        valid: bool `[lists, size]`, False for padding in `non_matches`.

    Source: the likelihood of Cao et al. 2007 (ListNet) with one correct
        document.
    """
    valid = tf.convert_to_tensor(valid)
    counts = tf.reduce_any(valid, axis=1)
    matches = tf.where(counts, tf.cast(matches, tf.float32), 0.0)
    gaps = tf.cast(non_matches, tf.float32) - matches[:, None]
    gaps = tf.where(valid, gaps, float("-inf"))
    # The match itself has gap 0, so no list is empty.
    gaps = tf.pad(gaps, [[0, 0], [1, 0]])
    losses = tf.reduce_logsumexp(gaps, axis=1)
    first = tf.reduce_all(gaps[:, 1:] < 0.0, axis=1)
    return SoftmaxOutput(
        total=_mean(losses, counts),
        ranked_first=_mean(tf.cast(first, tf.float32), counts),
    )


def _mean(values, mask):
    weights = tf.cast(mask, tf.float32)
    total = tf.reduce_sum(values * weights)
    return tf.math.divide_no_nan(total, tf.reduce_sum(weights))
