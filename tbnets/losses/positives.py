"""A batch's matching pairs, and the anchors and candidates of each term."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.checks import Integers
from tbnets.losses import replicas
from tbnets.losses.miners import check_as_many, checked_row
from tbnets.losses.presets import TERMS


class PositiveMasks(NamedTuple):
    """Bool masks of a batch's matching pairs, True for a match.

    Attributes:
        image_to_text: `[num_images, num_captions]`.
        text_to_text: `[num_captions, num_captions]`.
        image_to_image: `[num_images, num_images]`.
    """

    image_to_text: tf.Tensor
    text_to_text: tf.Tensor
    image_to_image: tf.Tensor


def positive_masks(
    image_ids: Integers,
    caption_image_ids: Integers,
    text_ids: Integers | None = None,
) -> PositiveMasks:
    """Builds the masks of a batch from integer ids.

    An image matches its captions, and the captions of an image match each
    other. If `text_ids` is set, identical texts match too: an image matches
    copies of its captions, a caption matches its copies, and two images with a
    common text match.

    Args:
        image_ids: Integer `[num_images]`.
        caption_image_ids: Integer `[num_captions]`, ids of the captions'
            images. An image may have any number of captions, including 0.
        text_ids: Optional integer `[num_captions]`, one id per distinct text.

    Raises:
        TypeError: If ids are not integers.
        ValueError: If ids are not one-dimensional.

    Example:
        masks = tbnets.positive_masks([7, 8], [7, 8, 7])
        masks.image_to_text  # [[True, False, True], [False, True, False]]

    Source: the sets of Wang 2018, Eq. 1, 2, 4 and 5; departures: ids define the
    matches, whereas the papers treat each row as a different image. As in Eq.
    5, the positives of a caption are all other captions of its image; the
    authors' code keeps only the farthest one.
    """
    matches = Matches(image_ids, caption_image_ids, text_ids)
    return PositiveMasks(*map(matches.rows, PositiveMasks._fields))


class Matches:
    """Computes some rows of the masks without allocating whole masks.

    The ids are the arguments of `positive_masks`. If the last ids are padding,
    `counts` contains the numbers of images and captions before the padding.
    """

    def __init__(
        self, image_ids, caption_image_ids, text_ids=None, counts=None
    ):
        self.image_ids = checked_row("image_ids", image_ids)
        self.caption_ids = checked_row("caption_image_ids", caption_image_ids)
        num_images = tf.shape(self.image_ids)[0]
        self.counts = counts or (num_images, tf.shape(self.caption_ids)[0])
        self._is_padded = counts is not None
        self.text_ids = None
        if text_ids is not None:
            self.text_ids = checked_row("text_ids", text_ids)
            captions = "caption_image_ids", self.caption_ids
            check_as_many("text_ids", self.text_ids, *captions)
            self._texts = _first_copies(self.text_ids)
            ids = tf.concat([self.image_ids, self.caption_ids], axis=0)
            rows = _first_copies(ids)
            # Captions of images outside the batch share the last number.
            self._owners = tf.minimum(rows[num_images:], num_images)
            self._images = rows[:num_images]

    def rows(self, term, anchors=None):
        """Returns the mask of matches between anchors and all candidates.

        `term` is an element of `presets.TERMS`. `anchors` are int32 rows, or
        None for all rows.
        """
        images, captions, texts = (
            self.image_ids,
            self.caption_ids,
            self.text_ids,
        )
        if term == "text_to_image":
            if texts is None:
                return _equal_pairs(captions, images, anchors)
            return self._describes(_equal_pairs(texts, texts, anchors))
        if term == "text_to_text":
            mask = _equal_pairs(captions, captions, anchors)
            if texts is None:
                return mask
            return mask | _equal_pairs(texts, texts, anchors)
        if term == "image_to_text":
            mask = _equal_pairs(images, captions, anchors)
            return (
                mask if texts is None else _any(mask, self._texts, self._texts)
            )
        mask = _equal_pairs(images, images, anchors)
        if texts is None:
            return mask
        return mask | self._describes(self.rows("image_to_text", anchors))

    def _describes(self, mask):
        """Returns which images have a caption in the rows of a mask.

        Maps bool `[n, num_captions]` to bool `[n, num_images]`.
        """
        return _any(mask, self._owners, self._images)

    def masks(self, term, anchors=None, is_padding=None):
        """Returns the masks `positive` and `excluded` of a `View`.

        `is_padding`, bool `[n]`, is True for anchors that do not count. For
        `term` and `anchors`, see `rows`.
        """
        mask, ignored = self.rows(term, anchors), []
        num_anchors, num_candidates = tf.unstack(tf.shape(mask))
        if anchors is None:
            anchors = tf.range(num_anchors)
        candidates = tf.range(num_candidates)
        sides = term.split("_to_")
        if sides[0] == sides[1]:
            ignored.append(tf.equal(anchors[:, None], candidates))
        if is_padding is not None:
            ignored.append(is_padding[:, None])
        if self._is_padded:
            counts = dict(zip(("image", "text"), self.counts))
            ignored.append((anchors >= counts[sides[0]])[:, None])
            ignored.append(candidates >= counts[sides[1]])
        excluded = mask
        for each in ignored:
            mask, excluded = mask & ~each, excluded | each
        return mask, excluded

    def image_labels(self, images):
        """Returns labels that are equal where an image matches a caption.

        `images` is int32 `[n]`. The shapes of the labels are broadcast.
        """
        if self.text_ids is not None:
            return self.rows("image_to_text", images), tf.constant([[True]])
        image_ids = tf.gather(self.image_ids, images)
        return image_ids[:, None], self.caption_ids[None, :]


def _any(mask, numbers, picked):
    """Returns whether a row has a True column with a number, for each `picked`.

    Args:
        mask: bool `[n, num_columns]`.
        numbers: int32 `[num_columns]`, at most the number of `picked`.
        picked: int32 `[k]`.

    Returns:
        Bool `[n, k]`.
    """
    counts = tf.math.unsorted_segment_sum(
        tf.transpose(tf.cast(mask, tf.int32)), numbers, tf.size(picked) + 1
    )
    return tf.transpose(tf.gather(counts, picked) > 0)


def _first_copies(ids):
    """Returns the first position of each id in `ids`, int32 `[num_ids]`."""
    order, num_ids = tf.argsort(ids), tf.shape(ids)[0]
    ordered = tf.gather(ids, order)
    is_new = tf.not_equal(ordered[1:], ordered[:-1])
    numbers = tf.cumsum(tf.cast(tf.pad(is_new, [[1, 0]]), tf.int32))
    numbers = tf.scatter_nd(order[:, None], numbers[:num_ids], [num_ids])
    first = tf.math.unsorted_segment_min(tf.range(num_ids), numbers, num_ids)
    return tf.gather(first, numbers)


def _equal_pairs(left, right, rows):
    left = left if rows is None else tf.gather(left, rows)
    return tf.equal(left[:, None], right[None, :])


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
