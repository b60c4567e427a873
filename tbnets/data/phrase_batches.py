"""Mini-batches of phrase localization: phrases, their regions, the others.

A batch begins with pairs of a phrase and a region that it names, at random or
a few of one photo together; then come other phrases of the same things, and
from the phrases' photos the regions that may be negatives. What a batch holds
is a function of (seed, epoch) alone, as in `data.batches`.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.data.batches import batch_bounds
from tbnets.data.groups import place_among_equals, rows_by
from tbnets.data.hard_negatives import listed, listed_rows
from tbnets.data.phrases import PhraseRegions
from tbnets.data.proposal_roles import (
    NEGATIVE,
    NEGATIVE_REGIONS,
    ProposalRoles,
    proposal_roles,
)
from tbnets.errors import InputError


class Sampling(NamedTuple):
    """How batches are made; the defaults are Algorithm 1 without options.

    Attributes:
        pairs_per_batch: phrases drawn a batch. Wang 2018: 100.
        phrases_per_image: phrases of one photo that are drawn together; more
            of them share the photo's regions, which makes a step cheaper.
            Wang 2018: 1.
        regions_per_phrase: positives drawn of each phrase, 0 for all. Wang
            2018: 1; 2 with neighbourhood sampling, step 3 (c) ii; all for
            the similarity network.
        phrases_per_region: different phrases that a thing is to have in the
            batch, where there are so many. Wang 2018: 1; 2 with neighbourhood
            sampling, step 3 (c) i.
        candidates_per_image: regions drawn of a photo to be its phrases'
            negatives, 0 for all. Wang 2018: all.
        negative_regions: "photo", whose regions may be negatives; or "batch":
            those drawn for its other phrases. Wang 2016: the latter.
    """

    pairs_per_batch: int = 100
    phrases_per_image: int = 1
    regions_per_phrase: int = 1
    phrases_per_region: int = 1
    candidates_per_image: int = 0
    negative_regions: str = NEGATIVE_REGIONS[0]


class BatchRows(NamedTuple):
    """What stands in a batch, as rows.

    Attributes:
        phrases: int64 `[p]`, those drawn, then those added.
        regions: int64 `[d]`, rows of the regions drawn as positives.
        drawn_for: int64 `[d]`, place in `phrases` of each one's phrase.
        candidates: int64 `[c]`, rows of the regions that may be negatives.
        is_negative: bool `[p, c]`, of which phrase they are.
    """

    phrases: np.ndarray
    regions: np.ndarray
    drawn_for: np.ndarray
    candidates: np.ndarray
    is_negative: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)  # Arrays have no single ==.
class PhraseExamples:
    """One split of phrase localization with all that a network needs of it.

    Args:
        phrases: `PhraseRegions` in pixels of the photos.
        texts: object with `shape`, `dtype` and `batch(phrase_rows)`.
        features: a `store.shards.FeatureStore` of regions.
        image_rows: int `[num_images]`, row of each photo in the store.
        text_ids: int64 `[num_phrases]`, equal for equal phrases; None where
            equal phrases of different things do not match. With it, what one
            of the equal phrases of a photo names is no negative of the others.
        role_options: keyword arguments of `proposal_roles`.
    """

    phrases: PhraseRegions
    texts: object
    features: object
    image_rows: np.ndarray
    text_ids: np.ndarray | None = None
    role_options: Mapping = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def records(self):
        """The phrases as `CaptionedImages`, for what reads captions."""
        return self.phrases.as_captions()

    @functools.cached_property
    def proposals(self) -> list:
        """The boxes of each photo, `[k, 4]` in pixels."""
        return [self.features.boxes(row)[0] for row in self.image_rows]

    @functools.cached_property
    def first_regions(self) -> np.ndarray:
        """Row of each photo's first region in the store, `[num_images]`."""
        return self.features.first_regions[self.image_rows]

    @functools.cached_property
    def roles(self) -> ProposalRoles:
        """What each region of its photo is to a phrase."""
        found = proposal_roles(
            self.phrases.boxes,
            self.phrases.phrase_to_image,
            self.proposals,
            **self.role_options,
        )
        owners = self.phrases.phrase_to_image
        found = found._replace(first_rows=self.first_regions[owners])
        if self.text_ids is None:
            return found
        pairs = np.stack([owners, self.text_ids])
        _, groups = np.unique(pairs, axis=1, return_inverse=True)
        return found.with_common_negatives(groups.ravel())


class PhraseSampler:
    """Draws the batches of any epoch.

    Args:
        examples: `PhraseExamples`.
        sampling: `Sampling`.
        seed: integer of the run.

    Attributes:
        hard_negatives: int `[num_phrases, n]` of `data.hard_negatives`, or
            None. With it, those listed take the place of what else a phrase's
            photo offers, all of which one without any keeps; negatives of the
            batch stay, and those listed come to them.

    Raises:
        ValueError: a number is too small, or no phrase has a positive.

    Source: Wang et al. 2018, Algorithm 1; 2016, Sec. 3.3. Departures: a
        phrase that is added for a thing has other words than those that are
        there; where a thing has no others, it stays alone.
    """

    def __init__(self, examples, sampling, seed):
        _check_sampling(sampling)
        phrases = examples.phrases
        self.sampling = sampling
        self.seed = seed
        self.hard_negatives = None
        self._roles = examples.roles.roles
        self._starts, self._positives = examples.roles.positives()
        self._drawable = np.flatnonzero(np.diff(self._starts))
        self._images = phrases.phrase_to_image
        self._chains = phrases.phrase_to_chain
        self._texts = phrases.phrase_to_text
        self._text_ids = examples.text_ids
        if self._text_ids is None:
            self._text_ids = np.arange(phrases.num_phrases)
        self._counts = examples.features.counts[examples.image_rows]
        self._first_regions = examples.first_regions
        self._of_chain = rows_by(self._chains)
        if not self._drawable.size:
            raise InputError(
                "`--regions` must hold regions that phrases name. Received: "
                f"{phrases.num_phrases} phrases of {phrases.images.path}, of "
                "which none has a proposal that overlaps its box enough. "
                "Propose more regions, or lower --positive_iou."
            )

    @property
    def num_drawable(self):
        """The number of phrases that have a positive."""
        return len(self._drawable)

    @property
    def num_positives(self):
        """The number of positives of all phrases."""
        return len(self._positives)

    @property
    def num_batches(self):
        """The number of batches of every epoch."""
        return len(
            batch_bounds(self.num_drawable, self.sampling.pairs_per_batch)
        )

    def epoch(self, epoch):
        """Yields the `BatchRows` of an epoch.

        Args:
            epoch: integer from 0.
        """
        generator = np.random.default_rng([self.seed, epoch])
        order = self._order(generator)
        for start, stop in batch_bounds(
            len(order), self.sampling.pairs_per_batch
        ):
            yield self._batch(order[start:stop], generator)

    def _order(self, generator):
        """Returns the phrases in the order of an epoch."""
        order = generator.permutation(self._drawable)
        if self.sampling.phrases_per_image == 1:
            return order
        images = self._images[order]
        group = place_among_equals(images) // self.sampling.phrases_per_image
        groups, of_group = np.unique(
            np.stack([images, group]), axis=1, return_inverse=True
        )
        shuffled = generator.permutation(groups.shape[1])
        return order[np.argsort(shuffled[of_group.ravel()], kind="stable")]

    def _batch(self, rows, generator):
        """Returns the `BatchRows` that begin with some phrases."""
        drawn = [self._draw_positives(row, generator) for row in rows]
        drawn_for = np.repeat(np.arange(len(rows)), [len(one) for one in drawn])
        drawn = np.concatenate(drawn)
        phrases = np.concatenate([rows, self._others(rows, generator)])
        if self.sampling.negative_regions == "photo":
            found = self._of_photos(phrases, generator)
        else:
            wrong = self._is_of_others(phrases, drawn_for, drawn)
            found = self._with_hard_ones(phrases, drawn, wrong)
        return BatchRows(phrases, drawn, drawn_for, *found)

    def _is_of_others(self, phrases, drawn_for, regions):
        """Returns which regions, drawn for some phrases, others do not name.

        A region of another photo is one of a phrase's own where its thing is
        called the same in the batch, as in `losses.positives`.
        """
        images = self._images[phrases]
        here, there = images[:, None], images[drawn_for]
        columns = regions - self._first_regions[there]
        is_wrong = self._roles[phrases][:, columns] == NEGATIVE
        is_called = self._is_called(phrases)[:, drawn_for]
        return np.where(here == there, is_wrong, ~is_called)

    def _is_called(self, phrases):
        """Returns whether i's words are said of j's thing, bool `[p, p]`."""
        _, texts = np.unique(self._text_ids[phrases], return_inverse=True)
        _, things = np.unique(self._chains[phrases], return_inverse=True)
        said = np.zeros((texts.max() + 1, things.max() + 1), bool)
        said[texts, things] = True
        return said[texts][:, things]

    def _with_hard_ones(self, phrases, regions, is_negative):
        """Returns both with the phrases' hard negatives appended."""
        if self.hard_negatives is None:
            return regions, is_negative
        first = self._first_regions[self._images[phrases]]
        hard, is_hard = listed_rows(self.hard_negatives[phrases], first)
        together = np.concatenate([is_negative, is_hard], axis=1)
        return np.concatenate([regions, hard]), together

    def _of_photos(self, phrases, generator):
        """Returns `candidates` and `is_negative` from phrases' photos."""
        images, places = np.unique(self._images[phrases], return_inverse=True)
        is_listed = self._listed(phrases)
        columns = [
            self._candidates(image, is_listed[places == place], generator)
            for place, image in enumerate(images)
        ]
        owners = np.repeat(images, [len(one) for one in columns])
        columns = np.concatenate(columns)
        has_list = is_listed.any(axis=1)[:, None]
        is_negative = np.where(
            has_list, is_listed, self._roles[phrases] == NEGATIVE
        )[:, columns]
        is_negative &= self._images[phrases][:, None] == owners
        return self._first_regions[owners] + columns, is_negative

    def _draw_positives(self, row, generator):
        """Returns rows of regions that a phrase names."""
        found = self._positives[self._starts[row] : self._starts[row + 1]]
        limit = self.sampling.regions_per_phrase or None
        return generator.permutation(found)[:limit]

    def _others(self, rows, generator):
        """Returns other phrases of the things that some phrases name."""
        if self.sampling.phrases_per_region == 1:
            return rows[:0]
        added = []
        chains, first = np.unique(self._chains[rows], return_index=True)
        for chain in chains[np.argsort(first)]:
            said = set(self._texts[rows[self._chains[rows] == chain]].tolist())
            for row in generator.permutation(self._of_chain[chain]):
                if len(said) >= self.sampling.phrases_per_region:
                    break
                if self._texts[row] not in said:
                    said.add(int(self._texts[row]))
                    added.append(row)
        return np.array(added, np.int64)

    def _listed(self, phrases):
        """Returns which columns are hard negatives of some phrases."""
        width = self._roles.shape[1]
        if self.hard_negatives is None:
            return np.zeros((len(phrases), width), bool)
        return listed(self.hard_negatives[phrases], width)

    def _candidates(self, image, is_listed, generator):
        """Returns which regions of a photo its phrases need, ascending.

        Args:
            image: row of the photo.
            is_listed: bool `[p, width]`, hard negatives of its phrases.
            generator: draws for the phrases that have none.
        """
        needed = is_listed.any(axis=0)
        if not is_listed.any(axis=1).all():
            needed[self._draw_columns(image, generator)] = True
        return np.flatnonzero(needed)

    def _draw_columns(self, image, generator):
        """Returns which regions of a photo may be negatives, ascending."""
        count = int(self._counts[image])
        limit = self.sampling.candidates_per_image
        if not limit or count <= limit:
            return np.arange(count)
        return np.sort(generator.permutation(count)[:limit])


class PhraseBatches:
    """The batches of one epoch after the other, as `data.EpochBatches`.

    Args:
        examples: `PhraseExamples`.
        sampler: its `PhraseSampler`.

    Attributes:
        epoch: integer from 0; set it, then go through `dataset`.
        dataset: `tf.data.Dataset` of the batches of `epoch`: `images` are the
            regions that were drawn, `captions` the phrases, ids those of the
            things that they name (`phrase_to_chain`); beside them stands what
            `models.own_candidates` describes.
    """

    def __init__(self, examples, sampler):
        self.epoch = 0
        self._examples = examples
        self._sampler = sampler
        self.dataset = tf.data.Dataset.from_generator(
            self._generate, output_signature=_signature(examples)
        ).prefetch(2)

    def _generate(self):
        for rows in self._sampler.epoch(self.epoch):
            yield self._read(rows)

    def _read(self, rows):
        """Returns what stands in some rows; features are read at once."""
        examples, drawn = self._examples, len(rows.regions)
        regions = np.concatenate([rows.regions, rows.candidates])
        features = examples.features.take_regions(regions)
        chains = examples.phrases.phrase_to_chain[rows.phrases]
        batch = {
            "images": features[:drawn],
            "captions": examples.texts.batch(rows.phrases),
            "image_ids": chains[rows.drawn_for],
            "caption_image_ids": chains,
            "drawn_for": rows.drawn_for.astype(np.int32),
            "candidates": features[drawn:],
            "is_negative": rows.is_negative,
        }
        if examples.text_ids is not None:
            batch["text_ids"] = examples.text_ids[rows.phrases]
        return batch


def _signature(examples):
    """Returns the `tf.TensorSpec`s of a batch."""
    dim = examples.features.dim
    texts = examples.texts
    signature = {
        "images": tf.TensorSpec((None, dim), tf.float32),
        "captions": tf.TensorSpec((None, *texts.shape), texts.dtype),
        "image_ids": tf.TensorSpec((None,), tf.int64),
        "caption_image_ids": tf.TensorSpec((None,), tf.int64),
        "drawn_for": tf.TensorSpec((None,), tf.int32),
        "candidates": tf.TensorSpec((None, dim), tf.float32),
        "is_negative": tf.TensorSpec((None, None), tf.bool),
    }
    if examples.text_ids is not None:
        signature["text_ids"] = tf.TensorSpec((None,), tf.int64)
    return signature


def _check_sampling(sampling):
    """Refuses numbers that make no batch."""
    if sampling.negative_regions not in NEGATIVE_REGIONS:
        raise InputError(
            "`negative_regions` must be photo or batch. Received: "
            f"negative_regions={sampling.negative_regions}. Change the flag."
        )
    for name, value in sampling._asdict().items():
        least = int(name not in ("regions_per_phrase", "candidates_per_image"))
        if name != "negative_regions" and value < least:
            raise InputError(
                f"`{name}` must be at least {least}. Received: {name}={value}. "
                f"Change --{name}."
            )
