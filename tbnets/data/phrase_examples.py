"""Phrases and regions of a split, and which regions match which phrases."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tqdm

from tbnets.checks import SAME_THING, numbered, place_among_equals, rows_by
from tbnets.data.batches import Batches, PhotoRegions, batch_bounds
from tbnets.data.phrases import PhraseRegions
from tbnets.errors import InputError
from tbnets.evaluation import boxes
from tbnets.progress import progress_bar
from tbnets.seeds import generator_of

POSITIVE_IOU = 0.7
NEGATIVE_IOU = 0.3
POSITIVES = ("augmented", "single")
POSITIVE, NEITHER, NEGATIVE = 1, 0, -1


def proposal_roles(
    truth,
    phrase_to_image,
    proposals,
    *,
    positives: str = "augmented",
    positive_iou: float = POSITIVE_IOU,
    negative_iou: float = NEGATIVE_IOU,
    best_iou: float = SAME_THING,
) -> np.ndarray:
    """Finds the positive and negative proposals for each phrase.

    With "augmented", proposals whose IoU with the phrase's box is above
    `positive_iou` are positives. The proposal with the largest IoU is always a
    positive if its IoU is at least `best_iou`. Proposals with an IoU below
    `negative_iou` are negatives.

    Args:
        truth: `[num_phrases, 4]`, the phrases' boxes.
        phrase_to_image: int `[num_phrases]`, row of the image.
        proposals: an array `[k, 4]` per image, in the pixels of `truth`.
        positives: "augmented", or "single" for only the best proposal.
        positive_iou: in [0, 1]. Wang 2018: 0.7.
        negative_iou: in [0, 1], at most `positive_iou`. Wang 2018: 0.3.
        best_iou: in [0, 1]; 0 accepts any overlap.

    Returns:
        int8 `[num_phrases, width]`: `POSITIVE`, `NEGATIVE`, or `NEITHER`, also
        for padding. width is the maximum number of proposals per photo.

    Source: Wang et al. 2018, Sec. 4.1 and 4.2. Departure: the paper's
    single positive is the true box; here, it is the best proposal.
    """
    sizes = np.array([len(photo_boxes) for photo_boxes in proposals], np.int64)
    roles = np.zeros((len(truth), int(sizes.max(initial=0))), np.int8)
    photo_overlaps = boxes.overlaps_by_photo(truth, phrase_to_image, proposals)
    for image, rows, overlaps in photo_overlaps:
        best, most = overlaps.argmax(axis=1), overlaps.max(axis=1)
        photo_roles = np.where(overlaps < negative_iou, NEGATIVE, NEITHER)
        if positives == "augmented":
            photo_roles[overlaps > positive_iou] = POSITIVE
        enough = np.flatnonzero((most >= best_iou) & (most > 0))
        photo_roles[enough, best[enough]] = POSITIVE
        roles[rows, : sizes[image]] = photo_roles
    return roles


def with_common_negatives(roles, groups) -> np.ndarray:
    """Keeps only the negatives that all phrases of a group have in common.

    The role of other negatives becomes `NEITHER`. `groups`, int
    `[num_phrases]`, has equal numbers for phrases of a photo with equal text,
    because they cannot be distinguished.
    """
    _, group = np.unique(groups, return_inverse=True)
    counts, is_negative = np.bincount(group), roles == NEGATIVE
    order, starts = np.argsort(group), np.cumsum(counts) - counts
    common = np.logical_and.reduceat(is_negative[order], starts)
    changed = is_negative & ~common[group]
    return np.where(changed, NEITHER, roles).astype(np.int8)


@dataclasses.dataclass(frozen=True, eq=False)  # `==` of arrays is an array.
class PhraseExamples:
    """A split of a phrase localization dataset, as input for a network.

    Args:
        phrases: `PhraseRegions` with boxes in pixels of the photos.
        texts: object with `shape`, `dtype` and `batch(phrase_rows)`.
        regions: the `PhotoRegions`.
        text_ids: int64 `[num_phrases]`, equal for phrases with equal text. Such
            phrases of a photo have only the negatives that are common to all of
            them. If None, each phrase matches only its own object.
        role_options: keyword arguments of `proposal_roles`.
    """

    phrases: PhraseRegions
    texts: object
    regions: PhotoRegions
    text_ids: np.ndarray | None = None
    role_options: Mapping = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def records(self):
        """The phrases as `CaptionedImages`."""
        return self.phrases.as_captions()

    @property
    def counts(self):
        """A dict with the numbers of photos, regions, objects and phrases."""
        return {
            "photos": self.phrases.images.num_images,
            "regions": int(self.regions.counts.sum()),
            "things": len(np.unique(self.phrases.phrase_to_chain)),
            "phrases": self.phrases.num_phrases,
        }

    def samples(self, layer):
        """Yields the region features of evenly spaced photos."""
        return self.regions.samples()

    @functools.cached_property
    def roles(self) -> np.ndarray:
        """The `proposal_roles` of the regions."""
        owners, proposals = self.phrases.phrase_to_image, self.regions.boxes
        boxed = self.phrases.boxes, owners, proposals
        roles = proposal_roles(*boxed, **self.role_options)
        if self.text_ids is None:
            return roles
        pairs = zip(owners.tolist(), self.text_ids.tolist())
        return with_common_negatives(roles, numbered(pairs))


NEGATIVE_REGIONS = ("photo", "batch")


class Sampling(NamedTuple):
    """Settings for drawing batches. The defaults are the plain Algorithm 1.

    Attributes:
        pairs_per_batch: number of phrases drawn per batch.
        phrases_per_image: number of phrases drawn together from one photo.
        regions_per_phrase: number of positives drawn per phrase, or 0 for all.
            Neighbourhood sampling, step 3 (c) ii: 2.
        phrases_per_region: maximum number of different phrases per object in a
            batch. Neighbourhood sampling, step 3 (c) i: 2.
        candidates_per_image: number of regions drawn per photo as possible
            negatives, or 0 for all.
        negative_regions: "photo" if negatives are regions of the phrase's
            photo; "batch" if they are regions drawn for other phrases, as in
            Wang 2016.
    """

    pairs_per_batch: int = 100
    phrases_per_image: int = 1
    regions_per_phrase: int = 1
    phrases_per_region: int = 1
    candidates_per_image: int = 0
    negative_regions: str = NEGATIVE_REGIONS[0]


class BatchRows(NamedTuple):
    """The rows of a batch's phrases and regions.

    Attributes:
        phrases: int64 `[p]`, the drawn phrases, then the added phrases.
        regions: int64 `[d]`, rows of the regions drawn as positives.
        drawn_for: int64 `[d]`, index in `phrases` of the region's phrase.
        candidates: int64 `[c]`, rows of the regions that may be negatives.
        is_negative: bool `[p, c]`, whether a candidate is a negative of a
            phrase.
    """

    phrases: np.ndarray
    regions: np.ndarray
    drawn_for: np.ndarray
    candidates: np.ndarray
    is_negative: np.ndarray


class PhraseBatches(Batches):
    """The batches of successive epochs of phrase localization.

    In a batch, `images` contains the features of the drawn regions, `captions`
    contains the phrases, and the ids identify the objects that the phrases name
    (`phrase_to_chain`). `data.candidate_mining` describes the other keys.

    Args:
        examples: `PhraseExamples`.
        sampling: `Sampling`.
        seed: integer >= 0.

    Attributes:
        hard_negatives: int `[num_phrases, n]`, as returned by the function
            `hard_negatives`, or None. They replace a phrase's other negatives
            if `negative_regions` is "photo", and are added if it is "batch".
        num_batches: number of batches in every epoch.
        num_drawable: number of phrases that have a positive.
        num_positives: total number of positives.

    Source: Wang et al. 2018, Algorithm 1; 2016, Sec. 3.3. Departure: a phrase
    of an object is added only if the batch contains no phrase of this object
    with the same words.
    """

    def __init__(self, examples, sampling, seed):
        phrases = examples.phrases
        self.sampling = sampling
        self.seed = seed
        self.hard_negatives = None
        self._images = phrases.phrase_to_image
        self._chains = phrases.phrase_to_chain
        self._texts = phrases.phrase_to_text
        count, ids = phrases.num_phrases, examples.text_ids
        rows, columns = np.nonzero(examples.roles == POSITIVE)
        ends = np.searchsorted(rows, np.arange(1, count))
        self._positives = np.split(columns, ends)  # A phrase's columns.
        self._drawable = np.unique(rows)
        self._text_ids = np.arange(count) if ids is None else ids
        self._of_chain = rows_by(self._chains)
        self.num_drawable = len(self._drawable)
        self.num_positives = len(rows)
        if not self.num_drawable:
            expected = "overlap the boxes of phrases enough to be positives"
            received = f"no positives of {count} phrases"
            raise InputError("--regions", expected, received)
        self._bounds = batch_bounds(self.num_drawable, sampling.pairs_per_batch)
        super().__init__(examples, len(self._bounds))

    def batch(self, rows, share):
        """Reads the features and texts of a share of `BatchRows`."""
        examples, drawn = self.examples, share.of(len(rows.regions))
        images = rows.regions[drawn]
        candidates = rows.candidates[share.of(len(rows.candidates))]
        regions = np.concatenate([images, candidates])
        features = examples.regions.store.take_regions(regions)
        chains = examples.phrases.phrase_to_chain[rows.phrases]
        return self._of_texts(rows.phrases, chains, share) | {
            "images": features[: len(images)],
            "image_ids": chains[rows.drawn_for][drawn],
            "drawn_for": rows.drawn_for[drawn].astype(np.int32),
            "candidates": features[len(images) :],
            "is_negative": rows.is_negative[share.of(len(rows.phrases))],
        }

    def signature(self):
        """Returns the `tf.TensorSpec`s of a batch."""
        dim = self.examples.regions.store.dim
        regions = tf.TensorSpec((None, dim), tf.float32)
        return super().signature() | {
            "images": regions,
            "drawn_for": tf.TensorSpec((None,), tf.int32),
            "candidates": regions,
            "is_negative": tf.TensorSpec((None, None), tf.bool),
        }

    def _rows(self):
        return zip(self.draw(self.epoch))

    def draw(self, epoch):
        """Yields the `BatchRows` of epoch number `epoch` >= 0."""
        generator = generator_of(self.seed, "epoch", epoch)
        order = self._order(generator)
        for start, stop in self._bounds:
            yield self._batch(order[start:stop], generator)

    def _order(self, generator):
        order = generator.permutation(self._drawable)
        if self.sampling.phrases_per_image == 1:
            return order
        images = self._images[order]
        group = place_among_equals(images) // self.sampling.phrases_per_image
        keys = images * len(order) + group
        groups, of_group = np.unique(keys, return_inverse=True)
        shuffled = generator.permutation(len(groups))
        return order[np.argsort(shuffled[of_group], kind="stable")]

    def _batch(self, rows, generator):
        most = self.sampling.regions_per_phrase or None
        drawn = [generator.permutation(self._positives[row]) for row in rows]
        drawn = [columns[:most] for columns in drawn]
        drawn_for = np.repeat(np.arange(len(rows)), [*map(len, drawn)])
        columns = np.concatenate(drawn)
        phrases = np.concatenate([rows, self._added_phrases(rows, generator)])
        images = self._images[phrases]
        regions = self.examples.regions.rows(images[drawn_for], columns)
        if self.sampling.negative_regions == "photo":
            negatives = self._of_photos(phrases, images, generator)
        else:
            negatives = self._of_batch(phrases, images, drawn_for, columns)
            negatives = np.append(regions, negatives[0]), negatives[1]
        return BatchRows(phrases, regions, drawn_for, *negatives)

    def _added_phrases(self, rows, generator):
        limit = self.sampling.phrases_per_region
        if limit == 1:
            return rows[:0]
        added, chains = [], self._chains[rows]
        for chain in dict.fromkeys(chains.tolist()):
            texts = set(self._texts[rows[chains == chain]])
            for row in generator.permutation(self._of_chain[chain]):
                if len(texts) >= limit:
                    break
                if self._texts[row] not in texts:
                    texts.add(self._texts[row])
                    added.append(row)
        return np.array(added, np.int64)

    def _of_photos(self, phrases, images, generator):
        # Regions are drawn only for phrases without hard negatives.
        photos, places = np.unique(images, return_inverse=True)
        is_hard = self._is_hard(phrases)
        has_list = is_hard.any(axis=1)
        regions = self.examples.regions
        limit = self.sampling.candidates_per_image
        is_needed = np.zeros((len(photos), is_hard.shape[1]), bool)
        np.logical_or.at(is_needed, places, is_hard)
        for place in np.unique(places[~has_list]):
            count = regions.counts[photos[place]]
            columns = slice(count)
            if 0 < limit < count:
                columns = generator.permutation(count)[:limit]
            is_needed[place, columns] = True
        owners, columns = np.nonzero(is_needed)
        is_wrong = self.examples.roles[phrases] == NEGATIVE
        is_negative = np.where(has_list[:, None], is_hard, is_wrong)[:, columns]
        is_negative &= places[:, None] == owners
        return regions.rows(photos[owners], columns), is_negative

    def _of_batch(self, phrases, images, drawn_for, columns):
        # A region of another photo is not a negative if a phrase of the batch
        # with identical words names its object. The hard negatives, which are
        # returned, follow the drawn regions.
        is_own_photo = images[:, None] == images[drawn_for]
        is_wrong = self.examples.roles[phrases][:, columns] == NEGATIVE
        is_called = self._is_called(phrases)[:, drawn_for]
        is_negative = np.where(is_own_photo, is_wrong, ~is_called)
        owners, columns = np.nonzero(self._is_hard(phrases))
        listed = self.examples.regions.rows(images[owners], columns)
        hard, places = np.unique(listed, return_inverse=True)
        is_hard = np.zeros((len(phrases), len(hard)), bool)
        is_hard[owners, places] = True
        return hard, np.concatenate([is_negative, is_hard], axis=1)

    def _is_called(self, phrases):
        # Returns whether phrase i's words name phrase j's object, `[p, p]`.
        _, texts = np.unique(self._text_ids[phrases], return_inverse=True)
        _, things = np.unique(self._chains[phrases], return_inverse=True)
        is_named = np.zeros((texts.max() + 1, things.max() + 1), bool)
        is_named[texts, things] = True
        return is_named[texts][:, things]

    def _is_hard(self, phrases):
        is_hard = np.zeros((len(phrases), self.examples.roles.shape[1]), bool)
        if self.hard_negatives is not None:
            table = self.hard_negatives[phrases]
            rows, places = np.nonzero(table != _NONE)
            is_hard[rows, table[rows, places]] = True
        return is_hard


TABLE, RECORDED = "hard_negatives", "hard_negatives_recorded"
"""Keys of a run's state: the table, and the first epoch that uses it."""
_PER_PHRASE = 50
_NONE = -1
_ROWS_AT_ONCE = 4096


def hard_negatives(similarities, roles, limit=_PER_PHRASE):
    """Finds, for each phrase, the negatives that rank before a positive.

    A negative is hard if it is more similar to the phrase than the least
    similar positive. A phrase without positives has no hard negatives.

    Args:
        similarities: float `[num_phrases, width]`; larger is closer.
        roles: int8 `[num_phrases, width]`, from `proposal_roles`.
        limit: maximum number of negatives per phrase, >= 1. Wang 2016: 50.

    Returns:
        int16 `[num_phrases, limit]`, columns of `roles`, padded with -1.

    Source: Wang et al. 2016, Sec. 3.3, "Fine-tuned with negative mining".
    Departures: a phrase that occurs in several photos has a list per photo; a
    list contains the hardest negatives instead of a sample; regions that
    overlap the true box too much are not negatives; positives are proposals.
    """
    if roles.shape[1] > np.iinfo(np.int16).max:
        received = f"{roles.shape[1]} regions of a photo"
        raise InputError("roles", "have at most 32767 columns", received)
    table = np.full((len(roles), limit), _NONE, np.int16)
    for start in range(0, len(roles), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        scores = np.asarray(similarities[rows])
        positives = np.where(roles[rows] == POSITIVE, scores, np.inf)
        bar = positives.min(axis=1, initial=np.inf, keepdims=True)
        is_hard = (roles[rows] == NEGATIVE) & (scores > bar)
        keys = np.where(is_hard, -scores, np.inf)
        order = np.argsort(keys, axis=1, kind="stable")[:, :limit]
        is_valid = np.take_along_axis(is_hard, order, axis=1)
        table[rows, : order.shape[1]] = np.where(is_valid, order, _NONE)
    return table


def record_hard_negatives(state, first, examples, score):
    """Returns the state of a run with hard negatives; finds them if missing.

    `first` is the first epoch that uses the hard negatives. `score(examples,
    progress)` returns an object with a `table` of `similarities`.
    """
    roles, count = examples.roles, examples.phrases.images.num_images
    if state.get(RECORDED) != first:
        with progress_bar(count, "hard negatives", "photo") as bar:
            similarities = score(examples, bar.update).table.similarities
        table = hard_negatives(similarities, roles)
        counts = (table != _NONE).sum(axis=1)
        tqdm.tqdm.write(
            f"hard negatives: {counts.mean():.1f} regions per phrase; "
            f"{int((counts == 0).sum())} of {len(counts)} phrases have none "
            "and keep their negatives"
        )
        state = {**state, TABLE: table, RECORDED: first}
    table = state[TABLE]
    if len(table) != len(roles) or table.max(initial=_NONE) >= roles.shape[1]:
        expected = f"name the {len(table)} phrases that the run started with"
        received = f"{roles.shape} phrases and regions"
        raise InputError("--phrases", expected, received)
    return state
