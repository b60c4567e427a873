"""Measures an exported model on a split of a data set.

The signatures of the model determine the metrics, unless the task has a
method `served_scores(model, split)`.
"""

import dataclasses

import numpy as np
import tensorflow as tf
import tqdm

from tbnets.checks import rows_by
from tbnets.errors import InputError
from tbnets.serving.endpoints import two_branch_endpoints
from tbnets.serving.inputs import RawRows
from tbnets.tasks.phrase_regions import (
    phrase_region_scores,
    split_with,
)
from tbnets.tasks.retrieval_scores import scores_of_model
from tbnets.tasks.scores import PhraseScores, phrase_table
from tbnets.tasks.texts import most_words
from tbnets.text.vocabulary import Tokenizer, Vocabulary

BATCH = 64
"""Number of photos in a batch."""


def served_scores(task, model, split):
    """Returns the `Scores` of an exported model on a split."""
    if hasattr(task, "served_scores"):
        return task.served_scores(model, split)
    if model.has("embed_phrases"):
        return _localization(task.split(split), model)
    if model.has("embed_image", "embed_text"):
        return scores_of_model(model, task.split(split))
    raise InputError(
        "--run_dir",
        "be a run whose exported model can be measured",
        f"a run of {type(task).__name__}, which has no `served_scores`",
    )


def branch_endpoints(task, network, fitted):
    """Returns endpoints that take the outputs of pretrained networks.

    `task` reads image features and, with a sentence encoder, learned words.
    """
    if not task.settings.texts.preset:
        return task.endpoints(network, fitted)
    words = Tokenizer(Vocabulary(fitted["words"]), most_words(fitted))
    spec = tf.TensorSpec([None, None], tf.int32, "features_and_words")
    return two_branch_endpoints(
        network,
        RawRows(spec, words),
        image_shape=network.input_shapes["images"][1:],
    )


def phrase_scores(session, model, split, phrases, regions):
    """Localizes phrases with an image-text network and with its export.

    `phrases` and `regions` are as in `phrase_region_scores`; the regions must
    include the whole photo, which the model proposes too. Returns the
    `PhraseScores` of the run and of the exported model.
    """
    run_table = phrase_region_scores(session, split, phrases, regions).table
    data = split_with(
        session.task.data, split, phrases=phrases, regions=regions
    )
    of_model = _localization(data, model)
    return PhraseScores(
        dataclasses.replace(run_table, whole_photo=False)
    ), of_model


def _localization(split, model):
    photos = split.photos.paths if model.takes_photos else None
    phrases, (store, rows) = split.phrases, split.regions
    counts = store.counts[rows]
    shape = phrases.num_phrases, int(counts.max(initial=0))
    table = np.zeros(shape, np.float32)
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
    return PhraseScores(phrase_table(phrases, table, proposals))
