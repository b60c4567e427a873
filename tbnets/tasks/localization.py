"""Defines the task of phrase localization: finding the region of a phrase.

The networks of this task take regions as images, and phrases as captions (Wang
et al. 2018, Sec. 4).
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tbnets.checks import rows_by
from tbnets.data.batches import PhotoRegions
from tbnets.data.candidate_mining import CandidateMining
from tbnets.data.captions import same_captions
from tbnets.data.phrase_examples import (
    TABLE,
    PhraseBatches,
    PhraseExamples,
    Sampling,
    record_hard_negatives,
)
from tbnets.errors import InputError
from tbnets.evaluation.grounding import DIRECTION
from tbnets.evaluation.score_tiles import exact_scores, matrix_scores
from tbnets.serving.endpoints import region_endpoints
from tbnets.startup import raise_if_interrupted
from tbnets.tasks.builders import first_hard_epoch
from tbnets.tasks.scores import (
    PhotoFiles,
    PhraseScores,
    check_same_examples,
    phrase_table,
)
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Task
from tbnets.training.retrieval_metrics import Embedder, PairScorer


class LocalizationTask(Task):
    """Finds the regions that phrases denote. Its examples are `PhraseExamples`.

    `scorer(network)` returns the network's `RegionScorer`. `drawn` contains the
    `PhraseBatches`, or None until `batches` is called.
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
        self.drawn: PhraseBatches | None = None

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
                received = f"no phrase with a box in split {name}"
                raise InputError("--phrases", "have phrases", received)
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
        rows, same = store.rows(phrases.images.image_ids), None
        regions = PhotoRegions(store, rows)
        if settings.texts.equal_texts_match:
            same = phrases.phrase_to_text
        roles = {"positives": settings.phrases.positives}
        return PhraseExamples(phrases, texts, regions, same, roles)

    def notes(self, fitted):
        """Returns facts about the data, such as the positives per phrase."""
        notes, drawn = super().notes(fitted), self.drawn
        if drawn is not None:
            total = self.train.phrases.num_phrases
            notes["positives"] = (
                f"{drawn.num_positives / drawn.num_drawable:.1f} regions "
                f"per phrase; {total - drawn.num_drawable} phrases have none"
            )
        if self.split(self.settings.run.dev_split).photo_folder is None:
            notes["pictures"] = "none: --images is not set"
        return notes

    def start_epoch(self, network, train, epoch):
        """Turns on the hard negatives of the batches in the final epochs."""
        first, table = first_hard_epoch(self.settings), None
        if first is not None and epoch >= first:
            score = self.scorer(network).scores
            self.held = record_hard_negatives(self.held, first, train, score)
            table = self.held[TABLE]
        self.drawn.hard_negatives = table

    def batches(self, train):
        """Returns the `PhraseBatches` of the training split."""
        options = self.settings.phrases
        names = Sampling._fields
        sampling = Sampling(**{name: vars(options)[name] for name in names})
        self.drawn = PhraseBatches(train, sampling, self.settings.run.seed)
        return self.drawn

    def scores(self, network, examples):
        """Returns the `LocalizationScores` of `PhraseExamples`."""
        scores = self.scorer(network).scores(examples)
        phrases = examples.phrases
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


REGIONS_AT_ONCE = 8192


def sentence_scores(scores, records):
    """Scores all pairs of photos and sentences by their regions and phrases.

    ::

        d_rp(x, y) = mean over phrases p of y of min over regions r of x d(r, p)

    The score of a sentence without phrases is the photo's mean over other
    sentences, so that the sentence favours no photo. `records` is the
    `CaptionedImages` of the photos in `scores`, in the same order. Returns
    -d_rp as `PairScores`.

    Source: Wang et al. 2018, Sec. 5.6, Eq. 8. Departure: only annotated phrases
    with a box are used.
    """
    if scores.table.learned:
        expected = "be a run whose distances can be added"
        received = "a similarity network of phrases"
        raise InputError("--combine_with", expected, received)
    phrases = scores.examples.phrases
    texts, first = np.unique(phrases.phrase_to_text, return_index=True)
    embeddings = scores.sides["phrases"][first]
    similarities = scores.scorer.nearest(scores.examples, embeddings)
    distances = np.sqrt(np.maximum(2 - 2 * similarities, 0))
    lonely = np.flatnonzero(~np.isfinite(distances).all(axis=1))
    if lonely.size:
        received = f"no regions of {records.image_ids[lonely[0]]!r}"
        raise InputError("--regions", "have regions of every photo", received)
    columns = np.searchsorted(texts, phrases.phrase_to_text)
    captions = captions_of_phrases(phrases, records)
    table = -_mean_of_phrases(distances, columns, captions, records)
    return matrix_scores(table)


def _mean_of_phrases(distances, columns, captions, records):
    total = np.zeros((records.num_captions, len(distances)), np.float64)
    np.add.at(total, captions, distances.T[columns])
    counts = np.bincount(captions, minlength=records.num_captions)
    has_phrases = counts > 0
    if not has_phrases.any():
        received = f"no phrase of {records.path} with a box"
        raise InputError("--phrases", "have phrases of the captions", received)
    total[has_phrases] /= counts[has_phrases, None]
    total[~has_phrases] = total[has_phrases].mean(axis=0)
    return total.T.astype(np.float32)


def captions_of_phrases(phrases, records):
    """Returns the caption row for each phrase, int64 `[num_phrases]`.

    Each caption of `phrases` is matched to the most similar caption of the same
    photo in `records`. The photos must be the same, in the same order.
    """
    check_same_examples(records, phrases.images, ("image_ids",))
    photos = np.arange(records.num_images)
    rows, _ = same_captions(phrases.images, records, photos)
    captions = rows[phrases.phrase_to_caption]
    if (captions < 0).any():
        lost = phrases.phrase_to_caption[np.argmin(captions)]
        image = int(phrases.images.caption_to_image[lost])
        received = f"photo {records.image_ids[image]!r} without the caption "
        received += repr(phrases.images.captions[lost])
        raise InputError("--captions", "be those of the phrases", received)
    return captions


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LocalizationScores(PhraseScores):
    """The similarities of `PhraseExamples`, computed by a `RegionScorer`."""

    scorer: "RegionScorer"
    examples: PhraseExamples

    def pair_scores(self, records):
        """Returns the `sentence_scores`, and False: they are not learned."""
        return sentence_scores(self, records), False


class RegionScorer:
    """Scores the regions and phrases of splits; traces each graph once."""

    def __init__(self, network):
        self.network = network
        self._embedder = Embedder(network)
        features = tf.TensorSpec(network.input_shapes["images"], tf.float32)
        self._embed = tf.function(
            lambda rows: network.embed_images(rows, training=False),
            input_signature=[features],
            autograph=False,
        )
        specs = [tf.TensorSpec((None, network.embedding_dim), tf.float32)] * 2
        self._compare = tf.function(
            network.similarities, input_signature=specs, autograph=False
        )

    def scores(self, examples, progress=lambda count: None):
        """Returns the `LocalizationScores` of `PhraseExamples`.

        `progress` is called with the number of newly scored photos.
        """
        phrases, regions = examples.phrases, examples.regions
        embeddings = self._embedder.texts(examples)
        width = int(regions.counts.max(initial=0))
        table = np.zeros((phrases.num_phrases, width), np.float32)
        owned = rows_by(phrases.phrase_to_image, phrases.images.num_images)
        first = np.zeros((0, self.network.embedding_dim), np.float32)
        for images, parts in self._regions(regions):
            first = first if len(first) else np.concatenate(parts)
            for image, vectors in zip(images, parts):
                rows = owned[image]
                if len(rows) and len(vectors):
                    scores = self._compare(vectors, embeddings[rows])
                    table[rows, : len(vectors)] = scores.numpy().T
            raise_if_interrupted()
            progress(len(images))
        learned = self.network.learned_similarity

        def compare(images, columns, rows):
            rows_in_store = regions.rows(images, columns)
            vectors = self._embed_rows(regions.store, rows_in_store)
            return self._pair_scores(vectors, embeddings[rows])

        return LocalizationScores(
            phrase_table(phrases, table, regions.boxes, learned=learned),
            compare,
            sides={"regions": first, "phrases": embeddings},
            scorer=self,
            examples=examples,
        )

    def nearest(self, examples, text_embeddings):
        """Returns the similarity of each photo's best region to each text.

        `text_embeddings` is float32 `[n, embedding_dim]`. Returns a float32
        array `[num_images, n]`, with -infinity for photos without regions.
        """
        shape = len(examples.regions.counts), len(text_embeddings)
        table = np.full(shape, -np.inf, np.float32)
        for images, parts in self._regions(examples.regions):
            for image, vectors in zip(images, parts):
                if len(vectors):
                    scores = self._compare(vectors, text_embeddings)
                    table[image] = scores.numpy().max(axis=0)
        return table

    def _pair_scores(self, regions, phrases):
        if not self.network.learned_similarity:
            return exact_scores(regions, phrases)
        return PairScorer(self.network).scores(regions, phrases)

    def _embed_rows(self, store, rows):
        cuts = range(REGIONS_AT_ONCE, len(rows), REGIONS_AT_ONCE)
        parts = map(store.take_regions, np.split(rows, cuts))
        return np.concatenate([self._embed(part).numpy() for part in parts])

    def _regions(self, regions):
        start, counts = 0, regions.counts
        while start < len(counts):
            ends = np.cumsum(counts[start:])
            fitting = int(np.searchsorted(ends, REGIONS_AT_ONCE, "right"))
            images = np.arange(start, start + max(1, fitting))
            places, numbers = regions.all_of(images)
            features = regions.take(images[places], numbers)
            vectors = self._embed(features).numpy()
            yield images, np.split(vectors, ends[: len(images) - 1])
            start += len(images)
