"""Boxes that may hold an object: their flags, and how a store is made."""

import dataclasses

from tbnets.cores import usable_cores
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import proposals, region_extraction
from tbnets.tasks.recipes.photo_stores import OfPhotos, work_through
from tbnets.tasks.settings.flag import Count, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposals:
    """Which boxes are proposed."""

    method: str = flag(
        "edge_boxes",
        "edge_boxes (Zitnick & Dollar 2014) or selective_search (Uijlings et "
        "al. 2013).",
        choices=list(proposals.IOU_THRESHOLDS),
    )
    limit: Count = flag(200, "Most boxes of a photo. Wang 2018: 200.")
    iou_threshold: float | None = flag(
        None,
        "Boxes that overlap a better one by more are dropped; by default "
        + ", ".join(f"{v} for {k}" for k, v in proposals.IOU_THRESHOLDS.items())
        + ".",
    )
    iou_decay: float = flag(
        1.0,
        "What edge_boxes multiplies --iou_threshold by for each box it keeps, "
        "while it is above 0.5: the best then have closer neighbours.",
    )
    max_aspect_ratio: float = flag(
        3.0, "Of edge_boxes: most times a box is wider than high, or higher."
    )
    longest_side: int = flag(
        500, "Larger photos are scaled down to it while boxes are sought."
    )
    min_area: float = flag(
        0.005, "Least area of a box, as a fraction of the photo."
    )
    whole_photo: bool = flag(
        False, "The photo itself is one more box, the last."
    )


def make_proposals(photos, values, folder, workers=None, share=None, **how):
    """Makes a store of the boxes of photos, or goes on with it.

    Args:
        photos: list of (id, path).
        values: `Proposals`.
        folder: of the store.
        workers: photos at once; None for as many as there are cores.
        share: where the photos are a share, what `take_share` tells of it.
        **how: `shard_images` and `progress`, as of `extraction.extract`.
    """
    proposer = proposer_of(values)
    made_by = {**proposer.description(), **(share or {})}
    writer = FeatureWriter(folder, made_by, 0, kind="regions")
    how |= {"proposer": proposer, "workers": workers or usable_cores()}
    propose = region_extraction.propose_photos
    work_through(photos, writer, "proposing", propose, **how)


def proposer_of(values):
    """Returns the `Proposer` of some flags; refuses what it can not do."""
    names = [field.name for field in dataclasses.fields(proposals.Proposer)]
    return proposals.Proposer(*(getattr(values, name) for name in names))


class Boxes(OfPhotos):
    """Boxes in photos that a recipe makes; see `Thing`."""

    verb, group = "propose_regions", Proposals

    def check(self):
        """Refuses numbers that no box can have, and a missing package."""
        proposer_of(self.recipe.values)
        proposals.import_opencv()

    def make(self, folder, **how):
        """Makes them, or goes on."""
        make_proposals(self.photos, self.recipe.values, folder, **how)
