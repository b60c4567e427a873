"""Methods of `served.Served` that find regions of photos."""

from typing import Any

import numpy as np
import tensorflow as tf

from tbnets.checks import (
    Boxes,
    Photo,
    checked_array,
    checked_number,
)
from tbnets.data.images import (
    BrokenImageError,
    fault_of,
    read_content,
    read_photo,
    read_photo_sizes,
)
from tbnets.errors import InputError
from tbnets.evaluation import correspondences
from tbnets.evaluation.boxes import (
    check_boxes,
    clip_boxes,
    non_maximum_suppression,
)
from tbnets.features.proposals import proposer_of
from tbnets.serving.inputs import IMAGE_BYTES, Texts

SUPPRESSION = 0.5
"""IoU above which a region counts as a duplicate of a better region."""


def propose(model: Any, photo: Photo) -> np.ndarray:
    """Proposes boxes with the same settings as in the model's training.

    Args:
        model: the `Served`.
        photo: a photo, as in `embed_images`.

    Returns:
        float32 NumPy array `[n, 4]` in pixels of the upright photo, best first.
        If the whole photo was a region in training, its box comes last.

    Raises:
        BrokenImageError: the photo is broken.
        ValueError: as in `features.proposals.proposer_of`.
    """
    made_by = model.metadata.get("metadata", {})
    made_by = made_by.get("image_features_made_by", {})
    proposer = proposer_of(made_by.get("proposals", {}))
    is_decoded = isinstance(photo, np.ndarray) and photo.shape[2:] == (3,)
    return proposer(photo if is_decoded else read_photo(photo))[0]


def _inside(boxes, photo):
    """Returns boxes as float32 after checking that each overlaps the photo."""
    boxes = checked_array("boxes", boxes)
    boxes = check_boxes(boxes[None] if boxes.shape == (4,) else boxes)
    width, height = read_photo_sizes([photo])[0]
    seen = clip_boxes(boxes, width, height)
    outside = np.flatnonzero((seen[:, 2:] <= seen[:, :2]).any(axis=1))
    if outside.size:
        row = outside[0]
        raise InputError(
            "boxes",
            "overlap the photo",
            f"boxes[{row}]={boxes[row].tolist()} for a photo of {width} x "
            f"{height} pixels",
            "Pass x_min, y_min, x_max, y_max in pixels.",
        )
    return boxes.astype(np.float32)


def find_regions(  # noqa: PLR0913  (a choice is three of them)
    model: Any,
    phrases: Texts,
    photo: Photo,
    top: int = 1,
    boxes: Boxes | None = None,
    choice: str | None = None,
    choice_temperature: float | None = None,
    choice_area_exponent: float | None = None,
) -> list[list[tuple[np.ndarray, float]]]:
    """Finds the regions of a photo that phrases describe.

    If two regions have an IoU above 0.5, only the more similar one is returned.

    Args:
        model: the `Served`.
        phrases: as in `embed_phrases`.
        photo: a photo, as in `embed_images`.
        top: maximum number of regions for each phrase.
        boxes: candidates, float `[n, 4]` in pixels of the upright photo; None
            for the boxes of `propose`, which needs the `regions` extra.
        choice: `most_similar`; `expected_overlap`, the region on which many
            similar regions agree; or `mean_box`, the mean of the regions around
            the most similar region (formulas: `correspondences.Choice`). None
            for the choice in the model's metadata, or else `most_similar`.
        choice_temperature: temperature of `expected_overlap` and `mean_box`, in
            units of the similarity; None for the default.
        choice_area_exponent: exponent of a region's area in the weights of
            these two choices, 0 by default.

    Returns:
        list with the regions for each phrase, best first. A region is `(box,
        similarity)`, a float32 `[4]` and a float. If no box is proposed, the
        lists are empty.

    Raises:
        BrokenImageError: the photo is broken.
        ValueError: as in `localize` and `propose`.

    Example:
        model.find(["a red ball"], "photo.jpg")[0]  # [(box, similarity)]
    """
    if not model.has("embed_phrases"):
        raise InputError(
            "find",
            "be called on a network for phrase localization",
            f"{model.path}, which has {sorted(model.signatures)}",
            'Load tbnets.zoo.load("entities_localization"), or call `search`.',
        )
    top = checked_number("top", top, 1, whole=True)
    chosen = choice, choice_temperature, choice_area_exponent
    options = own_choice(model) if choice is None else {}
    options |= {
        k: v for k, v in zip(correspondences.CHOOSING, chosen) if v is not None
    }
    rule = correspondences.checked_choice(**options)
    content = read_content(photo)  # Encodes pixels only once.
    try:
        if boxes is None:
            is_decoded = isinstance(photo, np.ndarray)
            boxes = model.propose(photo if is_decoded else content)
        else:
            boxes = _inside(boxes, content)
        similarities = model.localize(phrases, content, boxes)
    except BrokenImageError as error:
        raise BrokenImageError(photo, error.reason) from error
    scores, answers = correspondences.answers(similarities, boxes, rule)
    answers, regions = answers.astype(np.float32), []
    for values, score, answer_boxes in zip(similarities, scores, answers):
        rows = non_maximum_suppression(boxes, score, SUPPRESSION, top)
        regions.append([(answer_boxes[i], float(values[i])) for i in rows])
    return regions


def own_choice(model):
    """Returns the `choice*` arguments from a model's metadata, or {}."""
    saved = model.metadata.get("metadata", {}).get("choice", {})
    return {
        name: saved[name] for name in correspondences.CHOOSING if name in saved
    }


def localize(
    model: Any, phrases: Texts, photo: Photo, boxes: Boxes
) -> np.ndarray:
    """Compares each phrase with each box of a photo.

    Args:
        model: the `Served`.
        phrases: as in `embed_phrases`.
        photo: a photo, as in `embed_images`.
        boxes: `[n, 4]` in pixels of the upright photo; `n` may be 0.

    Returns:
        float32 NumPy array `[m, n]`, as in `similarity`.

    Raises:
        BrokenImageError: the photo is broken.
        ValueError: the boxes are invalid, or the model does not take photos.
    """
    content = read_content(photo)
    inputs = {
        **model._input("embed_phrases", phrases),
        "boxes": tf.constant(check_boxes(boxes), tf.float32),
        IMAGE_BYTES: tf.constant(content),
    }
    answers = model._ask("localize", inputs)
    reason = answers.get("status", b"").decode()
    if reason:
        raise BrokenImageError(photo, fault_of(content) or reason)
    return answers["similarities"]
