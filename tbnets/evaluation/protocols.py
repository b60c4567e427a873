"""The field's named ways of splitting a test set before it is scored."""

from typing import NamedTuple

import numpy as np

from tbnets.checked_numbers import checked_rows
from tbnets.errors import InputError, check_choice
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
    "coco_1k": Protocol(5000, 5, "MSCOCO: 5 folds of 1000 rows, averaged"),
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

    def evaluate(fold, captions, own_rows):
        own = texts if len(captions) == len(texts) else texts[captions]
        arrays = images[fold], own, own_rows
        return retrieval.evaluate_retrieval(*arrays, **options)

    return _averaged(name, len(images), rows, evaluate)


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
    counts = scores.num_images, scores.num_texts
    rows = checked_rows("caption_to_image", caption_to_image, *counts)
    numbers = np.arange(scores.num_images)

    def evaluate(fold, captions, own_rows):
        fold = scores.subset(numbers[fold], captions)
        return score_tiles.evaluate_scores(fold, own_rows)

    return _averaged(name, scores.num_images, rows, evaluate)


def _averaged(name, num_images, rows, evaluate):
    """Averages the metrics of the folds of a protocol that have them.

    Args:
      name: of the protocol.
      num_images: in all folds.
      rows: int64 [num_captions], row of the image of each caption.
      evaluate: function of a fold -> its metrics. It is given a slice of
        images, rows of captions, and of each of these its row in the slice.
    """
    check_choice("name", name, PROTOCOLS)
    protocol = PROTOCOLS[name]
    if protocol.num_images not in (None, num_images):
        raise InputError(
            f"`image_embeddings` must have {protocol.num_images} rows for "
            f"{name}. Received: {num_images} images. Use the protocol full."
        )
    size, folds = num_images // protocol.num_folds, []
    for start in range(0, size * protocol.num_folds, size):
        captions = np.flatnonzero(rows // size == start // size)
        if not captions.size:
            raise InputError(
                "`caption_to_image` must give each fold captions. Received: "
                f"none for the images {start} to {start + size - 1}."
            )
        images = slice(start, start + size)
        folds.append(evaluate(images, captions, rows[captions] - start))
    metrics = {}
    for name in dict.fromkeys(name for fold in folds for name in fold):
        values = [fold[name] for fold in folds if name in fold]
        combine = np.sum if name.endswith("/num_queries") else np.mean
        metrics[name] = float(combine(values))
    return metrics
