"""Mini-batch construction: records -> the batches a network trains on.

Neighbourhood sampling of Wang et al. 2018, Algorithm 1: a batch holds
distinct images with several captions of each, so that the within-text term
has positives. What a batch holds is a function of (seed, epoch) alone, never
of the state of a random generator, so a resumed run sees the same batches.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import (
    Array,
    Integers,
    check_finite,
    checked_array,
    checked_number,
    short_repr,
)
from tbnets.data.captions import CaptionedImages
from tbnets.data.images import KINDS, decode_images, faults, read_file
from tbnets.data.splits import WHOLE, Share
from tbnets.errors import InputError, InputTypeError, check_kind
from tbnets.files import listed
from tbnets.seeds import generator_of

# How `tf.data` reads: as the code says, with nothing tuned on the way.


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset that `tf.data` does not tune while it is read.

    The thread that tunes sleeps for twice as long each time, and where a
    dataset ends it is not always woken: its reader then waits until it has
    slept, which may double the time of an epoch or an extraction. Here all
    buffers and parallel calls are given as numbers, so that nothing is left
    to tune.

    Args:
        dataset: the last of a pipeline; what reads it sees the option.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


# One split with everything a network needs of it.

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
            name,
            "be an array of numbers, a row each",
            f"shape {array.shape}, dtype {array.dtype}",
            "Captions become ids by `tbnets.Tokenizer(vocabulary)(captions)`.",
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
            "--images",
            f"hold whole photos: {KINDS}",
            f"{len(found)} of {len(paths)} that are none: {listed(found)}",
            "Replace them, or take them out of the captions.",
        )


def batch_bounds(count, per_batch):
    """Returns where each batch of an epoch begins and ends.

    The last batch has what is left. Where that is one alone, it comes to the
    batch before: one has no negatives, and batch normalisation would take it
    for the mean of all, right before the network is measured.

    Args:
        count: how many are drawn in an epoch.
        per_batch: how many a batch has, at least 1.

    Returns:
        List of (start, stop).
    """
    starts = list(range(0, count, per_batch))
    if 1 < per_batch < count and count % per_batch == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], count]))


def sample_epoch(records, images_per_batch, captions_per_image, seed, epoch):
    """Yields the rows of each batch of one epoch.

    Every image that has captions is drawn once; of its captions,
    `captions_per_image` are drawn without replacement (all, when it has
    fewer). The last batch may be smaller, see `batch_bounds`.

    Args:
        records: a `CaptionedImages`.
        images_per_batch: images a batch. Wang 2018: 500; Wang 2016: 1500.
        captions_per_image: captions drawn of each. Papers: 2; 1 gives
            plain pairs without neighbours.
        seed: integer of the run.
        epoch: integer from 0.

    Yields:
        (image_rows int64 `[n]`, caption_rows int64 `[m]`).

    Source: Wang et al. 2018, Algorithm 1 (c) and Sec. 5.1. Departures: an
    image stands once in a batch, with its captions beside it, where the
    paper draws pairs and completes them.
    """
    permuted = generator_of(seed, "epoch", epoch).permutation
    rows_of, most = records.caption_rows(), captions_per_image
    order = permuted(np.flatnonzero(records.captions_per_image))
    drawn = [permuted(rows_of[image])[:most] for image in order]
    for start, stop in batch_bounds(len(order), images_per_batch):
        yield order[start:stop], np.concatenate(drawn[start:stop])


class Batches:
    """The batches of one epoch after the other, whatever they hold.

    Heirs say which rows a batch has, and read them.

    Args:
        examples: with `texts` and `text_ids`, as `Examples` have them.
        num_batches: how many an epoch has.

    Attributes:
        examples: as above.
        num_batches: as above.
        epoch: integer from 0; set it, then go through `dataset`.
        dataset: `tf.data.Dataset` of the batches of `epoch`.
        smallest: photos of the smallest batch, None where images are features.
        image_size: side of the decoded photos in pixels.
    """

    smallest: int | None = None
    image_size: int | None = None

    def __init__(self, examples: Any, num_batches: int) -> None:
        self.examples = examples
        self.num_batches = num_batches
        self.epoch = 0
        self.dataset: tf.data.Dataset = self.dataset_of([WHOLE])

    __repr__ = short_repr("num_batches", "epoch")

    def dataset_of(self, shares: Sequence[Share]) -> tf.data.Dataset:
        """Returns some shares of each batch of `epoch`, one after the other.

        Args:
            shares: of the replicas of this process, in their order.
        """

        def read():
            for rows in self._rows():
                yield from (self.batch(*rows, share) for share in shares)

        spec = self.signature()
        dataset = tf.data.Dataset.from_generator(read, output_signature=spec)
        if self.smallest is not None:
            size = self.image_size
            dataset = dataset.map(
                lambda one: one | {"images": read_images(one["images"], size)}
            )
        # Keras warns of data that end before it knows how many there are.
        count = self.num_batches * len(shares)
        counted = tf.data.experimental.assert_cardinality(count)
        return untuned(dataset.apply(counted).prefetch(2 * len(shares)))

    def _of_texts(self, rows, owners, share):
        """Returns what a batch has of its texts.

        Args:
            rows: int64 `[m]`, those of the whole batch.
            owners: int64 `[m]`, the id of what each was said of.
            share: which part of them is read.
        """
        own, ids = share.of(len(rows)), self.examples.text_ids
        batch = {
            "captions": share.read(self.examples.texts, rows),
            "caption_image_ids": owners[own],
        }
        return batch if ids is None else batch | {"text_ids": ids[rows][own]}

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Returns the `tf.TensorSpec`s of what all batches have."""
        texts, ids = self.examples.texts, ["image_ids", "caption_image_ids"]
        ids += ["text_ids"] * (self.examples.text_ids is not None)
        return {
            "captions": tf.TensorSpec((None, *texts.shape), texts.dtype),
            **{name: tf.TensorSpec((None,), tf.int64) for name in ids},
        }


class EpochBatches(Batches):
    """The batches of one epoch after the other.

    Args:
        examples: an `Examples`.
        images_per_batch: images a batch.
        captions_per_image: captions drawn of each image.
        seed: integer of the run.
        image_size: side of the decoded images in pixels, when
            `examples.images` are file names.

    Attributes:
        examples: the `Examples`.
        image_size: as above.
        epoch: integer from 0; `fit` counts it up. In a loop of your own, set
            it, then go through `dataset`.
        dataset: `tf.data.Dataset` of the batches of `epoch`, each the dict
            that `EmbeddingNetwork.train_step` takes.
        num_batches: how many an epoch has.
        smallest: photos of the smallest batch, None where images are features.

    Example:
        batches = tbnets.EpochBatches(
            examples, images_per_batch=6, captions_per_image=2, seed=0)
        network.fit(batches, epochs=2)
        next(iter(batches.dataset))["images"].shape  # (6, 64)
    """

    examples: Examples

    def __init__(
        self,
        examples: Examples,
        images_per_batch: int,
        captions_per_image: int,
        seed: int,
        image_size: int | None = None,
    ) -> None:
        checked_number("images_per_batch", images_per_batch, 1, whole=True)
        checked_number("captions_per_image", captions_per_image, 1, whole=True)
        checked_number("seed", seed, 0, whole=True)
        advice = "Make them by tbnets.Examples.from_arrays."
        check_kind("examples", examples, Examples, advice)
        records = examples.records
        drawable = int(np.count_nonzero(records.captions_per_image))
        if not drawable:
            raise InputError(
                "examples",
                "hold at least one image with a caption",
                f"{records.num_images} images, {records.num_captions} "
                f"captions of {records.path}",
                "Choose another split.",
            )
        bounds = batch_bounds(drawable, images_per_batch)
        if examples.images.dtype == tf.string:
            self.smallest = bounds[-1][1] - bounds[-1][0]
        self.image_size = image_size
        self._sizes = (images_per_batch, captions_per_image)
        self._seed = seed
        super().__init__(examples, len(bounds))

    def _rows(self):
        """Yields what `batch` takes, for each batch of `epoch`."""
        records, seed = self.examples.records, self._seed
        drawn = sample_epoch(records, *self._sizes, seed, self.epoch)
        return ((*rows, number) for number, rows in enumerate(drawn))

    def batch(
        self,
        image_rows: np.ndarray,
        caption_rows: np.ndarray,
        number: int,
        share: Share = WHOLE,
    ) -> dict[str, np.ndarray]:
        """Returns what stands in some rows, photos not decoded.

        Args:
            image_rows: int64 `[n]`.
            caption_rows: int64 `[m]`.
            number: of the batch in its epoch, from 0.
            share: which part of the batch is read.
        """
        examples = self.examples
        owners = examples.records.caption_to_image[caption_rows]
        return self._of_texts(caption_rows, owners, share) | {
            "images": share.read(examples.images, image_rows),
            "image_ids": image_rows[share.of(len(image_rows))],
        }

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Returns the `tf.TensorSpec`s of a batch, photos not decoded."""
        images = self.examples.images
        spec = tf.TensorSpec((None, *images.shape), images.dtype)
        return super().signature() | {"images": spec}


def read_images(paths, image_size):
    """Reads and decodes photos in the graph.

    Args:
        paths: string `[n]`.
        image_size: side of the decoded images in pixels.

    Returns:
        float32 `[n, image_size, image_size, 3]` RGB in [0, 255].
    """
    return decode_images(tf.map_fn(read_file, paths), image_size)
