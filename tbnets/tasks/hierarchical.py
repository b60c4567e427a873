"""Defines the task of HM-LSTM, which matches texts with photos and regions."""

import dataclasses
import functools
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.checks import rows_of
from tbnets.data.batches import PhotoRegions
from tbnets.data.captions import same_captions
from tbnets.data.phrase_pairs import (
    CHOICE,
    CONFIDENCE,
    PairBatches,
    PairExamples,
    noun_phrases,
)
from tbnets.errors import InputError
from tbnets.evaluation.grounding import PhraseTable
from tbnets.evaluation.score_tiles import exact_scores
from tbnets.progress import progress_bar
from tbnets.serving.endpoints import node_endpoints
from tbnets.tasks.matching import MatchingTask
from tbnets.tasks.retrieval_scores import points_of, shown_captions
from tbnets.tasks.scores import FEW_POINTS, PhotoFiles, PhraseScores
from tbnets.tasks.settings.settings import Settings
from tbnets.text.packed_trees import TreeRows
from tbnets.text.vocabulary import split_words
from tbnets.training.retrieval_metrics import Embedder
from tbnets.visualization.montage import spread_evenly
from tbnets.visualization.plots import PHRASE


def shown_phrases(examples, captions):
    """Selects evenly spread noun phrases with different wordings.

    Returns the rows of at most `len(captions)` noun phrases.
    """
    rows = examples.phrases.rows_of(captions)
    _, first = np.unique(examples.phrases.texts[rows], return_index=True)
    return rows[np.sort(first)][spread_evenly(len(first), len(captions))]


def phrase_texts(examples, rows):
    """Returns the words of noun phrases, as spelled in their captions."""
    captions, owners = np.unique(
        examples.phrases.captions[rows], return_inverse=True
    )
    captions = [examples.records.captions[caption] for caption in captions]
    words = split_words(captions).to_list() if captions else []
    spans = zip(owners, examples.phrases.spans[rows])
    return [b" ".join(words[i][slice(*span)]).decode() for i, span in spans]


PHOTOS_AT_ONCE = 128
REGIONS_AT_ONCE = 8192
PHRASES_AT_ONCE = 1024


class Matcher:
    """Finds the region that each phrase names, with graphs traced only once.

    `image_size` is the side length of decoded photos in pixels, or None if the
    network reads features.

    Source: Niu et al. 2017, Sec. 3.3.
    """

    def __init__(self, network, image_size=None):
        self.network = network
        self._embedder = Embedder(network, image_size)
        specs = [
            tf.TensorSpec((None, *TreeRows.shape), TreeRows.dtype),
            tf.TensorSpec((None,), tf.int32),
            tf.TensorSpec((None, network.region_dim), tf.float32),
            tf.TensorSpec((None, network.embedding_dim), tf.float32),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        ]
        self._compare = tf.function(self._similarities, specs, autograph=False)

    def match(self, examples):
        """Chooses the most similar candidate for every phrase.

        Returns a dict: `CHOICE` holds the candidates' numbers, int16
        `[num_phrases]`, and `CONFIDENCE` holds their similarities, float32
        `[num_phrases]`.
        """
        table = self._table(examples)
        choices = table.argmax(axis=1).astype(np.int16)
        return {CHOICE: choices, CONFIDENCE: table.max(axis=1)}

    def scores(self, examples, links=None, folder=None):
        """Returns the `NounPhraseScores` of `PairExamples`.

        `links` contains the known `Links`, and `folder` the photos.
        """
        held = {"examples": examples, "matcher": self, "folder": folder}
        if links is None:
            return NounPhraseScores(None, **held)
        photos = range(examples.records.num_images)
        candidates = [examples.regions.candidates(photo) for photo in photos]

        def compare(images, columns, rows):
            return exact_scores(
                self._embed_candidates(examples, images, columns),
                self.embed_phrases(examples, links.phrases[rows]),
            )

        exact = float(links.is_exact.mean()) if len(links.boxes) else np.nan
        held["facts"] = {
            "correspondence_exact_spans": exact,
            "correspondence_lost": float(links.num_lost),
        }
        if folder is not None:
            sizes = np.array([boxes[-1, 2:] for boxes in candidates])
            held["photos"] = PhotoFiles(folder, examples.records.names, sizes)
        table = PhraseTable(
            self._table(examples)[links.phrases],
            candidates,
            phrase_texts(examples, links.phrases),
            links.boxes,
            links.images,
            links.things,
            whole_photo=True,
        )
        return NounPhraseScores(table, compare, **held)

    def _table(self, examples):
        """Returns the similarities of all phrases, `[num_phrases, width]`.

        They are -infinity after the candidates of a phrase's photo.
        """
        images = self._embedder.images(examples)
        groups = examples.records.caption_rows()
        width = int(examples.regions.counts.max(initial=0)) + 1
        shape = len(examples.phrases.captions), width
        similarities = np.full(shape, -np.inf, np.float32)
        with progress_bar(len(images), "regions of phrases", "photo") as bar:
            for start in range(0, len(images), PHOTOS_AT_ONCE):
                rows = np.arange(len(images))[start : start + PHOTOS_AT_ONCE]
                captions = np.concatenate([groups[row] for row in rows])
                phrases = examples.phrases.rows_of(captions)
                if len(phrases):
                    part = self._photo_scores(examples, rows, captions, images)
                    similarities[phrases, : part.shape[1]] = part
                bar.update(len(rows))
        return similarities

    def _embed_candidates(self, examples, images, numbers):
        vectors = self._embedder.images(examples)[images]
        rows = np.flatnonzero(numbers < examples.regions.counts[images])
        for start in range(0, len(rows), REGIONS_AT_ONCE):
            part = rows[start : start + REGIONS_AT_ONCE]
            features = examples.regions.take(images[part], numbers[part])
            vectors[part] = self.network.embed_regions(features)
        return vectors

    def embed_phrases(self, examples, rows):
        """Returns the embeddings of phrases, float32 `[n, dim]`.

        Args:
            examples: `PairExamples`.
            rows: int `[n]`, rows of the phrases.
        """
        vectors = np.zeros((len(rows), self.network.embedding_dim), np.float32)
        for start in range(0, len(rows), PHRASES_AT_ONCE):
            part = slice(start, start + PHRASES_AT_ONCE)
            captions = examples.phrases.captions[rows[part]]
            lengths = examples.texts.lengths[captions]
            nodes = np.cumsum(lengths) - lengths
            nodes += examples.phrases.nodes[rows[part]]
            nodes, trees = nodes.astype("int32"), examples.texts.batch(captions)
            _, vectors[part] = self.network.embed_nodes(trees, nodes)
        return vectors

    def _photo_scores(self, examples, rows, captions, images):
        """Returns similarities `[p, k]`, which are -infinity for padding."""
        regions, texts = examples.regions, examples.texts
        places, numbers = regions.all_of(rows)
        counts = regions.counts[rows]
        lengths = texts.lengths[captions]
        phrases, _, nodes = examples.phrases.in_batch(captions, lengths)
        owners = examples.phrase_images[phrases] - rows[0]
        # The candidates of a photo are its regions, then the photo itself.
        firsts = np.cumsum(counts) - counts
        columns = np.arange(int(counts.max(initial=0)) + 1)
        table = firsts[:, None] + columns
        photo = len(places) + np.arange(len(rows))[:, None]
        table = np.where(columns < counts[:, None], table, photo)
        trees = texts.batch(captions), nodes.astype(np.int32)
        features = regions.take(rows[places], numbers), images[rows]
        tables = [each[owners].astype(np.int32) for each in (table, counts)]
        return self._compare(*trees, *features, *tables).numpy()

    def _similarities(self, captions, nodes, regions, images, table, counts):
        _, phrases = self.network.embed_nodes(captions, nodes)
        seen = tf.concat([self.network.embed_regions(regions), images], axis=0)
        scores = tf.einsum("pd,pkd->pk", phrases, tf.gather(seen, table))
        columns = tf.range(tf.shape(table)[1])
        is_candidate = columns <= counts[:, None]
        return tf.where(is_candidate, scores, float("-inf"))


class Links(NamedTuple):
    """Annotated links from noun phrases to boxes.

    Attributes:
        phrases: int64 `[num_links]`, rows of the noun phrases.
        boxes: float64 `[num_links, 4]`, annotated boxes in pixels.
        images: int64 `[num_links]`, row of the link's photo.
        things: int64 `[num_links]`, id of the link's object.
        is_exact: bool `[num_links]`, whether the noun phrase has exactly the
            words of the link.
        num_lost: number of other links, for which there is no noun phrase.
    """

    phrases: np.ndarray
    boxes: np.ndarray
    images: np.ndarray
    things: np.ndarray
    is_exact: np.ndarray
    num_lost: int


def find_links(known, records, phrases):
    """Finds the noun phrases that match phrases with known boxes.

    Two captions match if their letters are the same. `known` is the
    `PhraseRegions` of the photos in `records`, and `phrases` is the
    `NounPhrases` of its captions. Returns `Links`.
    """
    photos = rows_of(known.images.image_ids, records.image_ids)
    rows, has_same_words = same_captions(known.images, records, photos)
    # Spans count words, so they are invalid if the words of a caption differ.
    places = np.where(has_same_words, rows, -1)
    starts = _word_starts(known.images.captions)
    captions = known.phrase_to_caption
    spans = [starts[row][span] for row, span in zip(captions, known.spans)]
    spans = np.array(spans, np.int64).reshape(-1, 2)
    matches, is_exact = phrases_of_spans(places[captions], spans, phrases)
    linked = np.flatnonzero(matches >= 0)
    return Links(
        matches[linked],
        known.boxes[linked],
        photos[known.phrase_to_image[linked]],
        known.phrase_to_chain[linked],
        is_exact[linked],
        len(matches) - len(linked),
    )


def phrases_of_spans(captions, spans, phrases):
    """Finds, for each span of words, the noun phrase with exactly these words.

    If there is none, finds the smallest noun phrase that contains the last word
    of the span. In English, this word is usually the head noun.

    `captions`, int `[n]`, contains the rows of the spans' captions, or -1.
    `spans`, int `[n, 2]`, contains half-open ranges of words. `phrases` has
    `spans` and `starts`, like `NounPhrases`. Returns (rows, is_exact): the row
    of the noun phrase, int64 `[n]`, or -1 if there is none; and whether it has
    exactly the span's words, bool `[n]`.
    """
    no_size = np.iinfo(np.int64).max
    rows = np.full(len(captions), -1, np.int64)
    is_exact = np.zeros(len(captions), bool)
    for i, (caption, (start, end)) in enumerate(zip(captions, spans)):
        if caption < 0:
            continue
        first, last = phrases.starts[caption], phrases.starts[caption + 1]
        nodes = phrases.spans[first:last]
        holds = (nodes[:, 0] < end) & (end <= nodes[:, 1])
        sizes = np.where(holds, nodes[:, 1] - nodes[:, 0], no_size)
        sizes[(nodes == (start, end)).all(axis=1)] = 0
        if (least := sizes.min(initial=no_size)) < no_size:
            rows[i], is_exact[i] = first + sizes.argmin(), least == 0
    return rows, is_exact


def _word_starts(captions):
    """Counts the words that precede each space-separated piece of a caption."""
    pieces = [caption.split() for caption in captions]
    flat = [piece for row in pieces for piece in row]
    counts = np.zeros(0, np.int64)
    if flat:
        counts = split_words(flat).row_lengths().numpy()
    ends = np.cumsum([len(row) for row in pieces])
    return [np.cumsum(np.append(0, n)) for n in np.split(counts, ends[:-1])]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NounPhraseScores(PhraseScores):
    """The similarities of noun phrases to the candidates of their photos.

    `folder` is the folder of the photos, or None.
    """

    examples: PairExamples
    matcher: Matcher
    folder: pathlib.Path | None = None

    def points(self, most=FEW_POINTS):
        """Returns `Points` of the noun phrases in some captions."""
        examples = self.examples
        _, captions = shown_captions(examples.records, most)
        rows = shown_phrases(examples, captions)
        vectors = self.matcher.embed_phrases(examples, rows)
        texts = phrase_texts(examples, rows)
        places = examples.phrase_images[rows], examples.records, self.folder
        return points_of(PHRASE, vectors, texts, *places)


class HierarchicalTask(MatchingTask):
    """Matches photos with sentences, and regions with noun phrases.

    The examples of a split are `PairExamples`.

    For the first `correspondence_epochs` epochs, the network learns only from
    photos and sentences. Each later epoch first assigns to every training
    phrase the most similar candidate in its photo: a region or the whole photo.
    The network then also learns from these pairs (`held`), weighted by their
    similarity. Known links between phrases and boxes are used only for
    evaluation.

    Source: Niu et al. 2017, Fig. 3. Departure: each "fine-grained embedding
    learning" takes one epoch. The paper gives no length.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        encoder = settings.texts.text_encoder
        if encoder != "h_lstm":
            expected = "be h_lstm with --model=hm_lstm"
            raise InputError("--text_encoder", expected, encoder)
        self._links = {}
        self.matcher = functools.lru_cache(maxsize=1)(
            lambda network: Matcher(network, self.image_size)
        )
        self.made_by["regions"] = "region_features_made_by"

    def check(self, queries=()):
        """Raises an error if splits, trees or regions are missing."""
        super().check(queries)
        options = self.settings.correspondences
        if options.region_branch == "own" and not options.region_mean_weight:
            expected = "be > 0 to train the branch of --region_branch=own"
            raise InputError("--region_mean_weight", expected, "0")
        splits = self.data.check_splits()
        self.data.parts("regions", splits)
        if self.knows_links:  # Only evaluated splits need links.
            self.data.parts("phrases", splits[1:])

    @property
    def knows_links(self):
        """Whether the true boxes of phrases are known."""
        return bool(self.data.sources.phrases)

    def fit(self):
        """Returns the `Fitted` values of the photos, texts and regions."""
        fitted = super().fit()
        store, _ = self.train.regions
        is_shared = self.settings.correspondences.region_branch == "shared"
        dim = fitted["image_dim"]
        if is_shared and dim != store.dim:
            expected = "be own if photos and regions have different features"
            received = f"{dim} features per photo and {store.dim} per region"
            raise InputError("--region_branch", expected, received)
        fitted["region_dim"] = store.dim
        return fitted | {"region_features_made_by": store.made_by}

    def load(self, split, fitted):
        """Returns the `PairExamples` of a split."""
        examples = super().load(split, fitted)
        options = self.settings.correspondences
        regions = PhotoRegions(
            *self.split(split).regions,
            options.regions_per_image,
            options.region_overlap,
        )
        phrases = noun_phrases(examples.texts)
        return PairExamples(**vars(examples), phrases=phrases, regions=regions)

    def start_epoch(self, network, train, epoch):
        """Assigns regions to phrases after `correspondence_epochs` epochs."""
        is_known = epoch >= self.settings.correspondences.correspondence_epochs
        self.held = self.matcher(network).match(train) if is_known else {}

    def batches(self, train):
        """Returns the `PairBatches` of the training split."""
        flags = self.settings.correspondences
        every = bool(flags.region_mean_weight)
        return PairBatches(
            train, lambda: self.held, flags.contrast, every, **self.sampling
        )

    def scores(self, network, examples):
        """Returns the scores of the sentences and of the noun phrases."""
        folder = self.split(examples.records.split).photo_folder
        links = self._links_of(examples) if self.knows_links else None
        phrases = self.matcher(network).scores(examples, links, folder)
        scores = super().scores(network, examples)
        return dataclasses.replace(scores, phrases=phrases)

    def _links_of(self, examples):
        records = examples.records
        if records.split not in self._links:
            known = self.split(records.split).phrases
            self._links[records.split] = find_links(
                known, records, examples.phrases
            )
        return self._links[records.split]

    def endpoints(self, network, fitted):
        """Returns endpoints for matching, for regions and for noun phrases."""
        endpoints = super().endpoints(network, fitted)
        nodes = node_endpoints(
            network, endpoints.tokenizer, fitted["region_dim"]
        )
        functions = endpoints.functions | nodes
        return dataclasses.replace(endpoints, functions=functions)
