"""How well a network retrieves, in the logs of each epoch of `fit`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from tbnets.annotations import Array
from tbnets.checked_numbers import checked_dict
from tbnets.data.batches import EpochBatches
from tbnets.data.examples import Examples
from tbnets.errors import InputError
from tbnets.evaluation import retrieval, score_tiles
from tbnets.short_repr import short_repr
from tbnets.training.embedder import Embedder
from tbnets.training.pair_scorer import PairScorer

_PARTS = ("images", "captions", "image_ids", "caption_image_ids")


class RetrievalMetrics(keras.callbacks.Callback):
    """Adds the retrieval of held-out data to the logs of each epoch.

    They get `val_recall_sum`, `val_mean_recall`, and the recalls of both
    directions by the names of `evaluate_retrieval`, such as
    `val_image_to_text/recall_at_1`, for any other callback to monitor; larger
    is better: tell these `mode="max"`. Keras calls callbacks in their order,
    and what reads the logs must come after what adds to them. The `fit` of a
    network of this package sees to that; in that of another model, which must
    have `embed_images` and `embed_text`, this one stands first.

    Args:
        data: what `fit` takes: a dict of arrays, where the images may also be
            fewer than the captions; `EpochBatches`, of which all captions
            count; `Examples`; or an iterable of batches. An image that comes
            more than once, told by its id, is one candidate.

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
        elif isinstance(data, Iterator) or not (
            isinstance(data, Examples) or hasattr(data, "__iter__")
        ):
            raise InputError(
                "`data` must be what `fit` takes: a dict of arrays, "
                "EpochBatches, or batches for more than one epoch. Received: "
                f"{type(data).__name__}. Make a list of a generator's batches."
            )
        self.data = data

    __repr__ = short_repr("data")

    def set_model(self, model: keras.Model) -> None:
        """Takes the network that is trained."""
        super().set_model(model)
        self._embedder = Embedder(model, self._image_size)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Adds to `logs`."""
        images, texts, owners = self._embeddings()
        if getattr(self.model, "learned_similarity", False):
            scores = PairScorer(self.model).scores(images, texts)
            found = score_tiles.evaluate_scores(scores, owners)
        else:
            found = retrieval.evaluate_retrieval(
                images, texts, owners, text_to_text=False
            )
        for name, value in found.items():
            if "recall" in name and logs is not None:
                logs[f"val_{name}"] = value

    def _embeddings(self):
        """Returns those of images and texts, and `caption_to_image`."""
        if isinstance(self.data, Examples):
            both = self._embedder.images, self._embedder.texts
            owners = self.data.records.caption_to_image
            return *(embed(self.data) for embed in both), owners
        parts = []
        for batch in self.data:
            batch = checked_dict("data", batch, _PARTS)
            sides = self._embedder.batch(batch["images"], batch["captions"])
            parts.append([*sides, *(np.asarray(batch[x]) for x in _PARTS[2:])])
        if not parts:
            raise InputError(
                "`data` must hold a batch in each epoch. Received: none. Give "
                "what can be gone through again, such as a list of batches."
            )
        images, texts, *ids = map(np.concatenate, zip(*parts))
        first, owners = _rows_of(*ids)
        return images[first], texts, owners


def _examples(arrays):
    """Returns `Examples` of a dict of arrays, each image once."""
    images, captions, *ids = (np.asarray(arrays[name]) for name in _PARTS)
    first, owners = _rows_of(*ids)
    return Examples.from_arrays(images[first], captions, owners)


def _rows_of(image_ids, caption_image_ids):
    """Returns a row of each image, and which of these each caption is of."""
    known, first = np.unique(image_ids, return_index=True)
    owners = np.searchsorted(known, caption_image_ids)
    strange = np.setdiff1d(caption_image_ids, known)
    if strange.size:
        raise InputError(
            "`data` must hold the image of each caption. Received: "
            f"caption_image_ids={strange[0]}, which image_ids has not. Number "
            "the ids of images and captions together."
        )
    return first, owners
