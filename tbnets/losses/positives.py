"""Masks of a batch's matching pairs, computed from ids."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.checks import Integers, of_fields
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

    __repr__ = of_fields


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
        self.counts = counts or (
            tf.shape(self.image_ids)[0],
            tf.shape(self.caption_ids)[0],
        )
        self._is_padded = counts is not None
        self.text_ids, self._copies = None, None
        if text_ids is not None:
            self.text_ids = checked_row("text_ids", text_ids)
            captions = "caption_image_ids", self.caption_ids
            check_as_many("text_ids", self.text_ids, *captions)
            self._copies = _Copies(self.text_ids)

    def rows(self, term, anchors=None, candidates=None):
        """Returns the mask of matches between anchors and candidates.

        `term` is an element of `presets.TERMS`. `anchors` and `candidates` are
        int32 rows, or None for all rows. Terms within a view ignore
        `candidates`.
        """
        if term == "image_to_text":
            images = _picked(self.image_ids, anchors)
            return self._any_copy(
                lambda owners: _equal_pairs(images, _picked(owners, candidates))
            )
        if term == "text_to_image":
            images = _picked(self.image_ids, candidates)
            return self._any_copy(
                lambda owners: _equal_pairs(_picked(owners, anchors), images)
            )
        ids = self.caption_ids if term == "text_to_text" else self.image_ids
        mask = _equal_pairs(_picked(ids, anchors), ids)
        if self.text_ids is None:
            return mask
        if term == "text_to_text":
            texts = _picked(self.text_ids, anchors)
            return mask | _equal_pairs(texts, self.text_ids)
        return mask | self._share_text(anchors)

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
        if self._copies is not None:
            return self.rows("image_to_text", images), tf.constant([[True]])
        image_ids = tf.gather(self.image_ids, images)
        return image_ids[:, None], self.caption_ids[None, :]

    def _any_copy(self, compare):
        """Returns the mask of images that match a caption or a copy of it.

        `compare(owners)` returns the mask for `owners`, the image id of each
        caption.
        """
        if self._copies is None:
            return compare(self.caption_ids)

        def of_copies(number):
            copies = self._copies.numbered(number)
            return compare(tf.gather(self.caption_ids, copies))

        _, mask = tf.while_loop(
            lambda number, mask: number < self._copies.most,
            lambda number, mask: (number + 1, mask | of_copies(number)),
            (1, of_copies(0)),
        )
        return mask

    def _share_text(self, images):
        """Returns which images have a common text, bool `[n, num_images]`."""
        num_images = tf.shape(self.image_ids)[0]
        # Row of the first image with an image's id, or with a caption's.
        ids = tf.concat([self.image_ids, self.caption_ids], axis=0)
        first = first_copies(ids)
        owners = tf.minimum(first[num_images:], num_images)
        described = tf.transpose(self.rows("image_to_text", images))
        shared = tf.math.unsorted_segment_sum(
            tf.cast(described, tf.int32), owners, num_images + 1
        )
        return tf.transpose(tf.gather(shared, first[:num_images]) > 0)


class _Copies:
    """The positions of equal ids; `most` is the largest number of equal ids."""

    def __init__(self, ids):
        self._order = tf.argsort(ids)
        self._group = _groups(ids, self._order)
        num_ids = tf.shape(ids)[0]
        ones = tf.ones_like(self._group)
        sizes = tf.math.unsorted_segment_sum(ones, self._group, num_ids)
        self.most = tf.reduce_max(sizes)
        starts = tf.cumsum(sizes, exclusive=True)
        self._size = tf.gather(sizes, self._group)
        self._start = tf.gather(starts, self._group)

    def numbered(self, number):
        """Returns the position of one copy of each id, int32 `[num_ids]`."""
        return tf.gather(self._order, self._start + number % self._size)


def first_copies(ids):
    """Returns the first position of each id in `ids`, int32 `[num_ids]`."""
    group = _groups(ids, tf.argsort(ids))
    positions, num_ids = tf.range(tf.shape(ids)[0]), tf.shape(ids)[0]
    first = tf.math.unsorted_segment_min(positions, group, num_ids)
    return tf.gather(first, group)


def _groups(ids, order):
    """Numbers the distinct ids, int32 `[num_ids]`; `order` sorts the ids."""
    ordered = tf.gather(ids, order)
    is_new = tf.not_equal(ordered[1:], ordered[:-1])
    numbers = tf.cumsum(tf.cast(tf.pad(is_new, [[1, 0]]), tf.int32))
    numbers = numbers[: tf.shape(ids)[0]]
    return tf.scatter_nd(order[:, None], numbers, tf.shape(ids))


def _picked(rows, positions):
    return rows if positions is None else tf.gather(rows, positions)


def _equal_pairs(left, right):
    return tf.equal(left[:, None], right[None, :])
