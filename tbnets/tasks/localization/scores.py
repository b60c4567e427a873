"""Scores the regions of a photo for each of its phrases."""

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tbnets.checks import SAME_THING, rows_by
from tbnets.data.captions import same_captions
from tbnets.data.localization.examples import PhraseExamples
from tbnets.data.phrase_pairs import ranges
from tbnets.data.phrases import PhraseRegions
from tbnets.errors import InputError
from tbnets.evaluation import boxes as box_math
from tbnets.evaluation import ranking
from tbnets.evaluation.choices import CHOICE_ARGUMENTS, checked_choice
from tbnets.evaluation.localization import DIRECTION, localize, summarize
from tbnets.evaluation.ranks import Ranks
from tbnets.evaluation.retrieval import recall_differences
from tbnets.evaluation.score_tiles import PairScores
from tbnets.startup import raise_if_interrupted
from tbnets.tasks.scores import Scores, check_same_examples, spread_evenly
from tbnets.training.retrieval_metrics import Embedder, PairScorer
from tbnets.visualization import boxes as box_pictures
from tbnets.visualization import montage

NUM_PHOTOS = 5
NUM_PHRASES = 3
WHAT_IS_SHOWN = (
    "A photo with the true boxes of phrases, and with the boxes ranked first "
    "for them. Tick and solid line: right (IoU with the true box at least "
    "0.5). Cross and dashed line: wrong."
)


def drawn_phrases(phrases):
    """Chooses evenly spread photos, and phrases that name different objects.

    Returns a dict from the rows of up to `NUM_PHOTOS` photos to arrays with the
    rows of up to `NUM_PHRASES` phrases.
    """
    owned = rows_by(phrases.phrase_to_image, phrases.images.num_images)
    images = np.flatnonzero([len(rows) > 0 for rows in owned])
    chosen = {}
    for image in images[spread_evenly(len(images), NUM_PHOTOS)]:
        rows = owned[image]
        _, firsts = np.unique(phrases.phrase_to_chain[rows], return_index=True)
        spread = spread_evenly(len(firsts), NUM_PHRASES)
        chosen[int(image)] = rows[np.sort(firsts)[spread]]
    return chosen


def draw_found_regions(scores):
    """Draws a few photos with their true and predicted boxes.

    Returns a dict from "1", "2" and so on to uint8 arrays `[height, width, 3]`.
    """
    phrases, pictures = scores.phrases, {}
    for number, (image, rows) in enumerate(drawn_phrases(phrases).items(), 1):
        name = phrases.images.file_name(image)
        photo = montage.open_photo(scores.photos, name)
        if photo is None:
            continue
        # The photo file may have a different size than the boxes assume.
        scale = np.tile(np.divide(photo.size, phrases.image_sizes[image]), 2)
        true_boxes, predicted = phrases.boxes[rows], []
        truth = [
            box_pictures.PhraseBox(box * scale, phrases.phrases[row], colour)
            for colour, (row, box) in enumerate(zip(rows, true_boxes))
        ]
        proposals = np.asarray(scores.proposals[image], np.float64)
        if len(proposals):
            table = scores.similarities[rows, : len(proposals)]
            chosen = proposals[table.argmax(axis=1)]
            is_right = np.diag(box_math.iou(true_boxes, chosen)) >= SAME_THING
            predicted = [
                item._replace(box=box * scale, is_right=bool(right))
                for item, box, right in zip(truth, chosen, is_right)
            ]
        drawn = box_pictures.draw_side_by_side(photo, truth, predicted)
        pictures[str(number)] = drawn
    return pictures


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
    if scores.learned_similarity:
        raise InputError(
            "--combine_with",
            "be a run whose distances can be added",
            "a similarity network of phrases",
            "Choose a run of --model=embedding.",
        )
    phrases = scores.phrases
    texts, first = np.unique(phrases.phrase_to_text, return_index=True)
    embeddings = scores.sides["phrases"][first]
    similarities = scores.scorer.nearest(scores.examples, embeddings)
    distances = np.sqrt(np.maximum(2 - 2 * similarities, 0))
    lonely = np.flatnonzero(~np.isfinite(distances).all(axis=1))
    if lonely.size:
        raise InputError(
            "--regions",
            "have regions of every photo",
            f"no regions of {records.image_ids[lonely[0]]!r}",
            "Extract regions of this photo.",
        )
    columns = np.searchsorted(texts, phrases.phrase_to_text)
    captions = captions_of_phrases(phrases, records)
    table = -_mean_of_phrases(distances, columns, captions, records)
    return PairScores(
        *table.shape,
        lambda images, captions: table[np.ix_(images, captions)],
        lambda images, captions: table[images, captions],
    )


def _mean_of_phrases(distances, columns, captions, records):
    total = np.zeros((records.num_captions, len(distances)), np.float64)
    np.add.at(total, captions, distances.T[columns])
    counts = np.bincount(captions, minlength=records.num_captions)
    has_phrases = counts > 0
    if not has_phrases.any():
        raise InputError(
            "--phrases",
            "have phrases of the captions",
            f"no phrase of {records.path} with a box",
            "Use phrases of these photos.",
        )
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
        raise InputError(
            "--captions",
            "be the captions of the phrases",
            f"photo {records.image_ids[image]!r} without the caption "
            f"{phrases.images.captions[lost]!r}",
            "Use the captions in which the phrases were annotated.",
        )
    return captions


REGIONS_AT_ONCE = 8192


@dataclasses.dataclass(frozen=True, eq=False)
class LocalizationScores(Scores):
    """Similarities between phrases and the regions of their photos.

    Args:
        similarities: float32 `[num_phrases, width]`, between each phrase and
            its photo's regions, padded with 0.
        phrases: `PhraseRegions` of the split.
        proposals: list of boxes `[k, 4]`, one array per photo.
        sides: embeddings of the phrases and of some regions; {} for an exported
            model.
        scorer: the `RegionScorer` that computed the similarities; None for an
            exported model and for combined networks.
        examples: `PhraseExamples` of the split; None for an exported model.
        photos: folder of the photos, or None.
    """

    what = "phrases and regions"
    options = ("region_phrase_ranking", *CHOICE_ARGUMENTS)
    about_pictures = WHAT_IS_SHOWN

    similarities: np.ndarray
    phrases: PhraseRegions
    proposals: list
    learned_similarity: bool = False
    sides: Mapping = dataclasses.field(default_factory=dict)
    scorer: "RegionScorer | None" = None
    examples: PhraseExamples | None = None
    photos: pathlib.Path | None = None

    def metrics(self, region_phrase_ranking=False, **choosing):
        """Returns the metrics of `evaluation.localization`.

        `region_phrase_ranking` adds the metrics of
        `RegionScorer.rank_true_regions`. `choosing` contains arguments of
        `choices.checked_choice`.
        """
        if region_phrase_ranking and self.scorer is None:
            raise InputError(
                "--region_phrase_ranking",
                "be used with one run",
                "two combined runs",
                "Leave it or --combine_with out.",
            )
        phrases, choice = self.phrases, checked_choice(**choosing)
        inputs = self.similarities, self.proposals, phrases.boxes
        ranks = localize(*inputs, phrases.phrase_to_image, choice)
        metrics = summarize(
            ranks, types=phrases.type_masks(), texts=phrases.phrase_to_text
        )
        if region_phrase_ranking:
            embeddings = self.sides["phrases"]
            metrics |= self.scorer.rank_true_regions(self.examples, embeddings)
        return metrics

    def difference(self, other):
        """Returns how much the recalls of `other` are above these recalls."""
        if not isinstance(other, LocalizationScores):
            return super().difference(other)
        self._check_same_phrases(other, "--run_dir")
        return recall_differences(self._ranks(), other._ranks())

    def _ranks(self):
        phrases = self.phrases
        inputs = self.similarities, self.proposals, phrases.boxes
        ranks = localize(*inputs, phrases.phrase_to_image)
        rows = np.arange(len(ranks.ranks))
        return {DIRECTION: Ranks(rows, ranks.ranks, ranks.tied)}

    def _check_same_phrases(self, other, flag):
        ours, theirs = self.phrases.boxes, other.phrases.boxes
        pairs = zip([ours, *self.proposals], [theirs, *other.proposals])
        if not all(np.array_equal(*pair) for pair in pairs):
            raise InputError(
                flag,
                "be a run on the same phrases and proposals",
                f"{len(ours)} and {len(theirs)} phrases, or different boxes",
                "Evaluate both runs on the files of one run.",
            )

    def pair_scores(self, records):
        """Returns the `sentence_scores`, and False: they are not learned."""
        return sentence_scores(self, records), False

    def combine(self, other, weight):
        """Returns the combined scores of two networks on the same proposals.

        The similarity is the negative weighted sum of the networks' distances,
        as in `RetrievalScores.combine`.

        Source: Wang et al. 2018, Sec. 5.6, Eq. 8 (for whole images and
            sentences).
        """
        if type(other) is not type(self):
            return super().combine(other, weight)
        self._check_same_phrases(other, "--combine_with")
        terms = [self._distances, other._distances]
        if self.learned_similarity or other.learned_similarity:
            counts = np.array([len(boxes) for boxes in self.proposals])
            counts = counts[self.phrases.phrase_to_image, None]
            is_region = np.arange(self.similarities.shape[1]) < counts
            terms = [t / (float(t[is_region].std()) or 1.0) for t in terms]
        summed = (1 - weight) * terms[0] + weight * terms[1]
        changes = {"learned_similarity": True, "scorer": None}
        return dataclasses.replace(self, similarities=-summed, **changes)

    @property
    def _distances(self):
        if self.learned_similarity:
            return -self.similarities
        return np.sqrt(np.maximum(2 - 2 * self.similarities, 0))

    def pictures(self):
        """Draws boxes on photos, or returns {} without photos."""
        return draw_found_regions(self) if self.photos else {}


def empty_table(phrases, counts):
    """Returns zeros `[num_phrases, width]`, where `width` is max(`counts`)."""
    width = int(counts.max(initial=0))
    return np.zeros((phrases.num_phrases, width), np.float32)


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
        phrases = examples.phrases
        embeddings = self._embedder.texts(examples)
        table = empty_table(phrases, examples.num_regions)
        owned = rows_by(phrases.phrase_to_image, phrases.images.num_images)
        first = np.zeros((0, self.network.embedding_dim), np.float32)
        for images, regions in self._regions(examples):
            first = first if len(first) else np.concatenate(regions)
            for image, vectors in zip(images, regions):
                rows = owned[image]
                if len(rows) and len(vectors):
                    scores = self._compare(vectors, embeddings[rows])
                    table[rows, : len(vectors)] = scores.numpy().T
            raise_if_interrupted()
            progress(len(images))
        learned = self.network.learned_similarity
        sides = {"regions": first, "phrases": embeddings}
        fields = table, phrases, examples.proposals, learned, sides
        return LocalizationScores(*fields, self, examples)

    def nearest(self, examples, text_embeddings):
        """Returns the similarity of each photo's best region to each text.

        `text_embeddings` is float32 `[n, embedding_dim]`. Returns a float32
        array `[num_images, n]`, with -infinity for photos without regions.
        """
        shape = len(examples.image_rows), len(text_embeddings)
        table = np.full(shape, -np.inf, np.float32)
        for images, regions in self._regions(examples):
            for image, vectors in zip(images, regions):
                if len(vectors):
                    scores = self._compare(vectors, text_embeddings)
                    table[image] = scores.numpy().max(axis=0)
        return table

    def rank_true_regions(self, examples, embeddings):
        """Ranks phrases for each true region, and true regions for each phrase.

        The region that overlaps an object's box most represents the object.
        Objects without an IoU of at least 0.5 are left out. `embeddings` are
        the embeddings of phrases, float32 `[num_phrases, dim]`. Returns
        metrics.
        """
        phrases, roles = examples.phrases, examples.roles
        chains, texts = phrases.phrase_to_chain, phrases.phrase_to_text
        _, first = np.unique(chains, return_index=True)
        is_there = roles.best_iou[first] >= SAME_THING
        first = first[is_there]
        if not len(first):
            return ranking.NO_QUERIES
        rows = roles.first_rows[first] + roles.best[first]
        cuts = range(REGIONS_AT_ONCE, len(rows), REGIONS_AT_ONCE)
        parts = map(examples.features.take_regions, np.split(rows, cuts))
        regions = [self._embed(part).numpy() for part in parts]
        _, distinct = np.unique(texts, return_index=True)
        sides = np.concatenate(regions), embeddings[distinct]
        if self.network.learned_similarity:
            tile = PairScorer(self.network).scores(*sides).tile
            scores = tile(*(np.arange(len(side)) for side in sides))
        else:
            scores = ranking.EmbeddingScores(*sides)
        places = np.cumsum(is_there) - 1
        pairs = np.stack([places[chains], texts], axis=1)[is_there[chains]]
        return ranking.evaluate_region_phrase_ranking(scores, pairs)

    def _regions(self, examples):
        start, counts = 0, examples.num_regions
        while start < len(counts):
            ends = np.cumsum(counts[start:])
            fitting = int(np.searchsorted(ends, REGIONS_AT_ONCE, "right"))
            images = np.arange(start, start + max(1, fitting))
            firsts = examples.first_regions[images]
            _, rows = ranges(firsts, firsts + counts[images])
            vectors = self._embed(examples.features.take_regions(rows)).numpy()
            yield images, np.split(vectors, ends[: len(images) - 1])
            start += len(images)
