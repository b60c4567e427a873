"""Masks of a batch's matching pairs, computed from ids."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.checks import Integers, repr_of_fields
from tbnets.losses.miners import check_as_many, checked_row


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

    __repr__ = repr_of_fields


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
        """Returns the masks `positive` and `excluded` of a `views.View`.

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
