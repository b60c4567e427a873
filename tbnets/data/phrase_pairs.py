"""Draws mini-batches of captions with (noun phrase, region) pairs.

For each noun phrase of its captions, a batch also contains the region that the
model currently assigns to the phrase.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.checks import SAME_THING, numbered
from tbnets.data.batches import (
    WHOLE,
    EpochBatches,
    Examples,
    PhotoRegions,
    ranges,
)
from tbnets.evaluation import boxes
from tbnets.seeds import generator_of
from tbnets.text.packed_trees import END, NOUN_PHRASE, START, WORD


class NounPhrases(NamedTuple):
    """Noun phrases as nodes of parse trees, sorted by caption.

    Attributes:
        captions: int64 `[num_phrases]`, row of the phrase's caption.
        nodes: int64 `[num_phrases]`, index of the phrase's node in its tree.
        spans: int64 `[num_phrases, 2]`, half-open range of the phrase's words.
        texts: int64 `[num_phrases]`. Phrases with identical words share an id.
        starts: int64 `[num_captions + 1]`, row of each caption's first phrase;
            the last value is num_phrases.
    """

    captions: np.ndarray
    nodes: np.ndarray
    spans: np.ndarray
    texts: np.ndarray
    starts: np.ndarray

    def rows_of(self, captions):
        """Returns the phrase indices for the caption indices `captions`."""
        return ranges(self.starts[captions], self.starts[captions + 1])[1]

    def in_batch(self, captions, lengths):
        """Locates the phrases of a batch of captions.

        `captions` contains the caption rows, and `lengths` the number of tree
        nodes per caption. Returns int64 arrays (rows, places, nodes): for each
        phrase, its row, the index of its caption in `captions`, and the index
        of its node among all nodes in the batch.
        """
        places, rows = ranges(self.starts[captions], self.starts[captions + 1])
        firsts = np.cumsum(lengths) - lengths
        return rows, places, firsts[places] + self.nodes[rows]


def noun_phrases(trees) -> NounPhrases:
    """Finds the noun phrases of parse trees (`text.packed_trees.TreeRows`).

    A node that spans its whole caption is not a phrase. Among noun phrases with
    equal spans, only the highest node is kept.

    Source: Niu et al. 2017, Sec. 3.3. Departures: none; the paper does not
    define noun phrases at the root.
    """
    nodes, lengths = trees.values, trees.lengths
    first = np.cumsum(lengths) - lengths
    captions = np.repeat(np.arange(len(lengths)), lengths)
    spans = nodes[:, [START, END]].astype(np.int64)
    whole = spans[first + lengths - 1][captions] if len(nodes) else spans
    is_phrase = nodes[:, NOUN_PHRASE] > 0
    is_phrase &= (spans != whole).any(axis=1)
    # The rows are reversed, so that `np.unique` keeps the highest node.
    rows = np.flatnonzero(is_phrase)[::-1]
    keys = np.column_stack([captions, spans])[rows]
    rows = np.sort(rows[np.unique(keys, axis=0, return_index=True)[1]])
    phrase_captions = captions[rows]
    words = nodes[:, WORD]
    starts = first[phrase_captions] + spans[rows, 0]
    ends = first[phrase_captions] + spans[rows, 1]
    return NounPhrases(
        phrase_captions,
        rows - first[phrase_captions],
        spans[rows],
        # Phrases have equal texts if their word ids are equal.
        numbered(words[a:b].tobytes() for a, b in zip(starts, ends)),
        np.searchsorted(phrase_captions, np.arange(len(lengths) + 1)),
    )


CHOICE, CONFIDENCE = "choice", "confidence"
"""Keys of the assignments: the candidate region assigned to each phrase, int16
`[num_phrases]`, and its similarity to the phrase, float32 `[num_phrases]`."""
CONTRASTS = ("others", "batch")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PairExamples(Examples):
    """A split with its `PhotoRegions` and the `NounPhrases` of its captions."""

    phrases: NounPhrases
    regions: PhotoRegions

    @functools.cached_property
    def phrase_images(self):
        """The row of each phrase's photo, int64 `[num_phrases]`."""
        return self.records.caption_to_image[self.phrases.captions]

    @property
    def counts(self):
        """A dict with the numbers of images, captions, phrases and regions."""
        return super().counts | {
            "phrases": len(self.phrases.captions),
            "regions": int(self.regions.counts.sum()),
        }

    def samples(self, layer):
        """Yields region features for "region_encoder", else photo features."""
        if layer != "region_encoder":
            return super().samples(layer)
        return self.regions.samples()


MOST_PAIRS = 512
"""Maximum number of pairs in a batch. If there are more, a subset is drawn."""


class PairBatches(EpochBatches):
    """Batches of captions, phrases and regions for `models.hm_lstm`.

    Before the first assignments, each phrase is paired with a random candidate
    of its photo, with weight 0. A phrase is not contrasted with regions that
    overlap its own region with an IoU of at least `SAME_THING`, or that are
    assigned to a phrase with identical words.

    Args:
        examples: a `PairExamples`.
        assignments: function that returns a dict with the keys `CHOICE` and
            `CONFIDENCE`, or {} before the first assignments.
        contrast: "others" contrasts a pair only with regions of other photos;
            "batch" also with regions of its own photo.
        every_region: whether a batch contains all regions of its photos, not
            only the assigned regions.
        **sampling: further arguments of `EpochBatches`.

    Source: Niu et al. 2017, Sec. 3.2.2 and 3.3. The paper does not define which
    pairs are contrasted. Departure: here, pairs with a negative similarity have
    weight 0.
    """

    def __init__(
        self,
        examples,
        assignments,
        contrast=CONTRASTS[0],
        every_region=False,
        **sampling,
    ):
        self._assignments = assignments
        self._contrast = contrast
        self._every_region = every_region
        self._phrase_images = examples.phrase_images
        super().__init__(examples, **sampling)

    def batch(self, image_rows, caption_rows, number, share=WHOLE):
        """Returns a share of a batch, as a dict for `HMLSTM.train_step`."""
        generator = generator_of(self._seed, "pairs", self.epoch, number)
        rows, places, nodes = self._draw(caption_rows, generator)
        examples = self.examples
        owners = np.full(examples.records.num_images, -1)
        owners[image_rows] = np.arange(len(image_rows))
        owners = owners[self._phrase_images[rows]]
        choices, weights = self._choices(rows, generator)
        photos, numbers, region_of = self._regions(image_rows, owners, choices)
        regions = photos, numbers, region_of
        is_contrast = self._contrasts(*regions, rows, image_rows)
        # A phrase is in the share of its caption, whose tree contains its node.
        captions, part = share.of(len(caption_rows)), share.of(len(photos))
        ends = np.searchsorted(places, [captions.start, captions.stop])
        phrase_part = slice(*ends)
        before = examples.texts.lengths[caption_rows[: captions.start]].sum()
        chosen = image_rows[photos[part]]
        return super().batch(image_rows, caption_rows, number, share) | {
            "regions": examples.regions.take(chosen, numbers[part]),
            "region_images": photos[part].astype(np.int32),
            "phrase_nodes": (nodes[phrase_part] - before).astype(np.int32),
            "region_of": region_of[phrase_part].astype(np.int32),
            "is_contrast": is_contrast.T[phrase_part],
            "weights": weights[phrase_part].astype(np.float32),
        }

    def signature(self):
        """Returns the `tf.TensorSpec`s of a batch."""
        dim = self.examples.regions.store.dim
        return super().signature() | {
            "regions": tf.TensorSpec((None, dim), tf.float32),
            "region_images": tf.TensorSpec((None,), tf.int32),
            "phrase_nodes": tf.TensorSpec((None,), tf.int32),
            "region_of": tf.TensorSpec((None,), tf.int32),
            "is_contrast": tf.TensorSpec((None, None), tf.bool),
            "weights": tf.TensorSpec((None,), tf.float32),
        }

    def _draw(self, caption_rows, generator):
        lengths = self.examples.texts.lengths[caption_rows]
        drawn = self.examples.phrases.in_batch(caption_rows, lengths)
        count = len(drawn[0])
        if count > MOST_PAIRS:
            drawn_rows = np.sort(generator.permutation(count)[:MOST_PAIRS])
            drawn = [array[drawn_rows] for array in drawn]
        return drawn

    def _choices(self, rows, generator):
        assignments = self._assignments()
        if not assignments:
            counts = self.examples.regions.counts[self._phrase_images[rows]]
            return generator.integers(0, counts + 1), np.zeros(len(rows))
        choices = assignments[CHOICE][rows].astype(np.int64)
        return choices, np.maximum(assignments[CONFIDENCE][rows], 0)

    def _regions(self, image_rows, owners, choices):
        regions = self.examples.regions
        counts = regions.counts[image_rows]
        width = int(counts.max(initial=0)) + 1
        is_photo, keys = choices == counts[owners], owners * width + choices
        if self._every_region:
            photos, numbers = regions.all_of(image_rows)
            listed = photos * width + numbers
        else:
            listed = np.unique(keys[~is_photo])
            photos, numbers = np.divmod(listed, width)
        rows = np.searchsorted(listed, keys)
        return photos, numbers, np.where(is_photo, len(listed) + owners, rows)

    def _contrasts(self, photos, numbers, region_of, rows, image_rows):
        photos = np.append(photos, np.arange(len(image_rows)))
        numbers = np.append(numbers, self.examples.regions.counts[image_rows])
        texts = self.examples.phrases.texts[rows]
        names = np.zeros((len(photos), len(rows)), np.float32)
        names[region_of, np.arange(len(rows))] = 1
        is_named = names @ (texts[:, None] == texts).astype(np.float32) > 0
        allowed = names.any(axis=1, keepdims=True) & ~is_named
        is_own_photo = photos[:, None] == photos[region_of]
        if self._contrast == "others":
            return allowed & ~is_own_photo
        # Contrast assigned regions with other regions of their photo.
        for place in np.unique(photos[region_of]):
            photo_rows = np.flatnonzero(photos == place)
            pairs = np.flatnonzero(photos[region_of] == place)
            candidates = self.examples.regions.candidates(image_rows[place])
            chosen = candidates[numbers[region_of[pairs]]]
            overlaps = boxes.iou(candidates[numbers[photo_rows]], chosen)
            allowed[np.ix_(photo_rows, pairs)] &= overlaps < SAME_THING
        return allowed
