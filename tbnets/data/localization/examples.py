"""Phrases and regions of a split, and which regions match which phrases."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tbnets.checks import SAME_THING, numbered
from tbnets.data.batches import sampled
from tbnets.data.phrases import PhraseRegions
from tbnets.evaluation import boxes

# A region of a photo is a positive or a negative of a phrase, or neither:
#
#     roles = proposal_roles(phrases.boxes, phrases.phrase_to_image, proposals)
#     starts, rows = roles.positives()
#     features[rows[starts[p] : starts[p + 1]]]  # The positives of phrase p.

POSITIVE_IOU = 0.7
NEGATIVE_IOU = 0.3
POSITIVES = ("augmented", "single")
POSITIVE, NEITHER, NEGATIVE = 1, 0, -1


class ProposalRoles(NamedTuple):
    """For each phrase, which proposals of its photo are positive or negative.

    Attributes:
        roles: int8 `[num_phrases, width]`: 1 for a positive, -1 for a negative,
            0 for neither and for padding. width is the maximum number of
            proposals per photo.
        first_rows: int64 `[num_phrases]`. Column c of a phrase's `roles` is the
            proposal in row `first_rows + c`.
        best: int64 `[num_phrases]`, column of the proposal with the largest IoU
            (the first if several tie), or -1 if no proposal overlaps.
        best_iou: float32 `[num_phrases]`, the IoU of `best`, or 0.
    """

    roles: np.ndarray
    first_rows: np.ndarray
    best: np.ndarray
    best_iou: np.ndarray

    def positives(self):
        """Returns all positives as (starts, rows), int64.

        The positives of phrase p are `rows[starts[p] : starts[p + 1]]`.
        """
        phrases, columns = np.nonzero(self.roles == POSITIVE)
        starts = np.searchsorted(phrases, np.arange(len(self.roles) + 1))
        return starts, self.first_rows[phrases] + columns

    def with_common_negatives(self, groups):
        """Keeps only the negatives that all phrases of a group have in common.

        The role of other negatives becomes 0. `groups`, int `[num_phrases]`,
        has equal numbers for phrases with equal text, because they cannot be
        distinguished.
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

    Source: Wang et al. 2018, Sec. 4.1 and 4.2. Departure: the paper's
    single positive is the true box; here, it is the best proposal.
    """
    sizes = np.array([len(photo_boxes) for photo_boxes in proposals], np.int64)
    firsts = np.cumsum(sizes) - sizes
    roles = np.zeros((len(truth), int(sizes.max(initial=0))), np.int8)
    best = np.full(len(truth), -1, np.int64)
    best_overlap = np.zeros(len(truth), np.float32)
    photo_overlaps = boxes.overlaps_by_photo(truth, phrase_to_image, proposals)
    for image, rows, overlaps in photo_overlaps:
        place, phrases = overlaps.argmax(axis=1), np.arange(len(rows))
        most = overlaps[phrases, place]
        best[rows] = np.where(most > 0, place, -1)
        best_overlap[rows] = most
        photo_roles = np.where(overlaps < negative_iou, NEGATIVE, NEITHER)
        if positives == "augmented":
            photo_roles[overlaps > positive_iou] = POSITIVE
        enough = (most >= best_iou) & (most > 0)
        photo_roles[phrases[enough], place[enough]] = POSITIVE
        roles[rows, : sizes[image]] = photo_roles
    owners = np.asarray(phrase_to_image, np.int64)
    return ProposalRoles(roles, firsts[owners], best, best_overlap)


@dataclasses.dataclass(frozen=True, eq=False)  # `==` of arrays is an array.
class PhraseExamples:
    """A split of a phrase localization dataset, as input for a network.

    Args:
        phrases: `PhraseRegions` with boxes in pixels of the photos.
        texts: object with `shape`, `dtype` and `batch(phrase_rows)`.
        features: a `data.store.reader.FeatureStore` of regions.
        image_rows: int `[num_images]`, each photo's row in the store.
        text_ids: int64 `[num_phrases]`, equal for phrases with equal text. Such
            phrases of a photo have only the negatives that are common to all of
            them. If None, each phrase matches only its own object.
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
        """The phrases as `CaptionedImages`."""
        return self.phrases.as_captions()

    @functools.cached_property
    def num_regions(self):
        """The number of regions per photo, `[num_images]`."""
        return self.features.counts[self.image_rows]

    @property
    def counts(self):
        """A dict with the numbers of photos, regions, objects and phrases."""
        return {
            "photos": self.phrases.images.num_images,
            "regions": int(self.num_regions.sum()),
            "things": len(np.unique(self.phrases.phrase_to_chain)),
            "phrases": self.phrases.num_phrases,
        }

    def samples(self, layer):
        """Yields the region features of evenly spaced photos."""
        for row in sampled(len(self.image_rows)):
            yield self.features.regions(self.image_rows[row])[0]

    @functools.cached_property
    def proposals(self) -> list:
        """The boxes of each photo's regions, `[k, 4]` in pixels."""
        return [self.features.boxes(row)[0] for row in self.image_rows]

    @functools.cached_property
    def first_regions(self) -> np.ndarray:
        """The row of each photo's first region, `[num_images]`."""
        return self.features.first_regions[self.image_rows]

    @functools.cached_property
    def roles(self) -> ProposalRoles:
        """The `ProposalRoles` of the regions."""
        boxes, owners = self.phrases.boxes, self.phrases.phrase_to_image
        arguments = boxes, owners, self.proposals
        roles = proposal_roles(*arguments, **self.role_options)
        roles = roles._replace(first_rows=self.first_regions[owners])
        if self.text_ids is None:
            return roles
        pairs = zip(owners.tolist(), self.text_ids.tolist())
        return roles.with_common_negatives(numbered(pairs))
