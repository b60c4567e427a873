"""Methods of `served.Served` that search for photos and find regions."""

import os
import pathlib
import warnings
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tbnets.checks import (
    Boxes,
    Path,
    Photo,
    Photos,
    check_finite,
    checked_array,
    checked_number,
    refuse_single,
)
from tbnets.data.images import (
    BrokenImageError,
    fault_of,
    read_content,
    read_photo,
    read_photo_sizes,
)
from tbnets.errors import InputError, check_kind
from tbnets.evaluation import correspondences
from tbnets.evaluation.boxes import (
    check_boxes,
    clip_boxes,
    non_maximum_suppression,
)
from tbnets.features.proposals import proposer_of
from tbnets.serving import photo_index
from tbnets.serving import search as searching
from tbnets.serving.inputs import IMAGE_BYTES, Texts
from tbnets.serving.photo_index import about
from tbnets.serving.search_index import SearchIndex

SUPPRESSION = 0.5
"""IoU above which a region counts as a duplicate of a better region."""


def search(
    model: Any,
    queries: Texts = (),
    images: Path | Photos | SearchIndex | None = None,
    top: int = 5,
    *,
    like: Photos = (),
    cache: Path | Literal[False] | None = None,
) -> list[list[tuple[str | int, float]]]:
    """Finds images that match sentences or are similar to query images.

    Warns if no word of a sentence is in the vocabulary, because the results are
    then meaningless.

    Args:
        model: the `Served`.
        queries: sentences, as in `embed_text`.
        images: images as in `embed_images`; a folder of photos; embeddings `[n,
            embedding_dim]` of photos; a `SearchIndex`; or None for the index
            inside the model.
        top: number of results for each query.
        like: query images, as in `embed_images`. Their results come last.
        cache: folder that caches the embeddings of a photo folder. The next
            search then embeds only new and changed photos. None for
            FOLDER.tbnets next to the photo folder, False for no cache.

    Returns:
        list with the results for each query, best first. A result is `(image,
        similarity)`, where `image` is a path, an id in an index, or otherwise a
        row.

    Raises:
        ValueError: the model is for phrase localization; or `like` is given and
            the model has a learned similarity.

    Example:
        model.search(["a dog in the snow"], "photos", top=3)
        model.search(images="photos", like=["dog.jpg"])
    """
    top = checked_number("top", top, 1, whole=True)
    # A model exported with only `search` has no `embed_image`.
    endpoint = (
        "search" if images is None and model.has("search") else "embed_image"
    )
    if not model.has(endpoint, "embed_text"):
        other = ", or call `find`" if model.has("embed_phrases") else ""
        raise InputError(
            "search",
            "be called on a network for whole images",
            f"{model.path}, which has {sorted(model.signatures)}",
            f'Load tbnets.zoo.load("flickr8k_photos"){other}.',
        )
    if images is None and (len(like) or not model.has("search")):
        raise InputError(
            "images",
            "be a folder, photos or their embeddings",
            "None",
            "Pass a folder, such as images='photos'.",
        )
    for name, values in (("queries", queries), ("like", like)):
        if not (isinstance(values, np.ndarray) and values.ndim):
            refuse_single(name, values)
    if cache:
        advice = "Name a folder, or omit it for a folder next to the photos."
        check_kind("cache", cache, (str, os.PathLike), advice)
    if images is not None:
        names, embeddings = _gallery(model, images, cache)
    sentences = _sentences(queries)
    notes = searching.notes_on(model, sentences)
    for query, (_, note) in zip(sentences, notes):
        if note == searching.NO_WORD:
            warnings.warn(
                f'the vocabulary contains no word of "{query}": its results '
                "are meaningless",
                stacklevel=2,
            )
    if images is None:
        return _search_held(model, queries, top)
    order, similarities = searching.rank(model, queries, like, embeddings, top)
    return [
        [(names[row], float(value)) for row, value in zip(rows, values)]
        for rows, values in zip(order, similarities)
    ]


def _sentences(queries):
    texts = [q.numpy() if tf.is_tensor(q) else q for q in queries]
    return [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in texts
        if isinstance(text, str | bytes)
    ]


def _search_held(model, queries, top):
    inputs = model._input("embed_text", queries)
    k = tf.constant(min(top, tf.int32.max))  # No index has more rows.
    results = model._ask("search", {**inputs, "k": k})
    return [
        [(name.decode(), float(value)) for name, value in zip(ids, values)]
        for ids, values in zip(results["ids"], results["similarities"])
    ]


def _gallery(model, images, cache):
    if isinstance(images, SearchIndex):
        images.check_embedded_by(about(model))
        return images.ids, images
    takes_photos = model.takes_photos
    if isinstance(images, str | os.PathLike):
        folder = pathlib.Path(images)
        if not takes_photos:
            raise InputError(
                "images",
                "be features of images",
                f"the folder {folder}, for a model that takes no photos",
                "Pass an array.",
            )
        names, embeddings = photo_index.embed_folder(model, folder, cache)
        return [str(folder / name) for name in names], embeddings
    if takes_photos and getattr(images, "ndim", 0) == 2:
        images = np.asarray(images)
        if images.shape[1] != model.embedding_dim:
            raise InputError(
                "images",
                "be photos, or embeddings from `embed_images`, [n, "
                f"{model.embedding_dim}]",
                f"an array of shape {images.shape}",
                "Put a single photo into a list.",
            )
        check_finite("images", images)
        return range(len(images)), images
    if not isinstance(images, np.ndarray):
        refuse_single("images", images)
    sizes = searching.BATCH_SIZE, searching.PHOTO_BATCH_SIZE
    embed, paths = model.embed_images, str | os.PathLike
    names = [
        os.fspath(image) if isinstance(image, paths) else row
        for row, image in enumerate(images)
    ]
    return names, searching.embed(embed, images, "image", sizes[takes_photos])


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
