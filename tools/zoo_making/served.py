"""Measures an exported model on a split of a data set.

The signatures of the model determine the metrics, unless the task has a
method `served_scores(model, split)`.
"""

import dataclasses

import numpy as np
import tqdm

from tbnets.checks import rows_by
from tbnets.errors import InputError
from tbnets.evaluation.score_tiles import PairScores
from tbnets.serving import search
from tbnets.tasks.localization.scores import LocalizationScores, empty_table
from tbnets.tasks.matching.phrase_regions import (
    phrase_region_scores,
    split_with,
)
from tbnets.tasks.matching.scores import RetrievalScores

BATCH = 64
"""Number of photos in a batch."""


def served_scores(task, model, split):
    """Returns the `Scores` of an exported model on a split."""
    if hasattr(task, "served_scores"):
        return task.served_scores(model, split)
    if model.has("embed_phrases"):
        return _localization(task.split(split), model)
    if model.has("embed_image", "embed_text"):
        return _retrieval(task.split(split), model)
    raise InputError(
        "--run_dir",
        "be a run whose exported model can be measured",
        f"a run of {type(task).__name__}, which has no `served_scores`",
        "Add this method.",
    )


def phrase_scores(session, model, split, phrases, regions):
    """Localizes phrases with an image-text network and with its export.

    `phrases` and `regions` are as in `phrase_region_scores`; the regions must
    include the whole photo. Returns the `LocalizationScores` of the run and of
    the exported model.
    """
    of_run = phrase_region_scores(session, split, phrases, regions)
    if not of_run.holds_photos:
        raise InputError(
            "--regions",
            "include the whole photo, which the model proposes too",
            f"--regions={regions}",
            "Name a recipe of boxes with --whole_photo.",
        )
    data = split_with(
        session.task.data, split, phrases=phrases, regions=regions
    )
    of_model = _localization(data, model)
    table = np.zeros_like(of_model.similarities)
    for rows, tile in zip(of_run.phrases_of_photos, of_run.similarities):
        table[rows, : tile.shape[1]] = tile
    return dataclasses.replace(of_model, similarities=table), of_model


def _retrieval(split, model):
    if model.takes_photos:
        images = split.photos.paths
    else:
        images = np.concatenate(list(split.images.chunks()))
    captions = split.records.captions
    images = search.embed(model.embed_images, images, "image", BATCH)
    texts = search.embed(model.embed_text, captions, "caption")
    pairs = None
    if model.has("compare"):  # A learned similarity is computed by pair.

        def tile(i, j):
            return model.compare(images[i], texts[j])

        def one_by_one(i, j):
            rows = zip(i[:, None], j[:, None])
            return np.concatenate([tile(*pair)[0] for pair in rows])

        pairs = PairScores(len(images), len(texts), tile, one_by_one)
    return RetrievalScores(images, texts, split.records, pairs)


def _localization(split, model):
    photos = split.photos.paths if model.takes_photos else None
    phrases, (store, rows) = split.phrases, split.regions
    counts = store.counts[rows]
    table = empty_table(phrases, counts)
    owned = rows_by(phrases.phrase_to_image, len(counts))
    proposals = []
    bar = tqdm.tqdm(rows, "localizing", disable=None)
    for image, row in enumerate(bar):
        boxes = store.boxes(row)[0]
        proposals.append(boxes)
        texts = [phrases.phrases[phrase] for phrase in owned[image]]
        if texts and len(boxes):
            table[owned[image], : len(boxes)] = (
                model.localize(texts, photos[image], boxes)
                if photos
                else model.similarity(texts, store.regions(row)[0])
            )
    return LocalizationScores(table, phrases, proposals)
