"""Defines the task of HM-LSTM, which matches texts with photos and regions."""

import dataclasses
import functools
import pathlib

import numpy as np
import tensorflow as tf

from tbnets.checks import SAME_THING, rows_of
from tbnets.data.captions import same_captions
from tbnets.data.localization.examples import proposal_roles
from tbnets.data.phrase_pairs import (
    CHOICE,
    CONFIDENCE,
    PairBatches,
    PairExamples,
    PhotoRegions,
    noun_phrases,
)
from tbnets.errors import InputError
from tbnets.evaluation import ranking
from tbnets.evaluation.boxes import iou
from tbnets.evaluation.choices import (
    CANDIDATE_CHOICES,
    CHOICE_ARGUMENTS,
    DEFAULT,
    MOST_SIMILAR,
    answers,
    checked_choice,
)
from tbnets.evaluation.correspondences import (
    Links,
    evaluate_correspondences,
    phrases_of_spans,
)
from tbnets.progress import progress_bar
from tbnets.serving.endpoints import node_endpoints
from tbnets.tasks.matching.scores import points_of, shown_captions
from tbnets.tasks.matching.task import MatchingTask
from tbnets.tasks.scores import FEW_POINTS, JoinedScores, Scores, spread_evenly
from tbnets.tasks.settings.settings import Settings
from tbnets.text.packed_trees import TreeRows
from tbnets.text.vocabulary import split_words
from tbnets.training.retrieval_metrics import Embedder
from tbnets.visualization import boxes as box_pictures
from tbnets.visualization import montage
from tbnets.visualization.plots import PHRASE

NUM_PHOTOS = 5
NUM_PHRASES = 4
WHAT_IS_SHOWN = (
    "A photo with the region assigned to each noun phrase of a caption. Tick "
    "and solid line: right (IoU with the true box at least 0.5). Cross and "
    "dashed line: wrong. Neither: the true box is unknown."
)


def draw_correspondences(scores):
    """Draws the noun phrases' regions on the photos of a few captions.

    `scores` are `CorrespondenceScores` with links and photos. Returns a dict
    from names to pictures, uint8 arrays of shape `[height, width, 3]`.

    Source: Niu et al. 2017, Fig. 7.
    """
    examples, links = scores.examples, scores.links
    records, phrases = examples.records, examples.phrases
    # Draw the caption of each image that has the most phrases, up to the limit.
    counts = np.minimum(np.diff(phrases.starts), NUM_PHRASES)
    captions = [
        rows[np.argmax(counts[rows])]
        for rows in records.caption_rows()
        if len(rows) and counts[rows].any()
    ]
    pictures, known = {}, dict(zip(links.phrases, links.boxes))
    places = spread_evenly(len(captions), NUM_PHOTOS)
    for number, place in enumerate(places, start=1):
        caption = captions[place]
        image = records.caption_to_image[caption]
        photo = montage.open_photo(scores.photos, records.names[image])
        if photo is None:
            continue
        # The last candidate is the photo. Its file may have a different size.
        candidates = examples.regions.candidates(image)
        scale = np.tile(np.divide(photo.size, candidates[-1, 2:]), 2)
        rows = phrases.rows_of(np.array([caption]))[:NUM_PHRASES]
        drawn = []
        for colour, row in enumerate(rows):
            box, is_right = candidates[scores.choices[row]], None
            if row in known:
                is_right = bool(iou([known[row]], [box])[0, 0] >= SAME_THING)
            words = phrase_text(examples, row)
            drawn.append(
                box_pictures.PhraseBox(box * scale, words, colour, is_right)
            )
        pictures[f"phrases_{number}"] = box_pictures.draw_boxes(
            photo, drawn, heading=records.captions[caption]
        )
    return pictures


def shown_phrases(examples, captions):
    """Selects evenly spread noun phrases with different wordings.

    Returns the rows of at most `len(captions)` noun phrases.
    """
    rows = examples.phrases.rows_of(captions)
    _, first = np.unique(examples.phrases.texts[rows], return_index=True)
    return rows[np.sort(first)][spread_evenly(len(first), len(captions))]


def phrase_text(examples, phrase):
    """Returns the words of a noun phrase, as spelled in its caption."""
    caption = examples.records.captions[examples.phrases.captions[phrase]]
    first, end = examples.phrases.spans[phrase]
    [words] = split_words([caption]).to_list()
    return b" ".join(words[first:end]).decode()


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

    def match(self, examples, choice=DEFAULT):
        """Chooses a candidate region for every phrase.

        The paper and training choose the most similar candidate. Returns a
        dict: `CHOICE` holds the candidates' numbers, int16 `[num_phrases]`, and
        `CONFIDENCE` holds their similarities, float32 `[num_phrases]`.
        """
        images = self._embedder.images(examples)
        count = len(examples.phrases.captions)
        choices = np.zeros(count, np.int16)
        confidences = np.zeros(count, np.float32)
        groups = examples.records.caption_rows()
        with progress_bar(len(images), "regions of phrases", "photo") as bar:
            for start in range(0, len(images), PHOTOS_AT_ONCE):
                rows = np.arange(len(images))[start : start + PHOTOS_AT_ONCE]
                captions = np.concatenate([groups[row] for row in rows])
                phrases = examples.phrases.rows_of(captions)
                if len(phrases):
                    table = self._photo_scores(examples, rows, captions, images)
                    best = _chosen(examples, phrases, table, choice)
                    choices[phrases] = best
                    confidences[phrases] = table[np.arange(len(best)), best]
                bar.update(len(rows))
        return {CHOICE: choices, CONFIDENCE: confidences}

    def rank_true_regions(self, examples, links):
        """Ranks phrases for each true region, and true regions for each phrase.

        Each object is represented by the candidate with the largest IoU with
        its box. Objects without an IoU of at least 0.5 are left out. Phrases
        with the same words count as one phrase.
        """
        photos = range(examples.records.num_images)
        candidates = [examples.regions.candidates(photo) for photo in photos]
        roles = proposal_roles(links.boxes, links.images, candidates)
        hits = np.flatnonzero(roles.best_iou >= SAME_THING)
        if not len(hits):
            return ranking.NO_QUERIES
        texts = examples.phrases.texts[links.phrases[hits]]
        (first, things), (distinct, numbers) = (
            np.unique(each, return_index=True, return_inverse=True)[1:]
            for each in (links.things[hits], texts)
        )
        rows = hits[first]
        best = links.images[rows], roles.best[rows]
        phrases = self.embed_phrases(examples, links.phrases[hits[distinct]])
        regions = self._embed_candidates(examples, *best)
        scores = ranking.EmbeddingScores(regions, phrases)
        pairs = np.unique(np.stack([things, numbers], axis=1), axis=0)
        return ranking.evaluate_region_phrase_ranking(scores, pairs)

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


def _chosen(examples, phrases, similarities, choice):
    if choice.name == MOST_SIMILAR:
        return similarities.argmax(axis=1)
    best = np.zeros(len(phrases), np.int64)
    owners = examples.phrase_images[phrases]
    for photo in np.unique(owners):
        rows, boxes = owners == photo, examples.regions.candidates(photo)
        table = similarities[rows, : len(boxes)]
        best[rows] = answers(table, boxes, choice)[0].argmax(axis=1)
    return best


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


def _word_starts(captions):
    """Counts the words that precede each space-separated piece of a caption."""
    pieces = [caption.split() for caption in captions]
    flat = [piece for row in pieces for piece in row]
    counts = np.zeros(0, np.int64)
    if flat:
        counts = split_words(flat).row_lengths().numpy()
    ends = np.cumsum([len(row) for row in pieces])
    return [np.cumsum(np.append(0, n)) for n in np.split(counts, ends[:-1])]


@dataclasses.dataclass(frozen=True, eq=False)
class CorrespondenceScores(Scores):
    """The candidates assigned to the noun phrases of a split.

    `choices` are candidate numbers, int16 `[num_phrases]`, and `links` are the
    known `Links`. Both are None if links are unknown. `photos` is the folder of
    the photos, or None.
    """

    what = "noun phrases and regions"
    options = ("region_phrase_ranking", *CHOICE_ARGUMENTS)
    about_pictures = WHAT_IS_SHOWN

    examples: PairExamples
    matcher: Matcher
    choices: np.ndarray | None = None
    links: Links | None = None
    photos: pathlib.Path | None = None

    def metrics(self, region_phrase_ranking=False, **choosing):
        """Returns the metrics of phrases, or {} if no links are known.

        `region_phrase_ranking` adds the metrics of `Matcher.rank_true_regions`.
        `choosing` contains arguments of `choices.checked_choice`.
        """
        choice = checked_choice(**choosing, known=CANDIDATE_CHOICES)
        if self.links is None:
            if choice.name == MOST_SIMILAR and not region_phrase_ranking:
                return {}
            flag = (
                "region_phrase_ranking" if region_phrase_ranking else "choice"
            )
            raise InputError(
                f"--{flag}",
                "be used with a run on phrases with boxes",
                "a run without boxes",
                "Train with --phrases.",
            )
        choices = self.choices
        if choice.name != MOST_SIMILAR:
            choices = self.matcher.match(self.examples, choice)[CHOICE]
        candidates = self.examples.regions.candidates
        metrics = evaluate_correspondences(choices, candidates, self.links)
        if region_phrase_ranking:
            metrics |= self.matcher.rank_true_regions(self.examples, self.links)
        return metrics

    def pictures(self):
        """Draws regions on photos, or returns {} without links or photos."""
        can = self.photos is not None and self.links is not None
        return draw_correspondences(self) if can else {}

    def points(self, most=FEW_POINTS):
        """Returns `Points` of the noun phrases in some captions."""
        examples = self.examples
        _, captions = shown_captions(examples.records, most)
        rows = shown_phrases(examples, captions)
        vectors = self.matcher.embed_phrases(examples, rows)
        texts = [phrase_text(examples, row) for row in rows]
        places = examples.phrase_images[rows], examples.records, self.photos
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
            raise InputError(
                "--region_mean_weight",
                "be > 0 with --region_branch=own, because no other loss trains "
                "this branch at first",
                "--region_mean_weight=0",
                "Raise the weight.",
            )
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
            raise InputError(
                "--region_branch",
                "be own if photos and regions have different features",
                f"--region_branch=shared with {dim} features per photo and "
                f"{store.dim} per region",
                "Set --region_branch=own, or extract both by one network.",
            )
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
        matcher, known = self.matcher(network), (None, None)
        if self.knows_links:
            links = self._links_of(examples)
            known = matcher.match(examples)[CHOICE], links
        photos = self.split(examples.records.split).photo_folder
        phrases = CorrespondenceScores(examples, matcher, *known, photos)
        return JoinedScores([super().scores(network, examples), phrases])

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
