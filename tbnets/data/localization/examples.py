"""One split of phrase localization: phrases, texts, regions, their roles."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tbnets.checks import SAME_THING, numbered
from tbnets.data.batches import sampled
from tbnets.data.phrases import PhraseRegions
from tbnets.errors import InputError, check_choice
from tbnets.evaluation import boxes

# Which regions of its photo are positives of a phrase, negatives, neither.
#
#     roles = proposal_roles(phrases.boxes, phrases.phrase_to_image, proposals)
#     starts, rows = roles.positives()
#     features[rows[starts[p] : starts[p + 1]]]  # of the positives of phrase p
#
# `phrases` are those of photos' own pixels, `proposals` a sequence of arrays
# `[k, 4]`, one a photo; rows count through all of them, as a store does.

POSITIVE_IOU = 0.7
NEGATIVE_IOU = 0.3
POSITIVES = ("augmented", "single")
POSITIVE, NEITHER, NEGATIVE = 1, 0, -1


class ProposalRoles(NamedTuple):
    """The roles of the proposals of a photo for each of its phrases.

    Attributes:
        roles: int8 `[num_phrases, width]`: 1 positive, -1 negative, 0
            neither; width is the largest number of proposals of a photo, and
            what lies beyond the photo's own is 0.
        first_rows: int64 `[num_phrases]`, row of its photo's first proposal
            among all proposals: column c of `roles` is row
            `first_rows + c`. Where features lie in another order, give
            theirs: `roles._replace(first_rows=...)`.
        best: int64 `[num_phrases]`, column of the largest overlap, the first
            of equal ones; -1 where none overlaps.
        best_iou: float32 `[num_phrases]`, that overlap; 0 for -1.
    """

    roles: np.ndarray
    first_rows: np.ndarray
    best: np.ndarray
    best_iou: np.ndarray

    def positives(self):
        """Returns (starts, rows) of the positives of all phrases.

        Returns:
            int64 `[num_phrases + 1]` and int64 `[n]`: the positives of
            phrase p are `rows[starts[p] : starts[p + 1]]`, ascending rows of
            all proposals.
        """
        phrases, columns = np.nonzero(self.roles == POSITIVE)
        starts = np.searchsorted(phrases, np.arange(len(self.roles) + 1))
        return starts, self.first_rows[phrases] + columns

    def with_common_negatives(self, groups):
        """Leaves each phrase the negatives that all of its group have.

        Phrases that read the same can not be told apart: what one of them
        names, or half names, is no negative of another. It is no positive of
        another either, for it shows another thing.

        Args:
            groups: int `[num_phrases]`, equal for phrases of one photo that
                read the same.

        Returns:
            ProposalRoles.
        """
        _, group = np.unique(groups, return_inverse=True)
        counts, is_negative = np.bincount(group), self.roles == NEGATIVE
        order, starts = np.argsort(group), np.cumsum(counts) - counts
        common = np.logical_and.reduceat(is_negative[order], starts)
        roles = np.where(is_negative & ~common[group], NEITHER, self.roles)
        return self._replace(roles=roles.astype(np.int8))


def proposal_roles(
    truth,
    phrase_to_image,
    proposals,
    *,
    positives: str = "augmented",
    positive_iou: float = POSITIVE_IOU,
    negative_iou: float = NEGATIVE_IOU,
    best_iou: float = SAME_THING,
) -> ProposalRoles:
    """Tells which proposals are positives and negatives of each phrase.

    Of a photo's proposals, those that overlap the phrase's box by more than
    `positive_iou` are positives, unless `positives` is "single". The one of
    the largest overlap, the first of equal ones, is a positive in any case
    where it overlaps by at least `best_iou`. Those that overlap by less than
    `negative_iou` are negatives.

    The true box stands among the proposals where it was put there (and so
    has features): then it is the best one, the single positive of the paper.
    Where proposals are all there is, the best one takes its place.

    Args:
        truth: `[num_phrases, 4]`, the box of each phrase.
        phrase_to_image: int `[num_phrases]`, row of the image.
        proposals: sequence of num_images arrays `[k, 4]`, in the same pixels.
        positives: "augmented" or "single".
        positive_iou: in [0, 1]. Wang 2018: 0.7.
        negative_iou: in [0, 1], at most `positive_iou`. Wang 2018: 0.3.
        best_iou: in [0, 1]; 0 makes the best one a positive however little
            it overlaps, if it does.

    Returns:
        ProposalRoles.

    Raises:
        ValueError: a box is none, a row is out of range, or another argument
            is.

    Source: Wang et al. 2018, Sec. 4.1 and 4.2 ("more than 0.7"; Algorithm 1
        writes "at least"). Departure: the best proposal in place of the true
        box.
    """
    check_choice("positives", positives, POSITIVES)
    if not 0 <= negative_iou <= positive_iou <= 1 or not 0 <= best_iou <= 1:
        raise InputError(
            "`negative_iou`, `positive_iou` and `best_iou` must lie from 0 to "
            f"1, the first at most the second. Received: {negative_iou}, "
            f"{positive_iou} and {best_iou}. Papers: 0.3, 0.7 and 0.5."
        )
    sizes = np.array([len(one) for one in proposals], np.int64)
    firsts = np.cumsum(sizes) - sizes
    roles = np.zeros((len(truth), int(sizes.max(initial=0))), np.int8)
    best = np.full(len(truth), -1, np.int64)
    best_overlap = np.zeros(len(truth), np.float32)
    found = boxes.overlaps_by_photo(truth, phrase_to_image, proposals)
    for image, rows, overlaps in found:
        place, phrases = overlaps.argmax(axis=1), np.arange(len(rows))
        most = overlaps[phrases, place]
        best[rows] = np.where(most > 0, place, -1)
        best_overlap[rows] = most
        own = np.where(overlaps < negative_iou, NEGATIVE, NEITHER)
        if positives == "augmented":
            own[overlaps > positive_iou] = POSITIVE
        enough = (most >= best_iou) & (most > 0)
        own[phrases[enough], place[enough]] = POSITIVE
        roles[rows, : sizes[image]] = own
    owners = np.asarray(phrase_to_image, np.int64)
    return ProposalRoles(roles, firsts[owners], best, best_overlap)


@dataclasses.dataclass(frozen=True, eq=False)  # Arrays have no single ==.
class PhraseExamples:
    """One split of phrase localization with all that a network needs of it.

    Args:
        phrases: `PhraseRegions` in pixels of the photos.
        texts: object with `shape`, `dtype` and `batch(phrase_rows)`.
        features: a `data.store.shards.FeatureStore` of regions.
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
    def num_regions(self):
        """How many regions each photo has, `[num_images]`."""
        return self.features.counts[self.image_rows]

    @property
    def counts(self):
        """How many of what there are: name -> int."""
        return {
            "photos": self.phrases.images.num_images,
            "regions": int(self.num_regions.sum()),
            "things": len(np.unique(self.phrases.phrase_to_chain)),
            "phrases": self.phrases.num_phrases,
        }

    def samples(self, layer):
        """Yields features of the regions of some photos, evenly spread."""
        for row in sampled(len(self.image_rows)):
            yield self.features.regions(self.image_rows[row])[0]

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
        boxes, owners = self.phrases.boxes, self.phrases.phrase_to_image
        given = boxes, owners, self.proposals
        found = proposal_roles(*given, **self.role_options)
        found = found._replace(first_rows=self.first_regions[owners])
        if self.text_ids is None:
            return found
        pairs = zip(owners.tolist(), self.text_ids.tolist())
        return found.with_common_negatives(numbered(pairs))
