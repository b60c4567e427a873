"""Logistic losses of pairs: does this text belong to this image?

Of each pair for itself, or of one pair among others: does it fit best?
"""

from typing import NamedTuple

import tensorflow as tf

from tbnets.annotations import Array
from tbnets.losses.checks import checked_mask, checked_row
from tbnets.short_repr import of_fields

PAIR_LOSSES = ("logistic", "softmax")


class LogisticOutput(NamedTuple):
    """What `logistic_loss` returns; every value is a float32 scalar.

    Attributes:
        total: mean over all valid pairs, the value to minimise.
        positive_loss: mean over the valid pairs that match; 0 without any.
        negative_loss: mean over the valid pairs that do not; 0 without any.
        pair_accuracy: share of the valid pairs whose logit has the right sign.
    """

    total: tf.Tensor
    positive_loss: tf.Tensor
    negative_loss: tf.Tensor
    pair_accuracy: tf.Tensor

    __repr__ = of_fields


class SoftmaxOutput(NamedTuple):
    """What `softmax_loss` returns; every value is a float32 scalar.

    Attributes:
        total: mean over the lists, the value to minimise.
        ranked_first: share of the lists whose match has the largest logit;
            one that ties with another is not first.
    """

    total: tf.Tensor
    ranked_first: tf.Tensor

    __repr__ = of_fields


def logistic_loss(
    logits: Array, is_match: Array, valid: Array | None = None
) -> LogisticOutput:
    r"""Computes the logistic loss of pairs, labelled +1 or -1.

    ::

        log(1 + exp(-z p))

    for a logit p and a label z, written as a softplus, which neither
    overflows nor loses small values. Always float32. Without a valid pair the
    loss is 0, and so is its gradient.

    Args:
        logits: float `[pairs]`; larger means a better match.
        is_match: bool `[pairs]`, z is +1 where True, else -1.
        valid: bool `[pairs]`, the pairs that count; None for all.

    Returns:
        A `LogisticOutput`.

    Raises:
        TypeError: logits are no numbers.
        ValueError: a shape is wrong, or what is bool is something else.

    Example:
        output = tbnets.logistic_loss([2.0, -1.0], [True, True])
        output.total, output.pair_accuracy  # 0.72, 0.5

    Source: Wang et al. 2018, Eq. 7; departures: the mean over pairs, where
    the equation sums, so that the size of a batch does not change the rate.
    """
    logits = checked_row("logits", logits, tf.float32, "Give one a pair.")
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


def softmax_loss(matches, others, valid):
    r"""Computes the loss of lists of one match and what stands beside it.

    $$\log\Big(1 + \sum_j \exp(p_j - p)\Big)$$

    for the logit p of the match and those of the others, the negative log of
    the match's share of a softmax. What all logits of a list have in common
    drops out: they are compared with each other alone. Always float32. A list
    without others does not count; without any that does, the loss is 0, and
    so is its gradient.

    Args:
        matches: float `[lists]`; larger means a better match.
        others: float `[lists, size]`, what does not match.
        valid: bool `[lists, size]`, which of the others there are.

    Returns:
        A `SoftmaxOutput`.

    Source: the likelihood of Cao et al. 2007 (ListNet) with one right answer.
    The papers of this package do not have it.
    """
    valid = tf.convert_to_tensor(valid)
    counts = tf.reduce_any(valid, axis=1)
    matches = tf.where(counts, tf.cast(matches, tf.float32), 0.0)
    gaps = tf.cast(others, tf.float32) - matches[:, None]
    gaps = tf.where(valid, gaps, float("-inf"))
    # The match itself, whose gap is 0, keeps each list from being empty.
    gaps = tf.pad(gaps, [[0, 0], [1, 0]])
    losses = tf.reduce_logsumexp(gaps, axis=1)
    first = tf.reduce_all(gaps[:, 1:] < 0.0, axis=1)
    return SoftmaxOutput(
        total=_mean(losses, counts),
        ranked_first=_mean(tf.cast(first, tf.float32), counts),
    )


def _mean(values, mask):
    """Returns the mean of the values under a mask; 0 where it is empty."""
    weights = tf.cast(mask, tf.float32)
    total = tf.reduce_sum(values * weights)
    return tf.math.divide_no_nan(total, tf.reduce_sum(weights))
