"""One split with everything a network needs of it."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.annotations import Array, Integers
from tbnets.checked_files import listed
from tbnets.checked_numbers import check_finite, checked_array
from tbnets.data.captions import CaptionedImages
from tbnets.data.images import KINDS, faults
from tbnets.errors import InputError, InputTypeError
from tbnets.short_repr import short_repr

SAMPLED_PHOTOS = 1000
"""Photos whose regions tell the statistics of features."""


def sampled(count):
    """Returns rows of at most `SAMPLED_PHOTOS` of some photos, ascending."""
    some = np.linspace(0, count - 1, min(count, SAMPLED_PHOTOS))
    return np.unique(some.astype(int))


class Rows(Protocol):
    """Images or texts of a split, of which a batch takes some."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of one; None where a batch decides."""

    @property
    def dtype(self) -> tf.DType:
        """What a batch of them is made of."""

    def batch(self, rows: np.ndarray) -> np.ndarray:
        """Returns some, `[len(rows), ...]`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """One split with everything a network needs of it.

    Args:
        records: the images' ids, the captions and who belongs to whom.
        images: `Rows` of the images of `records`.
        texts: `Rows` of its captions.
        text_ids: int64 `[num_captions]`, equal for captions with equal
            text, or None when equal texts are no positives.

    Example:
        examples = tbnets.Examples.from_arrays(
            image_features, word_ids, caption_to_image)
        examples.counts  # {"images": 12, "captions": 36}
    """

    records: CaptionedImages
    images: Rows
    texts: Rows
    text_ids: np.ndarray | None = None

    __repr__ = short_repr("records", "images", "texts", "text_ids")

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of images and captions: name -> int."""
        records = self.records
        return {"images": records.num_images, "captions": records.num_captions}

    def samples(self, layer: Any) -> Iterator[np.ndarray]:
        """Yields arrays of what a layer that measures statistics reads."""
        return self.images.chunks()

    @classmethod
    def from_arrays(
        cls, images: Array, captions: Array, caption_to_image: Integers
    ) -> Self:
        """Makes examples of what is in memory.

        Args:
            images: `[num_images, ...]`, features or pixels.
            captions: `[num_captions, ...]`, word ids or features.
            caption_to_image: int `[num_captions]`, row of the image of each
                caption.

        Returns:
            `Examples` whose image ids are the rows, and whose records know
            no caption's words.
        """
        images = ArrayRows(_checked_numbers("images", images))
        texts = ArrayRows(_checked_numbers("captions", captions))
        records = CaptionedImages(
            image_ids=[str(row) for row in range(len(images.array))],
            captions=[""] * len(texts.array),
            caption_to_image=caption_to_image,
            split="train",
            path="arrays",
        )
        return cls(records, images, texts)


def _checked_numbers(name, values):
    """Returns an array of a row each; refuses what holds no finite numbers."""
    array = checked_array(name, values)
    if array.ndim < 1 or array.dtype.kind in "OSU":
        raise InputTypeError(
            f"`{name}` must be an array of numbers, a row each. Received: "
            f"shape {array.shape}, dtype {array.dtype}. Captions become ids by "
            "`tbnets.Tokenizer(vocabulary)(captions)`."
        )
    check_finite(name, array)
    return array


class ArrayRows:
    """Rows of an array in memory.

    Args:
        array: `[n, ...]`; float64 becomes float32.
    """

    def __init__(self, array):
        self.array = np.asarray(array)
        if self.array.dtype == np.float64:
            self.array = self.array.astype(np.float32)
        self.dtype = tf.as_dtype(self.array.dtype)
        self.shape = self.array.shape[1:]

    def batch(self, rows):
        """Returns `[len(rows), ...]`."""
        return self.array[rows]


class FeatureRows:
    """Rows of features, which stay on the disk.

    Args:
        features: a `data.store.arrays.Features`.
        rows: int `[n]`; the row of the features for each row of the records.
    """

    dtype = tf.float32

    def __init__(self, features, rows):
        self.features = features
        self.rows = np.asarray(rows)
        self.shape = features.take(()).shape[1:]

    def batch(self, rows):
        """Returns float32 `[len(rows), feature_dim]`."""
        return self.features.take(self.rows[rows])

    def chunks(self, size=4096):
        """Yields all rows once, `size` at a time, in order."""
        for start in range(0, len(self.rows), size):
            yield self.features.take(self.rows[start : start + size])


class FileNames:
    """Paths of image files; they are decoded inside the `tf.data` pipeline.

    Args:
        paths: list of paths, one for each row of the records.
    """

    dtype = tf.string
    shape = ()

    def __init__(self, paths):
        self.paths = paths

    def batch(self, rows):
        """Returns the paths `[len(rows)]`, as the bytes that they are."""
        return np.array([os.fsencode(self.paths[row]) for row in rows], object)


def refuse_broken_images(images):
    """Raises the error that names the files that are no photos.

    `tf.data` says that an image did not decode, not which; this looks for it.

    Args:
        images: the `images` of some `Examples`.

    Raises:
        ValueError: some files are no photos; the first of them are named.
    """
    paths = getattr(images, "paths", ())
    judged = zip(paths, faults(paths))
    found = [f"'{path}', which {reason}" for path, reason in judged if reason]
    if found:
        raise InputError(
            f"`--images` must hold whole photos: {KINDS}. Received: "
            f"{len(found)} of {len(paths)} that are none: "
            f"{listed(found)}. Replace them, or take them out of the captions."
        )
