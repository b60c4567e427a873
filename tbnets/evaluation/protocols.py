"""The field's named ways of splitting a test set before it is scored."""

from typing import NamedTuple

import numpy as np

from tbnets.evaluation import retrieval


class Protocol(NamedTuple):
    """How a test set is cut.

    Attributes:
      num_images: images the set must have, or None for any number.
      num_folds: consecutive blocks of equally many images, scored one by one.
      description: one line for `--help`.
    """

    num_images: int | None
    num_folds: int
    description: str


PROTOCOLS = {
    "full": Protocol(None, 1, "the whole set"),
    "coco_1k": Protocol(
        5000, 5, "MSCOCO: 5 folds of 1000 images by row, metrics averaged"
    ),
    "coco_5k": Protocol(5000, 1, "MSCOCO: all 5000 images at once"),
}


def evaluate_protocol(
    name: str, image_embeddings, text_embeddings, caption_to_image, **options
) -> dict:
    """Evaluates by a named protocol.

    A fold is a block of image rows with the captions of these images, wherever
    they stand. Metrics are averaged over the folds; `num_queries` is added.

    Args:
      name: a key of `PROTOCOLS`.
      image_embeddings: [num_images, dim], L2-normalised.
      text_embeddings: [num_captions, dim], L2-normalised.
      caption_to_image: int [num_captions], row of the image of each caption.
      **options: those of `retrieval.evaluate_retrieval`.

    Returns:
      Flat dict of floats with the keys of `retrieval.evaluate_retrieval`.

    Raises:
      ValueError: The protocol is unknown, the number of images is not its
        own, a fold has no captions, or the arrays are refused.
    """
    if name not in PROTOCOLS:
        raise ValueError(
            f"`name` must be a protocol. Received: name={name!r}. Use one of "
            f"{', '.join(PROTOCOLS)}."
        )
    protocol = PROTOCOLS[name]
    images, texts, rows = retrieval.checked_arrays(
        image_embeddings, text_embeddings, caption_to_image
    )
    if protocol.num_images not in (None, len(images)):
        raise ValueError(
            f"`image_embeddings` must have {protocol.num_images} rows for the "
            f"protocol {name}. Received: image_embeddings.shape="
            f'{images.shape}. Use the protocol "full", or pass the whole '
            "MSCOCO test set."
        )
    size = len(images) // protocol.num_folds
    starts = range(0, size * protocol.num_folds, size)
    captions = [np.flatnonzero(rows // size == s // size) for s in starts]
    for start, members in zip(starts, captions):
        if not members.size:
            raise ValueError(
                "`caption_to_image` must give every fold captions. Received: "
                f"none for the images {start} to {start + size - 1}. Check "
                "the order of the images."
            )
    whole = protocol.num_folds == 1
    return _averaged(
        [
            retrieval.evaluate_retrieval(
                images[start : start + size],
                texts if whole else texts[members],
                rows[members] - start,
                **options,
            )
            for start, members in zip(starts, captions)
        ]
    )


def _averaged(folds):
    """Averages the metrics of folds, over those that have them."""
    names = dict.fromkeys(name for fold in folds for name in fold)
    metrics = {}
    for name in names:
        values = [fold[name] for fold in folds if name in fold]
        combine = np.sum if name.endswith("/num_queries") else np.mean
        metrics[name] = float(combine(values))
    return metrics
