"""Masks of a batch's matching pairs, computed from ids."""

from typing import NamedTuple

import tensorflow as tf

from tbnets.checks import Integers, of_fields
from tbnets.losses import miners
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

    Rows with the same image id match, and captions of one image match each
    other. With `text_ids`, identical texts match too: an image matches copies
    of its captions, a caption matches its copies, and two images that share a
    text match.

    Args:
        image_ids: Integer `[num_images]`. Floats are rejected, because they
            cannot represent large ids exactly.
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
    matches, whereas the papers treat each row of the batch as a different
    image. As in Eq. 5, a caption's positives are all other captions of its
    image; the authors' released code keeps only the farthest caption. The two
    rules are equivalent if each image has two captions.
    """
    image_ids = checked_row("image_ids", image_ids)
    caption_ids = checked_row("caption_image_ids", caption_image_ids)
    image_to_text = _equal_pairs(image_ids, caption_ids)
    text_to_text = _equal_pairs(caption_ids, caption_ids)
    image_to_image = _equal_pairs(image_ids, image_ids)
    if text_ids is None:
        return PositiveMasks(image_to_text, text_to_text, image_to_image)
    text_ids = checked_row("text_ids", text_ids)
    check_as_many("text_ids", text_ids, "caption_image_ids", caption_ids)
    same_text = _equal_pairs(text_ids, text_ids)
    first_copy = miners.first_true(same_text)
    # [num_captions, num_images]: whether text t describes image i.
    text_to_image = _any_of_segment(
        tf.transpose(image_to_text), first_copy, tf.shape(caption_ids)[0]
    )
    text_to_image = tf.gather(text_to_image, first_copy)
    num_images = tf.shape(image_ids)[0]
    owner = miners.first_true(tf.transpose(image_to_text))
    owner = tf.where(owner < 0, num_images, owner)
    shared = _any_of_segment(text_to_image, owner, num_images + 1)
    shared = tf.gather(shared, miners.first_true(image_to_image))
    return PositiveMasks(
        tf.transpose(text_to_image),
        tf.logical_or(text_to_text, same_text),
        tf.logical_or(image_to_image, shared),
    )


def _equal_pairs(left, right):
    return tf.equal(left[:, None], right[None, :])


def _any_of_segment(mask, segments, num_segments):
    """Returns, for each segment, whether any of its rows is True."""
    flags = tf.cast(mask, tf.int32)
    return tf.math.unsorted_segment_sum(flags, segments, num_segments) > 0
