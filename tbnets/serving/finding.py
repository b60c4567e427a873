"""Questions to a whole model: a folder's photos, the regions of one photo.

The functions are methods of `served.Served`.
"""

import os
import pathlib
from typing import Any

import numpy as np

from tbnets.annotations import Boxes, Path, Photo, Photos
from tbnets.boxes import non_maximum_suppression
from tbnets.errors import InputError
from tbnets.features.proposals import proposer_of
from tbnets.images import read_photo
from tbnets.serving import index
from tbnets.serving import search as searching
from tbnets.serving.served_inputs import Texts

SUPPRESSION = 0.5
"""A region that overlaps a better one by more is no answer of its own."""


def search(
    model: Any, queries: Texts, images: Path | Photos, top: int = 5
) -> list[list[tuple[str | int, float]]]:
    """Finds the images that answer a sentence best.

    Args:
        model: the `Served`.
        queries: as in `embed_text`.
        images: as in `embed_images`; or a folder, of which all photos are
            searched, while files that are none are told on standard error and
            left out; or, where the model takes photos, float array `[n,
            embedding_dim]`, what `embed_images` returned.
        top: number of answers for each query.

    Returns:
        list with a list for each query, best first, of `(image,
        similarity)`: the path, or the row where images have none.

    Example:
        model.search(["a dog in the snow"], "photos", top=3)
    """
    if isinstance(images, str | os.PathLike):
        images, embeddings = _embed_folder(model, pathlib.Path(images))
    elif model.takes_photos and isinstance(images, np.ndarray):
        embeddings = images
    else:
        embeddings = searching.embed(model.embed_images, images, "image")
    texts = searching.embed(model.embed_text, queries, "query")
    similarities = model.compare(embeddings, texts).T
    order, similarities = searching.best(similarities, top)
    return [
        [(_name(images, row), float(value)) for row, value in zip(rows, values)]
        for rows, values in zip(order, similarities)
    ]


def _embed_folder(model, folder):
    """Returns the photos of a folder, and their embeddings."""
    if not model.takes_photos:
        raise InputError(
            "`images` must be features of images. Received: a folder, "
            f"{folder}, and the model takes no photos. Give an array."
        )
    names, rows = index.embed_folder(model, folder)
    return [folder / name for name in names], rows


def _name(images, row):
    """Returns the path of an image, or its row where it has none."""
    image = images[row]
    is_path = isinstance(image, str | os.PathLike)
    return os.fspath(image) if is_path else int(row)


def propose(model: Any, photo: Photo) -> np.ndarray:
    """Proposes boxes as they were proposed for the training.

    Args:
        model: the `Served`.
        photo: one, as in `embed_images`.

    Returns:
        float32 NumPy array `[n, 4]` in pixels of the upright photo, best
        first; n may be 0.

    Raises:
        BrokenImageError: the photo is none.
        ValueError: see `features.proposals.proposer_of`.
    """
    made_by = model.metadata.get("metadata", {})
    made_by = made_by.get("image_features_made_by", {})
    proposer = proposer_of(made_by.get("proposals", {}))
    is_decoded = isinstance(photo, np.ndarray) and photo.shape[2:] == (3,)
    return proposer(photo if is_decoded else read_photo(photo))[0]


def find(
    model: Any,
    phrases: Texts,
    photo: Photo,
    top: int = 1,
    boxes: Boxes | None = None,
) -> list[list[tuple[np.ndarray, float]]]:
    """Finds the regions of a photo that phrases name.

    Of regions that overlap by more than half, the best one answers for all of
    them.

    Args:
        model: the `Served`.
        phrases: as in `embed_phrases`.
        photo: as in `localize`.
        top: most regions for each phrase.
        boxes: float `[n, 4]` to choose from, in pixels of the upright photo;
            None for those that `propose` finds, which needs OpenCV (the extra
            `regions`).

    Returns:
        list with a list for each phrase, best first, of `(box, similarity)`:
        float32 `[4]` and a float. It is empty where nothing is proposed.

    Raises:
        BrokenImageError: the photo is none.
        ValueError: see `localize` and `propose`.

    Example:
        model.find(["a red ball"], "photo.jpg")[0]  # [(box, similarity)]
    """
    boxes = model.propose(photo) if boxes is None else boxes
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    found = []
    for row in model.localize(phrases, photo, boxes):
        kept = non_maximum_suppression(boxes, row, SUPPRESSION, top)
        found.append([(boxes[one], float(row[one])) for one in kept])
    return found
