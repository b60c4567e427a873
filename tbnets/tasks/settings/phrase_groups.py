"""Settings of phrases and regions: what is read, what batches hold."""

import dataclasses

from tbnets.data.localization.roles import NEGATIVE_IOU, POSITIVE_IOU, POSITIVES
from tbnets.data.localization.sampler import NEGATIVE_REGIONS
from tbnets.data.phrase_pairs import CONTRASTS
from tbnets.tasks.settings.flag import Amount, Count, Place, Share, Whole, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regions:
    """Phrases and regions."""

    phrases: Place = flag(
        "",
        "Phrases with their boxes: a folder of Flickr30K Entities, or a "
        ".jsonl, see docs/phrases.md; empty with --scenes: theirs. HM-LSTM is "
        "measured by them, and never sees them.",
    )
    regions: Place = flag(
        "",
        "Features of the regions of all photos: a recipe such as "
        "features/regions_grid.flags, by which they are made of --images; or a "
        "store of tools/extract_image_features.py --regions.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phrases:
    """Regions that phrases name, and batches of both."""

    positives: str = flag(
        "augmented",
        "Regions that a phrase names. augmented: those that overlap its box "
        "enough, single: the best one.",
        choices=POSITIVES,
    )
    positive_iou: Share = flag(
        POSITIVE_IOU,
        "Overlap (IoU) above which a region is a positive. Wang 2018: 0.7.",
    )
    negative_iou: Share = flag(
        NEGATIVE_IOU,
        "Overlap below which a region is a negative. Wang 2018: 0.3.",
    )
    pairs_per_batch: Count = flag(100, "Phrases a batch. Wang 2018: 100.")
    phrases_per_image: Count = flag(
        1,
        "Phrases of one photo that are drawn together; more share its regions, "
        "and a step costs less. Wang 2018: 1.",
    )
    regions_per_phrase: Whole = flag(
        1,
        "Positives drawn of each phrase, 0: all. Wang 2018: 1; 2 with "
        "neighbourhood sampling; all for the similarity network.",
    )
    phrases_per_region: Count = flag(
        1,
        "Phrases of a thing in a batch: those that are missing are added. Wang "
        "2018: 1; 2 with neighbourhood sampling.",
    )
    candidates_per_image: Whole = flag(
        0,
        "Regions of a photo drawn to be its phrases' negatives, 0: all (Wang "
        "2018).",
    )
    negative_regions: str = flag(
        NEGATIVE_REGIONS[0],
        "Regions that may be a phrase's negatives: those of its photo (Wang "
        "2018), or of the batch: positives of its other phrases (2016).",
        choices=NEGATIVE_REGIONS,
    )
    hard_negative_epochs: Whole = flag(
        0,
        "Fine-tune in the last so many epochs by wrong regions of a phrase's "
        "photo that rank before a right one, found once, without terms within "
        "a view; with --negative_regions=batch, beside those of the batch. "
        "Wang 2016: 5; 0: none.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correspondences:
    """Regions that phrases are found to name."""

    correspondence_epochs: Whole = flag(
        10,
        "Epochs on photos and sentences alone, before each phrase is given a "
        "region of its photo, anew in every epoch. Niu 2017 does not tell.",
    )
    regions_per_image: Count = flag(
        19,
        "Regions of a photo, the first of its --regions, that a phrase may "
        "name beside the whole photo. Niu 2017: 19.",
    )
    region_overlap: Share = flag(
        1.0,
        "Regions that overlap an earlier one of their photo by more (IoU) are "
        "passed over. 1: none is.",
    )
    region_branch: str = flag(
        "own",
        "What embeds regions. own: a branch like that of photos; shared: that "
        "of photos, whose features are then of the same kind (Niu 2017).",
        choices=("own", "shared"),
    )
    region_mean_weight: Amount = flag(
        1.0,
        "Weight of the loss of sentences and the mean of their photo's "
        "regions, which an own branch learns from first. Niu 2017: 0.",
    )
    phrase_weight: Amount = flag(
        1.0, "Weight of the loss of phrases and regions. Niu 2017: 1."
    )
    contrast: str = flag(
        "others",
        "What a pair of phrase and region is told from. others: pairs of "
        "other photos; batch: those of its own photo too.",
        choices=CONTRASTS,
    )
