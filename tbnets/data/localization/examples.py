"""One split of phrase localization: phrases, texts, regions, their roles."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from tbnets.data.examples import sampled
from tbnets.data.localization.roles import ProposalRoles, proposal_roles
from tbnets.data.phrases import PhraseRegions
from tbnets.identity import numbered


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
