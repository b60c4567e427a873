"""Flags of phrases and regions: what is read, and what batches hold."""

from tbnets.data.phrase_pairs import CONTRASTS
from tbnets.flags.flag import Flag, Limits, Other
from tbnets.localization.hard_negatives import PER_PHRASE
from tbnets.localization.roles import NEGATIVE_IOU, POSITIVE_IOU, POSITIVES
from tbnets.localization.sampler import NEGATIVE_REGIONS

_COUNT = Limits(at_least=1)
_NOT_NEGATIVE = Limits(at_least=0)
_OVERLAP = Limits(at_least=0, at_most=1)

REGION_FLAGS = (
    Flag(
        "phrases",
        "string",
        "",
        "Phrases with their boxes: a folder with the Sentences and "
        "Annotations of Flickr30K Entities, or a .jsonl; empty with --scenes: "
        "theirs. docs/phrases.md describes both. HM-LSTM is measured by "
        "them, and never sees them.",
        is_place=True,
    ),
    Flag(
        "skip_bad_rows",
        "bool",
        False,
        "Leave out phrases, captions and photos of --phrases with which "
        "something is wrong, and tell how many, instead of ending at the "
        "first; tools/describe_data.py lists them all.",
    ),
    Flag(
        "regions",
        "string",
        "",
        "Features of the regions of all photos: a store of "
        "tools/extract_image_features.py --regions.",
        is_place=True,
    ),
)
PHRASE_FLAGS = (
    Flag(
        "positives",
        "string",
        "augmented",
        "Regions that a phrase names. augmented: those that overlap its box "
        "enough, single: the best one.",
        POSITIVES,
    ),
    Flag(
        "positive_iou",
        "float",
        POSITIVE_IOU,
        "Overlap (IoU) above which a region is a positive. Wang 2018: 0.7.",
        limits=_OVERLAP,
    ),
    Flag(
        "negative_iou",
        "float",
        NEGATIVE_IOU,
        "Overlap below which a region is a negative. Wang 2018: 0.3.",
        limits=_OVERLAP,
    ),
    Flag(
        "pairs_per_batch",
        "integer",
        100,
        "Phrases drawn a batch. Wang 2018: 100.",
        limits=_COUNT,
    ),
    Flag(
        "phrases_per_image",
        "integer",
        1,
        "Phrases of one photo that are drawn together; more of them share "
        "its regions, and a step costs less. Wang 2018: 1.",
        limits=_COUNT,
    ),
    Flag(
        "regions_per_phrase",
        "integer",
        1,
        "Positives drawn of each phrase, 0: all. Wang 2018: 1; 2 with "
        "neighbourhood sampling; all for the similarity network.",
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "phrases_per_region",
        "integer",
        1,
        "Different phrases of a thing in a batch, where it has so many: those "
        "that are missing are added. Wang 2018: 1; 2 with neighbourhood "
        "sampling.",
        limits=_COUNT,
    ),
    Flag(
        "candidates_per_image",
        "integer",
        0,
        "Regions of a photo that are drawn to be its phrases' negatives, 0: "
        "all. Wang 2018: all.",
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "negative_regions",
        "string",
        NEGATIVE_REGIONS[0],
        "Regions that may be a phrase's negatives. photo: those of its photo; "
        "batch: those that other phrases of the batch brought as positives. "
        "Wang 2018: photo; 2016: batch, then hard ones of the photo.",
        NEGATIVE_REGIONS,
    ),
    Flag(
        "hard_negative_epochs",
        "integer",
        0,
        "Fine-tune in the last so many epochs: a phrase's negatives are the "
        "wrong regions of its photo that then rank before a right one, found "
        "once, and terms within a view do not count; with --negative_regions="
        "batch, beside those of the batch. Wang 2016: 5; 0: none.",
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "hard_negatives_per_phrase",
        "integer",
        PER_PHRASE,
        "How many of them are kept of a phrase, the hardest. Wang 2016: 50.",
        when=({"hard_negative_epochs": Other(0)},),
        limits=_COUNT,
    ),
)

PAIR_FLAGS = (
    Flag(
        "correspondence_epochs",
        "integer",
        10,
        "Epochs on photos and sentences alone, before each phrase is given a "
        "region of its photo, anew in every epoch. Niu 2017 does not tell.",
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "regions_per_image",
        "integer",
        19,
        "Regions of a photo, the first of its --regions, that a phrase may "
        "name; beside them it may name the whole photo. Niu 2017: 19.",
        limits=_COUNT,
    ),
    Flag(
        "region_overlap",
        "float",
        1.0,
        "Of --regions, those are passed over that overlap an earlier one of "
        "their photo by more (IoU): boxes that cut a thing in two are then no "
        "candidates beside the one that holds it. 1: none is.",
        limits=_OVERLAP,
    ),
    Flag(
        "region_branch",
        "string",
        "own",
        "What embeds regions. own: a branch like that of photos; shared: that "
        "of photos, whose features are then of the same kind (Niu 2017).",
        ("own", "shared"),
    ),
    Flag(
        "region_mean_weight",
        "float",
        1.0,
        "Weight of the loss that matches sentences with the mean of their "
        "photo's regions. Niu 2017: 0; an own branch learns from it before "
        "the first correspondences.",
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "phrase_weight",
        "float",
        1.0,
        "Weight of the loss of phrases and regions. Niu 2017: 1.",
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "contrast",
        "string",
        "others",
        "What a pair of phrase and region is told from. others: pairs of "
        "other photos; batch: those of its own photo too.",
        CONTRASTS,
    ),
    Flag(
        "max_pairs",
        "integer",
        512,
        "Pairs of phrase and region a batch, at most.",
        limits=_COUNT,
    ),
)
