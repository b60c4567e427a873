"""A split of phrase localization: phrases, texts, regions, their roles."""

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

# The roles of a photo's regions for its phrases: positive, negative, neither.
#
#     roles = proposal_roles(phrases.boxes, phrases.phrase_to_image, proposals)
#     starts, rows = roles.positives()
#     features[rows[starts[p] : starts[p + 1]]]  # of the positives of phrase p
#
# `phrases` are in pixels of the photos, `proposals` is a sequence of arrays
# `[k, 4]`, one for each photo; rows count through all proposals, as in a store.

POSITIVE_IOU = 0.7
NEGATIVE_IOU = 0.3
POSITIVES = ("augmented", "single")
POSITIVE, NEITHER, NEGATIVE = 1, 0, -1


class ProposalRoles(NamedTuple):
    """The roles of a photo's proposals for each of its phrases.

    Attributes:
        roles: int8 `[num_phrases, width]`: 1 positive, -1 negative, 0 neither;
            width is the maximum number of proposals per photo. Shorter rows are
            padded with 0.
        first_rows: int64 `[num_phrases]`, row of the photo's first proposal in
            all proposals: column c of `roles` is row `first_rows + c`. If the
            features have another order, use `roles._replace(first_rows=...)`.
        best: int64 `[num_phrases]`, column of the proposal with the largest
            overlap, the first of equal overlaps; -1 without any overlap.
        best_iou: float32 `[num_phrases]`, overlap of the best proposal; 0 if
            `best` is -1.
    """

    roles: np.ndarray
    first_rows: np.ndarray
    best: np.ndarray
    best_iou: np.ndarray

    def positives(self):
        """Returns the positives of phrases: int64 starts and int64 rows.

        The positives of phrase p are `rows[starts[p] : starts[p + 1]]`,
        ascending rows in the proposals.
        """
        phrases, columns = np.nonzero(self.roles == POSITIVE)
        starts = np.searchsorted(phrases, np.arange(len(self.roles) + 1))
        return starts, self.first_rows[phrases] + columns

    def with_common_negatives(self, groups):
        """Keeps only negatives that all phrases of a group share.

        Phrases with equal text cannot be distinguished. A region that one of
        them names, or half names, is not a negative of another phrase. It is
        not a positive either, as it shows another object.

        `groups` is int `[num_phrases]`, equal for phrases of one photo with
        equal text.
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

    Proposals of the photo that overlap the phrase's box by more than
    `positive_iou` are positives, unless `positives` is "single". The proposal
    with the largest overlap, the first of equal overlaps, is always a positive
    if it overlaps by at least `best_iou`. Proposals that overlap by less than
    `negative_iou` are negatives.

    If the proposals include the true box, it is the best proposal, and so the
    single positive of the paper. Otherwise the best proposal replaces it.

    Args:
        truth: `[num_phrases, 4]`, each phrase's box.
        phrase_to_image: int `[num_phrases]`, row of the image.
        proposals: sequence of num_images arrays `[k, 4]`, in the pixels of
            `truth`.
        positives: "augmented" or "single".
        positive_iou: in [0, 1]. Wang 2018: 0.7.
        negative_iou: in [0, 1], at most `positive_iou`. Wang 2018: 0.3.
        best_iou: in [0, 1]; 0 makes the best proposal a positive for any
            overlap above 0.

    Returns:
        ProposalRoles.

    Raises:
        ValueError: a box is invalid, a row does not exist, or another argument
            is out of range.

    Source: Wang et al. 2018, Sec. 4.1 and 4.2 ("more than 0.7"; Algorithm 1
    writes "at least"). Departure: the best proposal replaces the true box.
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


@dataclasses.dataclass(frozen=True, eq=False)  # `==` of arrays is an array.
class PhraseExamples:
    """A split of phrase localization for a network.

    Args:
        phrases: `PhraseRegions` in pixels of the photos.
        texts: object with `shape`, `dtype` and `batch(phrase_rows)`.
        features: a `data.store.shards.FeatureStore` of regions.
        image_rows: int `[num_images]`, each photo's row in the store.
        text_ids: int64 `[num_phrases]`, equal for equal phrases, whose regions
            are then not negatives for one another in a photo; None if equal
            phrases of different objects do not match.
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
        """The phrases as `CaptionedImages`, for readers of captions."""
        return self.phrases.as_captions()

    @functools.cached_property
    def num_regions(self):
        """The number of regions per photo, `[num_images]`."""
        return self.features.counts[self.image_rows]

    @property
    def counts(self):
        """The sizes of the split: name -> int."""
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
        """The boxes per photo, `[k, 4]` in pixels."""
        return [self.features.boxes(row)[0] for row in self.image_rows]

    @functools.cached_property
    def first_regions(self) -> np.ndarray:
        """Each photo's first region row in the store, `[num_images]`."""
        return self.features.first_regions[self.image_rows]

    @functools.cached_property
    def roles(self) -> ProposalRoles:
        """The `ProposalRoles` of the regions."""
        boxes, owners = self.phrases.boxes, self.phrases.phrase_to_image
        given = boxes, owners, self.proposals
        found = proposal_roles(*given, **self.role_options)
        found = found._replace(first_rows=self.first_regions[owners])
        if self.text_ids is None:
            return found
        pairs = zip(owners.tolist(), self.text_ids.tolist())
        return found.with_common_negatives(numbered(pairs))
