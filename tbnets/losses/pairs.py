"""Sampling of pairs inside a batch: matching ones, and as many others.

As miners do, these return indices of a fixed shape with a mask that tells
which of them count, carry no gradient and compile under XLA. Random numbers
are a function of a seed that the caller counts up, so that a resumed run
draws what it would have drawn.
"""

from typing import NamedTuple

import tensorflow as tf

from tbnets.annotations import Integers
from tbnets.errors import InputError
from tbnets.losses import miners
from tbnets.losses.positives import positive_masks
from tbnets.short_repr import of_fields


class PairSample(NamedTuple):
    """A matching pair for each caption of a batch, and captions for it.

    Attributes:
        images: int32 `[num_captions]`, row of the caption's own image.
        negatives: int32 `[num_captions, num_candidates]`, captions that do
            not match that image, drawn with replacement.
        valid: bool `[num_captions]`, False where a caption's image is not in
            the batch or every caption matches it; the others then mean
            nothing, but are in range wherever the batch has rows.
    """

    images: tf.Tensor
    negatives: tf.Tensor
    valid: tf.Tensor

    __repr__ = of_fields


def random_columns(mask, rows, draws):
    """Picks a random True column of some rows of a mask.

    Each True column of a row is as likely as any other. Memory stays within
    a few arrays of the mask's shape.

    Args:
        mask: bool `[num_rows, num_columns]`, columns that may be picked; at
            least one row and column.
        rows: int32 `[n]`, at least one, the row of each entry; negative for
            none.
        draws: float32 `[n, k]` in [0, 1), one number for each pick.

    Returns:
        A pair `(columns, valid)`: int32 `[n, k]`, and bool `[n]`, False where
        a row has no True column. Such columns are 0.
    """
    num_columns = tf.shape(mask)[1]
    flags = tf.cast(mask, tf.int32)
    counts = tf.reduce_sum(flags, axis=1)
    up_to_row = tf.cumsum(counts, exclusive=True)
    # One count runs through all rows, so that one search finds every pick.
    running = tf.cumsum(tf.reshape(flags, [-1]))
    known = rows >= 0
    rows = tf.maximum(rows, 0)
    eligible = tf.where(known, tf.gather(counts, rows), 0)[:, None]
    picks = tf.cast(draws * tf.cast(eligible, tf.float32), tf.int32)
    # A draw next to 1 may round up to the count itself.
    picks = tf.minimum(picks, eligible - 1)
    wanted = tf.gather(up_to_row, rows)[:, None] + picks + 1
    places = tf.searchsorted(running, tf.reshape(wanted, [-1]))
    columns = tf.reshape(places, tf.shape(wanted)) - rows[:, None] * num_columns
    valid = eligible > 0
    return tf.where(valid, columns, 0), valid[:, 0]


def own_images(image_ids, caption_image_ids):
    """Returns the row of each caption's own image, int32 `[num_captions]`.

    Args:
        image_ids: integer `[num_images]`, at least one.
        caption_image_ids: integer `[num_captions]`.

    Returns:
        The first of the rows where an image was drawn twice; -1 where it is
        not in the batch.
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
    """Draws captions that do not match, for each matching pair of a batch.

    The matching pairs are the captions with their own images: with an image
    drawn twice, or equal texts, every other match repeats one of these.

    Args:
        image_ids: integer `[num_images]`, at least one; see
            `positives.positive_masks`.
        caption_image_ids: integer `[num_captions]`, likewise.
        text_ids: optional integer `[num_captions]`, equal for equal texts.
        seed: int32 `[2]`, for example a run's seed and the step.
        num_candidates: captions drawn for each pair; the papers: 1.

    Returns:
        A `PairSample`.

    Raises:
        TypeError: If ids are not integers.
        ValueError: If the seed is not two integers.

    Example:
        pairs = tbnets.sample_pairs([7, 8], [7, 8, 7], seed=[0, 1])
        pairs.images  # [0, 1, 0]: the row of each caption's image
        pairs.negatives[0]  # [1], the one caption that is not of image 7

    Source: Wang et al. 2018, Sec. 5.1: for each positive pair (x, y) a
    negative (x, y'), y' a random sentence not associated with the image.
    """
    seed = tf.convert_to_tensor(seed)
    if not seed.dtype.is_integer or not seed.shape.is_compatible_with([2]):
        raise InputError(
            "`seed` must be two integers. Received: seed="
            f"{seed.dtype.name}{seed.shape}. Give a run's seed and the step."
        )
    matches = positive_masks(image_ids, caption_image_ids, text_ids)
    images = own_images(image_ids, caption_image_ids)
    draws = tf.random.stateless_uniform(
        tf.stack([tf.shape(images)[0], num_candidates]), seed, alg="philox"
    )
    negatives, valid = random_columns(~matches.image_to_text, images, draws)
    return PairSample(tf.maximum(images, 0), negatives, valid)
