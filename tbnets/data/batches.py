"""Draws and reads mini-batches for training.

A batch contains distinct images with several captions each, so that the
within-text loss term has positives (Wang et al. 2018, Algorithm 1). A batch
depends only on the seed, the epoch and the batch number, so that a run can be
resumed.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import (
    Array,
    Integers,
    check_finite,
    checked_number,
    short_repr,
)
from tbnets.data.captions import CaptionedImages
from tbnets.data.images import decode_images, faults, read_files
from tbnets.data.pictures import KINDS
from tbnets.errors import InputError
from tbnets.evaluation.boxes import non_maximum_suppression
from tbnets.files import listed
from tbnets.seeds import generator_of


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Disables the autotuning of a `tf.data` pipeline."""
    # The autotuning thread may sleep while the reader waits for the end of the
    # dataset, which can double the time of an epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


class Rows(Protocol):
    """The images or texts of a split, read in batches."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of a row, with None for sizes that vary between batches."""

    @property
    def dtype(self) -> tf.DType:
        """The dtype of a batch."""

    def batch(self, rows: np.ndarray) -> np.ndarray:
        """Returns the given rows as an array `[len(rows), ...]`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """The images and texts of a split, as inputs of a network.

    Args:
        records: `CaptionedImages` of the split.
        images: `Rows` of the images in `records`.
        texts: `Rows` of the captions in `records`.
        text_ids: int64 `[num_captions]`, equal for captions with identical
            text. If None, each caption matches only its own image.

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
        """A dict with the numbers of images and captions."""
        records = self.records
        return {"images": records.num_images, "captions": records.num_captions}

    def samples(self, layer: Any) -> Iterator[np.ndarray]:
        """Yields arrays of images, from which `layer` computes statistics."""
        return self.images.chunks()

    @classmethod
    def from_arrays(
        cls, images: Array, captions: Array, caption_to_image: Integers
    ) -> Self:
        """Creates examples from arrays in memory.

        Args:
            images: `[num_images, ...]`, features or pixels.
            captions: `[num_captions, ...]`, word ids, features or strings.
            caption_to_image: int `[num_captions]`, row of each caption's image.
        """
        images = _finite_rows("images", images)
        texts = _finite_rows("captions", captions)
        records = CaptionedImages(
            image_ids=[str(row) for row in range(len(images.array))],
            captions=[""] * len(texts.array),
            caption_to_image=caption_to_image,
            split="train",
            path="arrays",
        )
        return cls(records, images, texts)


def _finite_rows(name, values):
    array = np.asarray(values)
    check_finite(name, array)
    return ArrayRows(array)


class ArrayRows:
    """Rows of an array in memory. Converts float64 to float32."""

    def __init__(self, array):
        self.array = np.asarray(array)
        if self.array.dtype == np.float64:
            self.array = self.array.astype(np.float32)
        self.dtype = tf.as_dtype(self.array.dtype)
        self.shape = self.array.shape[1:]

    def batch(self, rows):
        """Returns the given rows, `[len(rows), ...]`."""
        return self.array[rows]


class FeatureRows:
    """Features of images or texts on disk, read on demand.

    `rows[i]` is the row in `features` that belongs to image or text `i`.
    """

    dtype = tf.float32

    def __init__(self, features, rows):
        self.features = features
        self.rows = np.asarray(rows)
        self.shape = features.take(()).shape[1:]

    def batch(self, rows):
        """Returns the given rows, float32 `[len(rows), feature_dim]`."""
        return self.features.take(self.rows[rows])

    def chunks(self, size=4096):
        """Yields all rows in order, `size` at a time."""
        for start in range(0, len(self.rows), size):
            yield self.features.take(self.rows[start : start + size])


SAMPLED_PHOTOS = 1000
"""Maximum number of photos whose regions are used to compute statistics."""


def sampled(count):
    """Returns at most `SAMPLED_PHOTOS` evenly spaced row numbers < `count`."""
    rows = np.linspace(0, count - 1, min(count, SAMPLED_PHOTOS))
    return np.unique(rows.astype(int))


def ranges(starts, ends):
    """Concatenates the integer ranges from `starts` to `ends` (exclusive).

    Returns (places, numbers): for each number in a range, the index of the
    range, and the number itself.
    """
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    places = np.repeat(np.arange(len(lengths)), lengths)
    return places, np.arange(len(places)) + (starts - before)[places]


class PhotoRegions:
    """The regions of each photo. A photo's regions are numbered from 0.

    Args:
        store: `data.store.reader.FeatureStore` of region features.
        rows: int `[num_images]`, each photo's row in the store.
        limit: maximum number of regions per photo, or None. Niu et al. 2017:
            19.
        most_overlap: a region is skipped if its IoU with an earlier region is
            larger.
    """

    def __init__(self, store, rows, limit=None, most_overlap=1.0):
        self.store = store
        self._photos = np.asarray(rows)
        self._limit = limit
        self._most_overlap = most_overlap

    @functools.cached_property
    def _kept(self):
        """The indices of each photo's regions among its stored regions."""
        limit = self._limit
        if self._most_overlap == 1:
            counts = self.store.counts[self._photos].tolist()
            return [np.arange(count)[:limit] for count in counts]
        photo_boxes = (self.store.boxes(row)[0] for row in self._photos)
        return [
            non_maximum_suppression(
                boxes, -np.arange(len(boxes)), self._most_overlap, limit
            )
            for boxes in photo_boxes
        ]

    @functools.cached_property
    def counts(self):
        """The number of regions per photo, int64 `[num_images]`."""
        return np.array([*map(len, self._kept)], np.int64)

    @functools.cached_property
    def boxes(self):
        """The boxes of each photo's regions, `[k, 4]` in pixels."""
        pairs = zip(self._photos, self._kept)
        return [self.store.boxes(row)[0][kept] for row, kept in pairs]

    @functools.cached_property
    def _rows(self):
        """(first, rows): a photo's first index in `rows`, rows in the store."""
        firsts = self.store.first_regions[self._photos]
        rows = [first + kept for first, kept in zip(firsts, self._kept)]
        first = np.cumsum(self.counts) - self.counts
        return first, np.concatenate([np.zeros(0, np.int64), *rows])

    def candidates(self, image):
        """Returns the boxes of a photo's regions, then of the whole photo.

        The boxes are float64 `[num_candidates, 4]`.
        """
        photo = [0, 0, *self.store.sizes[self._photos[image]]]
        return np.concatenate([self.boxes[image], [photo]]).astype(np.float64)

    def all_of(self, images):
        """Lists the regions of the photos `images`.

        Returns int64 arrays (places, numbers): for each region, the index of
        its photo in `images`, and its number.
        """
        counts = self.counts[images]
        return ranges(np.zeros_like(counts), counts)

    def rows(self, images, numbers):
        """Returns the rows of regions in the store, int64 `[n]`.

        `images`, int `[n]`, contains the rows of the regions' photos, and
        `numbers`, int `[n]`, the numbers of the regions.
        """
        first, rows = self._rows
        return rows[first[images] + numbers]

    def take(self, images, numbers):
        """Returns the features of regions, float32 `[n, dim]`.

        The arguments are as in `rows`.
        """
        return self.store.take_regions(self.rows(images, numbers))

    def samples(self):
        """Yields the region features of evenly spaced photos."""
        for row in sampled(len(self._photos)):
            numbers = np.arange(self.counts[row])
            yield self.take(np.full(len(numbers), row), numbers)


class FileNames:
    """Paths of image files, one per row. `tf.data` decodes the files."""

    dtype = tf.string
    shape = ()

    def __init__(self, paths):
        self.paths = paths

    def batch(self, rows):
        """Returns the paths in the given rows as bytes, `[len(rows)]`."""
        return np.array([os.fsencode(self.paths[row]) for row in rows], object)


def refuse_broken_images(images):
    """Raises a ValueError that names broken image files, if there are any."""
    # Decoding errors of `tf.data` lack the file name.
    paths = getattr(images, "paths", ())
    reasons = zip(paths, faults(paths))
    broken = [f"'{path}', which {reason}" for path, reason in reasons if reason]
    if broken:
        raise InputError(
            "--images",
            f"contain only complete photos: {KINDS}",
            f"{len(broken)} of {len(paths)} files that are not: "
            f"{listed(broken)}",
        )


def batch_bounds(count, per_batch):
    """Returns (start, stop) for each batch in an epoch of `count` items.

    The last batch may be smaller. A single last item is added to the previous
    batch: an item alone has no negatives, and batch normalisation would turn it
    into zeros.
    """
    starts = list(range(0, count, per_batch))
    if 1 < per_batch < count and count % per_batch == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], count]))


def sample_epoch(records, images_per_batch, captions_per_image, seed, epoch):
    """Yields int64 arrays (image_rows, caption_rows), one pair per batch.

    Each image that has captions is drawn once, together with up to
    `captions_per_image` of its captions.

    Source: Wang et al. 2018, Algorithm 1 (c) and Sec. 5.1. Departure: the paper
    draws image-caption pairs and then adds neighbours. Here, each image is in
    one batch, with all captions that were drawn for it.
    """
    permuted = generator_of(seed, "epoch", epoch).permutation
    rows_of, most = records.caption_rows(), captions_per_image
    order = permuted(np.flatnonzero(records.captions_per_image))
    drawn = [permuted(rows_of[image])[:most] for image in order]
    for start, stop in batch_bounds(len(order), images_per_batch):
        yield order[start:stop], np.concatenate(drawn[start:stop])


# Each array of a batch is divided evenly among the replicas, in their order.
# Every worker draws the rows of all batches, which is cheap, but reads only the
# rows of its replicas.


class Share(NamedTuple):
    """The rows of a batch for replica number `place` (>= 0) of `count`."""

    place: int = 0
    count: int = 1

    def of(self, num_rows):
        """Returns the slice of `num_rows` rows that belongs to this share."""
        bounds = (self.place + i for i in range(2))
        return slice(*(bound * num_rows // self.count for bound in bounds))

    def read(self, source, rows):
        """Reads this share of the given rows with `source.batch`.

        If the source has `lengths`, the rows are padded to the longest row of
        the whole batch.
        """
        if hasattr(source, "lengths"):
            return source.batch(rows)[self.of(len(rows))]
        return source.batch(rows[self.of(len(rows))])


WHOLE = Share()


def distributed(strategy, batches):
    """Distributes the batches of an epoch among the replicas of a strategy.

    Raises ValueError if a batch has fewer photos than there are replicas.
    """
    count = strategy.num_replicas_in_sync
    if batches.smallest is not None and batches.smallest < count:
        raise InputError(
            "images_per_batch",
            "leave at least one photo for each replica in every batch",
            f"a batch of {batches.smallest} for {count} replicas",
        )

    def worker_dataset(context):
        per_worker = count // context.num_input_pipelines
        first = context.input_pipeline_id * per_worker
        places = range(first, first + per_worker)
        return batches.dataset_of([Share(place, count) for place in places])

    return strategy.distribute_datasets_from_function(worker_dataset)


class Batches:
    """Base class for the batches of successive epochs.

    Subclasses choose the rows of a batch (`_rows`) and read them (`batch`).
    `examples` needs the attributes `texts` and `text_ids` of `Examples`.

    Attributes:
        epoch: integer >= 0. Set it before iterating over `dataset`.
        dataset: `tf.data.Dataset` of the batches in this epoch.
        smallest: number of photos in the smallest batch, or None if the images
            are features.
        image_size: side of the decoded photos in pixels.
        largest: (maximum number of images, maximum number of captions) in a
            batch, or None if unknown.
    """

    smallest: int | None = None
    largest: tuple[int, int] | None = None
    image_size: int | None = None

    def __init__(self, examples: Any, num_batches: int) -> None:
        self.examples = examples
        self.num_batches = num_batches
        self.epoch = 0
        self.dataset: tf.data.Dataset = self.dataset_of([WHOLE])

    __repr__ = short_repr("num_batches", "epoch")

    def dataset_of(self, shares: Sequence[Share]) -> tf.data.Dataset:
        """Returns the batches of `epoch`, with an element for each share."""

        def draw():
            for rows in self._rows():
                yield from (self.batch(*rows, share) for share in shares)

        spec = self.signature()
        dataset = tf.data.Dataset.from_generator(draw, output_signature=spec)
        if self.smallest is not None:
            size = self.image_size
            dataset = dataset.map(
                lambda b: b | {"images": read_files(b["images"])}
            )
            # Reads a batch while another one is decoded.
            dataset = dataset.prefetch(1).map(
                lambda b: b | {"images": decode_images(b["images"], size)}
            )
        # Keras warns after the first epoch if the cardinality is unknown.
        count = self.num_batches * len(shares)
        counted = tf.data.experimental.assert_cardinality(count)
        return untuned(dataset.apply(counted).prefetch(2 * len(shares)))

    def _of_texts(self, rows, owners, share):
        part, ids = share.of(len(rows)), self.examples.text_ids
        batch = {
            "captions": share.read(self.examples.texts, rows),
            "caption_image_ids": owners[part],
        }
        return batch if ids is None else batch | {"text_ids": ids[rows][part]}

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Returns the `tf.TensorSpec`s common to all kinds of batches."""
        texts, ids = self.examples.texts, ["image_ids", "caption_image_ids"]
        ids += ["text_ids"] * (self.examples.text_ids is not None)
        return {
            "captions": tf.TensorSpec((None, *texts.shape), texts.dtype),
            **{name: tf.TensorSpec((None,), tf.int64) for name in ids},
        }


class EpochBatches(Batches):
    """Batches of images with captions, for successive epochs.

    Args:
        examples: an `Examples`.
        images_per_batch: images per batch. Wang et al. use 500 (2018) and 1500
            (2016). A single last image is added to the previous batch.
        captions_per_image: captions drawn per image. The papers draw 2.
        seed: integer >= 0.
        image_size: side of the decoded photos in pixels. Required if
            `examples.images` are `FileNames`.

    Attributes:
        epoch: integer >= 0. `fit` increments it. In a custom training loop, set
            it before iterating over `dataset`.
        dataset: `tf.data.Dataset` of the batches in this epoch. Each batch is a
            dict for `EmbeddingNetwork.train_step`.
        num_batches: number of batches in an epoch.

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
        records = examples.records
        drawable = int(np.count_nonzero(records.captions_per_image))
        if not drawable:
            expected = "have at least one image with a caption"
            raise InputError("examples", expected, repr(records))
        bounds = batch_bounds(drawable, images_per_batch)
        if examples.images.dtype == tf.string:
            self.smallest = bounds[-1][1] - bounds[-1][0]
        self.image_size = image_size
        most = max(stop - start for start, stop in bounds)
        self.largest = most, most * captions_per_image
        self._sizes = (images_per_batch, captions_per_image)
        self._seed = seed
        super().__init__(examples, len(bounds))

    def _rows(self):
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
        """Reads a share of a batch. Photos are returned as paths."""
        examples = self.examples
        groups = examples.records.image_groups
        owners = groups[examples.records.caption_to_image[caption_rows]]
        return self._of_texts(caption_rows, owners, share) | {
            "images": share.read(examples.images, image_rows),
            "image_ids": groups[image_rows][share.of(len(image_rows))],
        }

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Returns the `tf.TensorSpec`s of a batch before photos are decoded."""
        images = self.examples.images
        spec = tf.TensorSpec((None, *images.shape), images.dtype)
        return super().signature() | {"images": spec}
