"""The field's named ways of splitting a test set before it is scored."""

from typing import NamedTuple

import numpy as np

from tbnets.checked_numbers import checked_rows
from tbnets.errors import InputError
from tbnets.evaluation import checks, retrieval, score_tiles


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
    images, texts, rows = checks.checked_arrays(
        image_embeddings, text_embeddings, caption_to_image
    )
    folds = list(_folds(name, len(images), rows))
    return _averaged(
        [
            retrieval.evaluate_retrieval(
                images[fold],
                texts if len(folds) == 1 else texts[captions],
                rows[captions] - fold.start,
                **options,
            )
            for fold, captions in folds
        ]
    )


def evaluate_scores_protocol(name: str, scores, caption_to_image) -> dict:
    """Evaluates by a named protocol what scores pairs.

    Args:
      name: a key of `PROTOCOLS`.
      scores: `score_tiles.PairScores`.
      caption_to_image: int [num_captions], row of the image of each caption.

    Returns:
      Flat dict of floats, as of `score_tiles.evaluate_scores`.

    Raises:
      ValueError: as `evaluate_protocol`.
    """
    rows = checked_rows(
        "caption_to_image",
        caption_to_image,
        scores.num_images,
        scores.num_texts,
    )
    numbers = np.arange(scores.num_images)
    return _averaged(
        [
            score_tiles.evaluate_scores(
                scores.subset(numbers[fold], captions),
                rows[captions] - fold.start,
            )
            for fold, captions in _folds(name, scores.num_images, rows)
        ]
    )


def _folds(name, num_images, rows):
    """Yields the folds of a protocol: slice of images, rows of captions."""
    if name not in PROTOCOLS:
        raise InputError(
            f"`name` must be a protocol. Received: name={name!r}. Use one of "
            f"{', '.join(PROTOCOLS)}."
        )
    protocol = PROTOCOLS[name]
    if protocol.num_images not in (None, num_images):
        raise InputError(
            f"`image_embeddings` must have {protocol.num_images} rows for the "
            f"protocol {name}. Received: {num_images} images. Use the "
            'protocol "full", or pass the whole MSCOCO test set.'
        )
    size = num_images // protocol.num_folds
    for start in range(0, size * protocol.num_folds, size):
        captions = np.flatnonzero(rows // size == start // size)
        if not captions.size:
            raise InputError(
                "`caption_to_image` must give every fold captions. Received: "
                f"none for the images {start} to {start + size - 1}. Check "
                "the order of the images."
            )
        yield slice(start, start + size), captions


def _averaged(folds):
    """Averages the metrics of folds, over those that have them."""
    names = dict.fromkeys(name for fold in folds for name in fold)
    metrics = {}
    for name in names:
        values = [fold[name] for fold in folds if name in fold]
        combine = np.sum if name.endswith("/num_queries") else np.mean
        metrics[name] = float(combine(values))
    return metrics
