"""Defines the task of phrase localization: finding the region of a phrase.

The networks of this task take regions as images, and phrases as captions (Wang
et al. 2018, Sec. 4).
"""

import dataclasses
import functools

from tbnets.data.localization.examples import (
    TABLE,
    PhraseBatches,
    PhraseExamples,
    PhraseSampler,
    Sampling,
    record_hard_negatives,
)
from tbnets.data.localization.mining import CandidateMining
from tbnets.errors import InputError
from tbnets.evaluation.grounding import DIRECTION
from tbnets.serving.endpoints import region_endpoints
from tbnets.tasks.builders import first_hard_epoch
from tbnets.tasks.localization.scores import RegionScorer
from tbnets.tasks.scores import PhotoFiles
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Task


class LocalizationTask(Task):
    """Finds the regions that phrases denote. Its examples are `PhraseExamples`.

    `scorer(network)` returns the network's `RegionScorer`. `sampler` is the
    `PhraseSampler` of the batches, or None until `batches` is called.
    """

    flag_groups = ("regions", "phrases")
    best_metric = f"{DIRECTION}/recall_at_1"
    made_by = {
        "regions": "image_features_made_by",
        "text_features": "text_features_made_by",
    }
    of_phrases = True
    mining = CandidateMining()

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.scorer = functools.lru_cache(maxsize=1)(RegionScorer)
        self.sampler: PhraseSampler | None = None

    def describe(self, network):
        """Returns a text with the encoders and the embedding size."""
        dim, texts = self.train.regions[0].dim, self.settings.texts.text_encoder
        return f"regions of {dim} + {texts} -> {network.embedding_dim}"

    def check(self, queries=()):
        """Raises an error if splits, phrases or regions are missing."""
        super().check(queries)
        settings = self.settings
        first_hard_epoch(settings)
        splits = self.data.check_splits()
        for name, phrases in self.data.parts("phrases", splits).items():
            if not phrases.num_phrases:
                raise InputError(
                    "--phrases",
                    "have phrases of every split",
                    f"--phrases={settings.regions.phrases}, in which split "
                    f"{name} has no phrase with a box",
                    "Use other phrases, or other splits.",
                )
        self.data.parts("regions", splits)
        self.texts.check(splits)
        if settings.run.export:
            self.photo_reader(self.train.regions[0].made_by)
        if self.data.sources.images:
            self.data.parts("photos", splits)

    def fit(self):
        """Returns the `Fitted` values of the texts and regions."""
        store, _ = self.train.regions
        new = {"image_dim": store.dim, "image_features_made_by": store.made_by}
        return super().fit() | new

    def load(self, split, fitted):
        """Returns the `PhraseExamples` of a split."""
        split, settings = self.split(split), self.settings
        phrases, (store, _) = split.phrases, split.regions
        texts = self.texts.rows(split, fitted)
        rows = store.rows(phrases.images.image_ids)
        same = (
            phrases.phrase_to_text if settings.texts.equal_texts_match else None
        )
        roles = {"positives": settings.phrases.positives}
        return PhraseExamples(phrases, texts, store, rows, same, roles)

    def notes(self, fitted):
        """Returns facts about the data, such as the positives per phrase."""
        notes, sampler = super().notes(fitted), self.sampler
        if sampler is not None:
            total = self.train.phrases.num_phrases
            notes["positives"] = (
                f"{sampler.num_positives / sampler.num_drawable:.1f} regions "
                f"per phrase; {total - sampler.num_drawable} phrases have none"
            )
        if self.split(self.settings.run.dev_split).photo_folder is None:
            notes["pictures"] = "none: --images is not set"
        return notes

    def start_epoch(self, network, train, epoch):
        """Turns on the sampler's hard negatives in the final epochs."""
        first, table = first_hard_epoch(self.settings), None
        if first is not None and epoch >= first:
            score = self.scorer(network).scores
            self.held = record_hard_negatives(self.held, first, train, score)
            table = self.held[TABLE]
        self.sampler.hard_negatives = table

    def batches(self, train):
        """Returns the `PhraseBatches` of the training split."""
        options = self.settings.phrases
        sampling = Sampling(
            options.pairs_per_batch,
            options.phrases_per_image,
            options.regions_per_phrase,
            options.phrases_per_region,
            options.candidates_per_image,
            options.negative_regions,
        )
        self.sampler = PhraseSampler(train, sampling, self.settings.run.seed)
        return PhraseBatches(train, self.sampler)

    def scores(self, network, examples):
        """Returns the `LocalizationScores` of `PhraseExamples`."""
        scores, phrases = (
            self.scorer(network).scores(examples),
            examples.phrases,
        )
        folder = self.split(examples.records.split).photo_folder
        if folder is None:
            return scores
        photos = PhotoFiles(folder, phrases.images.names, phrases.image_sizes)
        return dataclasses.replace(scores, photos=photos)

    def endpoints(self, network, fitted):
        """Returns the endpoints for phrases, regions and their scores."""
        return endpoints_of_phrases(self, network, fitted)


def endpoints_of_phrases(task, network, fitted):
    """Returns the endpoints for phrases, regions and their scores.

    `task` is a `Task`, which may match whole photos instead of regions.
    """
    reader = task.texts.reader(fitted)
    return region_endpoints(
        network,
        reader,
        region_dim=fitted["image_dim"],
        text_dim=None if reader else fitted["text_dim"],
        read_regions=task.photo_reader(fitted["image_features_made_by"]),
    )
