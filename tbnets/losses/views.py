"""The anchors, candidates and masks of each loss term."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.losses import replicas
from tbnets.losses.presets import TERMS


class View(NamedTuple):
    """The anchors, candidates and masks of one loss term.

    Attributes:
        anchors: float32 `[num_anchors, embedding_dim]`.
        candidates: float32 `[num_candidates, embedding_dim]`.
        positive: bool `[num_anchors, num_candidates]`, False for the anchor
            itself.
        excluded: bool `[num_anchors, num_candidates]`, True for candidates that
            are not negatives: the positives and the anchor itself.
        weights: float32 `[num_anchors]`, by which the losses of each anchor are
            multiplied, or None. Weights do not affect the counts of triplets.
    """

    anchors: tf.Tensor
    candidates: tf.Tensor
    positive: tf.Tensor
    excluded: tf.Tensor
    weights: tf.Tensor | None = None


def sides_of(term, images, texts):
    """Returns the anchors and the candidates of a term."""
    return [{"image": images, "text": texts}[s] for s in term.split("_to_")]


def batch_views(images, texts, matches, terms=TERMS):
    """Builds a dict from each term to its `View`.

    `matches` is the `positives.Matches` of the batch.
    """
    return {
        term: View(*sides_of(term, images, texts), *matches.masks(term))
        for term in terms
    }


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
    excluded = ~tf.transpose(is_contrast) | is_own
    anchors = tf.gather(regions, region_of)
    itself = tf.eye(num_phrases, dtype=tf.bool)
    excluded_phrases = tf.gather(tf.transpose(excluded), region_of)
    return {
        "image_to_text": View(
            anchors, phrases, itself, excluded_phrases, weights
        ),
        "text_to_image": View(phrases, regions, is_own, excluded, weights),
    }
