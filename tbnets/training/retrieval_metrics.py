"""Adds a network's retrieval metrics to the logs of `fit`."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tbnets.checks import Array, check_finite, checked_dict, short_repr
from tbnets.data.batches import EpochBatches, Examples, refuse_broken_images
from tbnets.data.images import decode_images, read_files
from tbnets.errors import InputError
from tbnets.evaluation import retrieval, score_tiles
from tbnets.evaluation.score_tiles import PAIRS_AT_ONCE, PairScores, compare_all

IMAGE_CHUNK = 256
CAPTION_CHUNK = 1024


class Embedder:
    """Embeds the examples of a split with graphs that are traced once.

    Networks that read pixels need `image_size`, the side length of the decoded
    photos.
    """

    def __init__(self, network, image_size=None):
        def images(batch):
            if batch.dtype == tf.string:
                batch = decode_images(read_files(batch), image_size)
            return network.embed_images(batch, training=False)

        def texts(batch):
            return network.embed_text(batch, training=False)

        # AutoGraph is not needed, and would take longer than tracing.
        options = {"reduce_retracing": True, "autograph": False}
        self._images = tf.function(images, **options)
        self._texts = tf.function(texts, **options)

    def images(self, examples):
        """Returns a split's image embeddings, float32 `[num_images, dim]`."""
        rows = np.arange(examples.records.num_images)
        try:
            return _in_chunks(self._images, examples.images, rows, IMAGE_CHUNK)
        except tf.errors.OpError:
            refuse_broken_images(examples.images)
            raise

    def texts(self, examples):
        """Returns a split's text embeddings, float32 `[num_captions, dim]`.

        Captions of equal length share a chunk to reduce padding.
        """
        rows = np.arange(examples.records.num_captions)
        if hasattr(examples.texts, "lengths"):
            rows = np.argsort(examples.texts.lengths, kind="stable")
        return _in_chunks(self._texts, examples.texts, rows, CAPTION_CHUNK)

    def batch(self, images, captions):
        """Returns the embeddings of a batch's images and captions."""
        sides = (self._images, images), (self._texts, captions)
        # A fused kernel may turn a NaN into 0, so check the inputs.
        for name, rows in (("images", images), ("captions", captions)):
            check_finite(name, np.asarray(rows))
        return [embed(tf.convert_to_tensor(x)).numpy() for embed, x in sides]


def _in_chunks(embed, inputs, rows, chunk):
    outputs = None
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        batch = tf.convert_to_tensor(inputs.batch(part), inputs.dtype)
        embeddings = embed(batch).numpy()
        if outputs is None:
            outputs = np.zeros((len(rows), embeddings.shape[1]), np.float32)
        outputs[part] = embeddings
    return np.zeros((0, 1), np.float32) if outputs is None else outputs


class PairScorer:
    """Computes `PairScores` of embeddings with a network's head.

    `memory_limit_mb` is the memory in MiB for the pairs scored at once.
    """

    def __init__(self, network, memory_limit_mb=512):
        rows = tf.TensorSpec((None, network.embedding_dim), tf.float32)
        options = {"input_signature": [rows, rows], "autograph": False}
        self._tile, self._pairs = (
            tf.function(compare, **options)
            for compare in (network.similarities, network.judge)
        )
        bytes_per_pair = 4 * network.floats_per_pair
        fitting = int(memory_limit_mb * 2**20) // bytes_per_pair
        self.pairs_at_once = max(1, min(PAIRS_AT_ONCE, fitting))

    def scores(self, image_embeddings, text_embeddings):
        """Returns the `PairScores` of image and text embeddings."""

        def tile(image_rows, text_rows):
            sides = image_embeddings[image_rows], text_embeddings[text_rows]
            return compare_all(self._tile, *sides, self.pairs_at_once)

        def pairs(image_rows, text_rows):
            sides = image_rows, text_rows
            cut = [_cut(rows, self.pairs_at_once) for rows in sides]
            scores = [
                self._pairs(image_embeddings[i], text_embeddings[j])
                for i, j in zip(*cut)
            ]
            return np.concatenate(scores)

        sizes = len(image_embeddings), len(text_embeddings)
        return PairScores(*sizes, tile, pairs)


def _cut(rows, size):
    starts = range(0, len(rows) or 1, size)
    return [rows[start : start + size] for start in starts]


_PARTS = ("images", "captions", "image_ids", "caption_image_ids")


class RetrievalMetrics(keras.callbacks.Callback):
    """Adds retrieval metrics of held-out data to each epoch's logs.

    The added logs are `val_recall_sum`, `val_mean_recall`, and recalls named as
    in `evaluate_retrieval`, for example `val_image_to_text/recall_at_1`. Larger
    is better, so callbacks that monitor these logs need `mode="max"`. Such
    callbacks must be listed after this one; the `fit` method of tbnets networks
    sorts them. Any other model must have the methods `embed_images` and
    `embed_text`.

    Args:
        data: held-out data that `fit` accepts: a dict of arrays, possibly with
            fewer images than captions; `EpochBatches`, whose captions are all
            used; `Examples`; or an iterable of batches. Images with the same id
            count as one candidate.

    Example:
        metrics = tbnets.RetrievalMetrics(others)
        stop = keras.callbacks.EarlyStopping(
            "val_recall_sum", mode="max", patience=2)
        network.fit(pairs, epochs=10, callbacks=[metrics, stop])
    """

    def __init__(
        self, data: Mapping[str, Array] | EpochBatches | Examples | Iterable
    ) -> None:
        super().__init__()
        self._image_size = None
        if isinstance(data, EpochBatches):
            data, self._image_size = data.examples, data.image_size
        elif isinstance(data, Mapping):
            data = _examples(checked_dict("data", data, _PARTS))
        self.data = data

    __repr__ = short_repr("data")

    def set_model(self, model: keras.Model) -> None:
        """Stores the network that is being trained."""
        super().set_model(model)
        self._embedder = Embedder(model, self._image_size)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Adds the metrics to `logs`."""
        images, texts, owners, groups = self._embeddings()
        if getattr(self.model, "learned_similarity", False):
            scores = PairScorer(self.model).scores(images, texts)
            metrics = score_tiles.evaluate_scores(scores, owners, groups)
        else:
            metrics = retrieval.evaluate_protocol(
                "full", images, texts, owners, groups, text_to_text=False
            )
        for name, value in metrics.items():
            if "recall" in name and logs is not None:
                logs[f"val_{name}"] = value

    def _embeddings(self):
        if isinstance(self.data, Examples):
            embedders = self._embedder.images, self._embedder.texts
            records = self.data.records
            rows = records.caption_to_image, records.image_groups
            return *(embed(self.data) for embed in embedders), *rows
        parts = []
        for batch in self.data:
            batch = checked_dict("data", batch, _PARTS)
            sides = self._embedder.batch(batch["images"], batch["captions"])
            parts.append([*sides, *(np.asarray(batch[x]) for x in _PARTS[2:])])
        if not parts:
            raise InputError("data", "hold batches in each epoch", "no batches")
        images, texts, *ids = map(np.concatenate, zip(*parts))
        first, owners = _rows_of(*ids)
        return images[first], texts, owners, None


def _examples(arrays):
    images, captions, *ids = (np.asarray(arrays[name]) for name in _PARTS)
    first, owners = _rows_of(*ids)
    return Examples.from_arrays(images[first], captions, owners)


def _rows_of(image_ids, caption_image_ids):
    ids, first = np.unique(image_ids, return_index=True)
    owners = np.searchsorted(ids, caption_image_ids)
    unknown_ids = np.setdiff1d(caption_image_ids, ids)
    if unknown_ids.size:
        raise InputError(
            "data",
            "hold an image for each caption",
            f"caption_image_ids={unknown_ids[0]}, which `image_ids` lacks",
        )
    return first, owners
