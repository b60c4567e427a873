"""Finds the region that a phrase names, using a network for whole photos.

The region features must come from the same convolutional network as the photo
features, either from crops or by averaging feature maps.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from tbnets.checks import rows_by, rows_of
from tbnets.data.batches import PhotoRegions
from tbnets.data.open import Data
from tbnets.data.store.reader import extraction_differences
from tbnets.errors import InputError
from tbnets.features.regions import GEOMETRY_DIM
from tbnets.progress import progress_bar
from tbnets.tasks.recipes.plan import read_recipes
from tbnets.tasks.scores import PhraseScores, phrase_table

PHOTOS_AT_ONCE = 32
PHRASES_AT_ONCE = 1024
SHARED_FACTS = ("cnn", "layers", "top", "weights_sha256")
"""Settings that must be the same for photo features and region features."""


def phrase_region_scores(session, split, phrases, regions):
    """Compares the phrases of a split with the regions of their photos.

    The last candidate of each photo is the whole photo. Returns `PhraseScores`.
    `session` is a `runs.Session` of a network for photos and captions.
    `phrases` is a file or folder of phrases with boxes. `regions` is a store of
    region features, or a recipe for such a store, which is run only on this
    split. Raises ValueError if the network does not embed image features and
    words, or if the region features come from a different network.
    """
    task, network = session.task, session.network
    reader = _check_run(session, regions)
    part = split_with(task.data, split, phrases=phrases, regions=regions)
    (store, rows), known = part.regions, part.phrases
    _check_same_network(session.state.fitted, store)
    photos = rows_of(known.images.image_ids, part.records.image_ids)
    every = PhotoRegions(store, rows)
    # The last region may be the whole photo. If not, it is added.
    holds = store.made_by.get("proposals", {}).get("whole_photo", False)
    boxes = [every.candidates(row) for row in range(len(rows))]
    boxes = [each[:-1] for each in boxes] if holds else boxes
    images = photos[known.phrase_to_image]
    width = max(map(len, boxes), default=0)
    similarities = np.zeros((known.num_phrases, width), np.float32)
    texts = _embed_phrases(network, reader, known.phrases)
    owned, wholes = rows_by(images, len(boxes)), task.split(split).images
    with progress_bar(len(boxes), "regions of phrases", "photo") as bar:
        for start in range(0, len(boxes), PHOTOS_AT_ONCE):
            photos = np.arange(len(boxes))[start : start + PHOTOS_AT_ONCE]
            seen = _embed_candidates(network, wholes, every, photos)
            for photo, candidates in zip(photos, seen):
                count = len(boxes[photo])
                scores = texts[owned[photo]] @ candidates[:count].T
                similarities[owned[photo], :count] = scores
            bar.update(len(photos))
    of_photos = {"images": images, "whole_photo": True}
    return PhraseScores(phrase_table(known, similarities, boxes, **of_photos))


def with_regions(session, regions):
    """Returns fitted values for exporting a model that localizes phrases.

    `session` must set `cnn_weights`. `regions` is a store of region features
    made by `roi_average`, or a recipe for such a store, which is run on the
    test split. If the boxes include the whole photo, the exported model can
    return it too. The returned `image_features_made_by` describes the region
    features, excluding the positions.
    """
    _check_run(session, regions)
    task, fitted = session.task, session.state.fitted
    split = split_with(task.data, task.test_split, regions=regions)
    store, _ = split.regions
    _check_same_network(fitted, store)
    made_by = {**store.made_by, "geometry": False}
    return {**fitted, "image_features_made_by": made_by}


def _check_run(session, regions):
    task, settings = session.task, session.settings
    of_photos = settings.image_encoder == "features" and not task.of_phrases
    reader = task.texts.reader(session.state.fitted) if of_photos else None
    of_words = reader is not None and not hasattr(reader, "read")
    if session.network.learned_similarity or not of_words:
        expected = "be used with a run that embeds photo features and words"
        received = f"--model={settings.run.model} and "
        received += f"--text_encoder={settings.texts.text_encoder}"
        raise InputError("--regions", expected, received)
    return reader


def split_with(data, split, **files):
    """Returns a `SplitData` with other phrases or regions.

    `files` contains values of the flags `regions` and `phrases`. Missing
    results of recipes are computed.
    """
    for name, path in files.items():
        if os.path.exists(path):
            files[name] = os.path.abspath(path)
    sources = dataclasses.replace(data.original_sources, **files)
    other = Data(sources, data.own, plan=read_recipes, photos_of=(split,))
    other.cuts = data.cuts
    return other.split(split)


def _check_same_network(fitted, store):
    known, made_by, lines = fitted["image_features_made_by"], store.made_by, []
    dim = store.dim - GEOMETRY_DIM * made_by.get("geometry", False)
    if known:  # Features from arrays have no description.
        parts = (
            {key: made_by[key] for key in SHARED_FACTS if key in made_by}
            for made_by in (known, made_by)
        )
        lines = extraction_differences(*parts, "the run", "--regions")
    lines += [
        f"{name}: {made_by[name]}, must be 1 for each layer"
        for name in ("grids", "scales")
        if {*made_by.get(name, ())} - {1}
    ]
    if lines or dim != fitted["image_dim"]:
        lines = lines or [f"{fitted['image_dim']} features, and {dim}"]
        expected = "be region features from the image network of the run"
        received = f"--regions={store.path}, which differ: {'; '.join(lines)}"
        raise InputError("--regions", expected, received)


def _embed_phrases(network, reader, phrases):
    texts, numbers = np.unique(np.array(phrases, object), return_inverse=True)
    cuts = range(PHRASES_AT_ONCE, len(texts), PHRASES_AT_ONCE)
    ids = [reader(tf.constant(part.tolist())) for part in np.split(texts, cuts)]
    return np.concatenate(list(map(network.embed_text, ids)))[numbers]


def _embed_candidates(network, photos, regions, rows):
    """Returns the embeddings of each photo's regions, then of the photo."""
    wholes = photos.batch(rows)
    places, numbers = regions.all_of(rows)
    seen = regions.take(rows[places], numbers)
    # Drop the position of regions, which photos do not have.
    seen = np.concatenate([seen[:, : wholes.shape[1]], wholes])
    embeddings = network.embed_images(tf.constant(seen, tf.float32)).numpy()
    *parts, wholes = np.split(embeddings, np.cumsum(regions.counts[rows]))
    return [np.append(part, [photo], 0) for part, photo in zip(parts, wholes)]
