"""Settings of phrases and regions: what is read, what batches hold."""

import dataclasses

from tbnets.data.phrase_pairs import CONTRASTS
from tbnets.flags.flag import COUNT, NOT_NEGATIVE, SHARE, flag
from tbnets.localization.roles import NEGATIVE_IOU, POSITIVE_IOU, POSITIVES
from tbnets.localization.sampler import NEGATIVE_REGIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regions:
    """Phrases and regions."""

    phrases: str = flag(
        "",
        "Phrases with their boxes: a folder with the Sentences and "
        "Annotations of Flickr30K Entities, or a .jsonl; empty with --scenes: "
        "theirs. docs/phrases.md describes both. HM-LSTM is measured by "
        "them, and never sees them.",
        is_place=True,
    )
    skip_bad_rows: bool = flag(
        False,
        "Leave out phrases, captions and photos of --phrases with which "
        "something is wrong, and tell how many, instead of ending at the "
        "first; tools/describe_data.py lists them all.",
    )
    regions: str = flag(
        "",
        "Features of the regions of all photos: a store of "
        "tools/extract_image_features.py --regions.",
        is_place=True,
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
    positive_iou: float = flag(
        POSITIVE_IOU,
        "Overlap (IoU) above which a region is a positive. Wang 2018: 0.7.",
        limits=SHARE,
    )
    negative_iou: float = flag(
        NEGATIVE_IOU,
        "Overlap below which a region is a negative. Wang 2018: 0.3.",
        limits=SHARE,
    )
    pairs_per_batch: int = flag(
        100, "Phrases drawn a batch. Wang 2018: 100.", limits=COUNT
    )
    phrases_per_image: int = flag(
        1,
        "Phrases of one photo that are drawn together; more of them share "
        "its regions, and a step costs less. Wang 2018: 1.",
        limits=COUNT,
    )
    regions_per_phrase: int = flag(
        1,
        "Positives drawn of each phrase, 0: all. Wang 2018: 1; 2 with "
        "neighbourhood sampling; all for the similarity network.",
        limits=NOT_NEGATIVE,
    )
    phrases_per_region: int = flag(
        1,
        "Different phrases of a thing in a batch, where it has so many: those "
        "that are missing are added. Wang 2018: 1; 2 with neighbourhood "
        "sampling.",
        limits=COUNT,
    )
    candidates_per_image: int = flag(
        0,
        "Regions of a photo that are drawn to be its phrases' negatives, 0: "
        "all. Wang 2018: all.",
        limits=NOT_NEGATIVE,
    )
    negative_regions: str = flag(
        NEGATIVE_REGIONS[0],
        "Regions that may be a phrase's negatives. photo: those of its photo; "
        "batch: those that other phrases of the batch brought as positives. "
        "Wang 2018: photo; 2016: batch, then hard ones of the photo.",
        choices=NEGATIVE_REGIONS,
    )
    hard_negative_epochs: int = flag(
        0,
        "Fine-tune in the last so many epochs: a phrase's negatives are the "
        "wrong regions of its photo that then rank before a right one, found "
        "once, and terms within a view do not count; with --negative_regions="
        "batch, beside those of the batch. Wang 2016: 5; 0: none.",
        limits=NOT_NEGATIVE,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correspondences:
    """Regions that phrases are found to name."""

    correspondence_epochs: int = flag(
        10,
        "Epochs on photos and sentences alone, before each phrase is given a "
        "region of its photo, anew in every epoch. Niu 2017 does not tell.",
        limits=NOT_NEGATIVE,
    )
    regions_per_image: int = flag(
        19,
        "Regions of a photo, the first of its --regions, that a phrase may "
        "name; beside them it may name the whole photo. Niu 2017: 19.",
        limits=COUNT,
    )
    region_overlap: float = flag(
        1.0,
        "Of --regions, those are passed over that overlap an earlier one of "
        "their photo by more (IoU): boxes that cut a thing in two are then no "
        "candidates beside the one that holds it. 1: none is.",
        limits=SHARE,
    )
    region_branch: str = flag(
        "own",
        "What embeds regions. own: a branch like that of photos; shared: that "
        "of photos, whose features are then of the same kind (Niu 2017).",
        choices=("own", "shared"),
    )
    region_mean_weight: float = flag(
        1.0,
        "Weight of the loss that matches sentences with the mean of their "
        "photo's regions. Niu 2017: 0; an own branch learns from it before "
        "the first correspondences.",
        limits=NOT_NEGATIVE,
    )
    phrase_weight: float = flag(
        1.0,
        "Weight of the loss of phrases and regions. Niu 2017: 1.",
        limits=NOT_NEGATIVE,
    )
    contrast: str = flag(
        "others",
        "What a pair of phrase and region is told from. others: pairs of "
        "other photos; batch: those of its own photo too.",
        choices=CONTRASTS,
    )
    max_pairs: int = flag(
        512, "Pairs of phrase and region a batch, at most.", limits=COUNT
    )
