"""The anchors, candidates and masks of each loss term."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.losses import replicas


class View(NamedTuple):
    """The anchors, candidates and masks of one loss term.

    Attributes:
        anchors: float32 `[num_anchors, embedding_dim]`.
        candidates: float32 `[num_candidates, embedding_dim]`.
        positive: bool `[num_anchors, num_candidates]`, False for the anchor
            itself.
        not_negative: bool `[num_anchors, num_candidates]`, True for the
            positives and the anchor itself.
        weights: float32 `[num_anchors]`, by which the losses of each anchor are
            multiplied, or None. Weights do not affect the counts of triplets.
    """

    anchors: tf.Tensor
    candidates: tf.Tensor
    positive: tf.Tensor
    not_negative: tf.Tensor
    weights: tf.Tensor | None = None


def batch_views(images, texts, masks):
    """Builds a dict from each term of `TERMS` to its `View`.

    `masks` are the fields of `PositiveMasks`.
    """
    cross, text_mask, image_mask = (tf.convert_to_tensor(m) for m in masks)
    transposed = tf.transpose(cross)
    return {
        "image_to_text": View(images, texts, cross, cross),
        "text_to_image": View(texts, images, transposed, transposed),
        "text_to_text": _within(texts, text_mask),
        "image_to_image": _within(images, image_mask),
    }


def _within(rows, mask):
    itself = tf.ones(tf.shape(mask)[:1], tf.bool)
    positive = tf.linalg.set_diag(mask, tf.logical_not(itself))
    return View(rows, rows, positive, tf.linalg.set_diag(mask, itself))


def own_anchors(view):
    """Restricts a `View` to this replica's anchors."""
    cut = {
        name: replicas.own_rows(rows)
        for name, rows in view._asdict().items()
        if name != "candidates" and rows is not None
    }
    return view._replace(**cut)


# The contrastive loss of weighted phrase-region pairs.
#
# $$L = \sum_k w_k \Big( \sum_l [m - v_k^\top h_k + v_k^\top h_l]_+
#     + \sum_l [m - h_k^\top v_k + h_k^\top v_l]_+ \Big)$$
#
# over the pairs (v_k, h_k) of a region and a phrase; h_l and v_l are the
# negative phrases and regions. `TripletLoss` with weighted anchors computes
# this loss. Any other `RankingLoss` can replace it.


def pair_views(regions, phrases, region_of, is_contrast, weights):
    """Builds the views in which regions and phrases rank each other.

    A region in several pairs is a separate anchor in each pair.

    Args:
        regions: float32 `[num_regions, embedding_dim]`.
        phrases: float32 `[num_phrases, embedding_dim]`.
        region_of: int32 `[num_phrases]`, row of the phrase's region.
        is_contrast: bool `[num_regions, num_phrases]`, True for negative pairs.
        weights: float32 `[num_phrases]`, weights of the pairs.

    Returns:
        Dict of two `View`s: regions rank phrases in `image_to_text`, and
        phrases rank regions in `text_to_image`.

    Source: Niu et al. 2017, Eq. 9-10; departures: the caller chooses the
    negative pairs, which the paper does not specify.
    """
    num_regions, num_phrases = tf.unstack(tf.shape(is_contrast))
    is_own = tf.equal(region_of[:, None], tf.range(num_regions)[None, :])
    not_negative = ~tf.transpose(is_contrast) | is_own
    anchors = tf.gather(regions, region_of)
    itself = tf.eye(num_phrases, dtype=tf.bool)
    of_anchors = tf.gather(tf.transpose(not_negative), region_of)
    return {
        "image_to_text": View(anchors, phrases, itself, of_anchors, weights),
        "text_to_image": View(phrases, regions, is_own, not_negative, weights),
    }
