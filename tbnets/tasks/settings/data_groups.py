"""Settings of the run itself and of the data that it reads."""

import dataclasses
from typing import Annotated

from tbnets.data.captions import READERS
from tbnets.data.localization.examples import (
    NEGATIVE_IOU,
    POSITIVE_IOU,
    POSITIVES,
)
from tbnets.data.localization.sampler import NEGATIVE_REGIONS
from tbnets.data.phrase_pairs import CONTRASTS
from tbnets.tasks.settings.flag import (
    Amount,
    Count,
    Limits,
    Place,
    Share,
    Whole,
    flag,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegionSettings:
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
class PhraseSettings:
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
class CorrespondenceSettings:
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
    contrast: str = flag(
        "others",
        "What a pair of phrase and region is told from. others: pairs of "
        "other photos; batch: those of its own photo too.",
        choices=CONTRASTS,
    )


DATA_ROOT_VARIABLE = "TBNETS_DATA"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The run."""

    run_dir: Place = flag(
        "",
        "Folder of the run; runs/FOLDER for the photos of --images=FOLDER "
        "alone.",
        free=True,
    )
    task: str = flag("matching", "What the run is about.")
    model: str = flag("embedding", "What is trained for it.")
    from_: Place = flag(
        "",
        "Trained model to begin with: a name of the zoo, or the folder of a "
        "run. Its words and weights are taken over, and of flags that are not "
        "given those that it was trained with.",
    )
    seed: Annotated[int, Limits(0, 2_000_000)] = flag(
        0, "Of all that is drawn: weights, batches, dropout."
    )
    train_split: str = flag("train", "Split that is learned from.")
    dev_split: str = flag("dev", "Split that chooses the best epoch.")
    test_split: str = flag("test", "Split that is reported once, at the end.")
    export: bool = flag(
        True, "Write a SavedModel of the best epoch.", free=True
    )
    evaluate_memory: Count = flag(
        512, "Memory of an evaluation, MiB.", free=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionSettings:
    """Captions and splits."""

    captions_format: str = flag(
        "karpathy",
        "Format of --captions, see docs/data_formats.md. Not given, table for "
        "a .csv, .tsv or .jsonl.",
        choices=tuple(READERS),
    )
    data_root: Place = flag(
        "data",
        "Folder that relative data paths start from. Not on the command line: "
        f"as the environment's {DATA_ROOT_VARIABLE} says, then a flagfile.",
        free=True,
    )
    scenes: Place = flag(
        "",
        "Folder of the embedded data set, rendered there when absent; instead "
        "of --captions and --images.",
    )
    num_scenes: Annotated[list[int], Limits(0, 1_000_000, length=3)] = flag(
        [2000, 250, 250],
        "Scenes to render for train,dev,test.",
    )
    captions: Place = flag("", "File or folder of captions; may hold {split}.")
    split_lists: Place = flag(
        "",
        "Lists of photos, one a line, instead of the captions' own splits, "
        "such as flickr30k/{split}.txt.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Images, from pixels or from features."""

    image_encoder: str = flag(
        "EfficientNetLite0",
        "What reads photos, where there are no --image_features. "
        "EfficientNetLite0 to 2, SqueezeNet, a network of keras.applications "
        "by name, or a preset of Keras Hub, hub:PRESET (a name, a handle or a "
        "folder): its last layer makes features of --images, once; with "
        "--fine_tune it is part of the network. small: a small convolutional "
        "network, trained from pixels.",
    )
    fine_tune: bool = flag(False, "Train --image_encoder too, from pixels.")
    cache: Place = flag(
        "",
        "Folder to keep these features in; empty: FOLDER.tbnets beside "
        "--images=FOLDER.",
        free=True,
    )
    image_size: Whole = flag(
        64,
        "Side of the decoded image, pixels; not given with hub:PRESET, its "
        "own.",
    )
    image_features: Place = flag(
        "",
        "Features of the images: a recipe such as features/lite0.flags, by "
        "which they are made of --images; a store of "
        "tools/extract_image_features.py; or a .npy with ids in _ids.txt "
        "beside it, may hold {split}. Several, with commas between, stand "
        "side by side.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """Photos, and features of images or regions."""

    images: Place = flag(
        "",
        "Folder of photos, which --image_encoder or a recipe reads; of phrase "
        "localization, to draw what it finds.",
    )
    image_transform: list[str] = flag(
        [],
        "Rescaling of features inside the model, in this order: signed_sqrt, "
        "l2, then center, standardize or ternary (Vilalta 2017) by the "
        "training split.",
    )
    cnn_weights: Place = flag(
        "",
        "Weights of --image_encoder: imagenet (EfficientNetLite: of pip; "
        "others: fetched by Keras), a file, or random. A preset has its own. "
        "With --image_features: those they were made with, for an exported "
        "model that starts at the photo; empty: it starts at the features.",
        free=True,
    )
