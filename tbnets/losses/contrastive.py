r"""The contrastive loss of pairs of a phrase and a region, each weighted.

$$L = \sum_k w_k \Big( \sum_l [m - v_k^\top h_k + v_k^\top h_l]_+
    + \sum_l [m - h_k^\top v_k + h_k^\top v_l]_+ \Big)$$

over the pairs (v_k, h_k) of a region and a phrase; h_l and v_l are the
phrases and regions that the pair is contrasted with. It is a `TripletLoss`
whose anchors have weights, so that any of its distances, reductions and
choices of negatives may be taken, or any other `RankingLoss`.
"""

import tensorflow as tf

from tbnets.losses.hinges import View


def pair_views(regions, phrases, region_of, is_contrast, weights):
    """Builds the views in which pairs are ranked, for `RankingLoss.of_views`.

    Every phrase makes one pair with its region; a region may be in several,
    and in each it is an anchor of its own.

    Args:
        regions: float32 `[num_regions, embedding_dim]`.
        phrases: float32 `[num_phrases, embedding_dim]`.
        region_of: int32 `[num_phrases]`, row of the region of each phrase.
        is_contrast: bool `[num_regions, num_phrases]`, which of them are
            contrasted: False where they might belong together.
        weights: float32 `[num_phrases]`, of each pair.

    Returns:
        Dict of two `hinges.View`s by term: in `image_to_text` the region of
        each pair ranks phrases, in `text_to_image` its phrase ranks regions.

    Source: Niu et al. 2017, Eq. 9-10; departures: what is contrasted is told
    from outside, where the paper does not say which phrases and regions are.
    """
    num_regions, num_phrases = tf.unstack(tf.shape(is_contrast))
    own = tf.equal(region_of[:, None], tf.range(num_regions)[None, :])
    others = ~tf.transpose(is_contrast) | own
    anchors = tf.gather(regions, region_of)
    itself = tf.eye(num_phrases, dtype=tf.bool)
    of_anchors = tf.gather(tf.transpose(others), region_of)
    return {
        "image_to_text": View(anchors, phrases, itself, of_anchors, weights),
        "text_to_image": View(phrases, regions, own, others, weights),
    }
