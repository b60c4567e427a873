"""Declares the settings of a run and of the data that it reads."""

import dataclasses
from typing import Annotated

from tbnets.data.phrase_examples import NEGATIVE_REGIONS, POSITIVES
from tbnets.data.phrase_pairs import CONTRASTS
from tbnets.data.sources import is_recipe
from tbnets.tasks.settings.flag import (
    Amount,
    Condition,
    Count,
    Limits,
    Place,
    Share,
    Whole,
    flag,
    with_flag,
    with_other,
    without_flag,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegionSettings:
    """Region settings."""

    phrases: Place = flag(
        "",
        "Phrases with their boxes: a folder of Flickr30K Entities, a .jsonl "
        "table, or JSON of Visual Genome or RefCOCO (docs/data_formats.md). "
        "Default with --scenes: the phrases of the scenes. HM-LSTM uses them "
        "only for evaluation.",
    )
    regions: Place = flag(
        "",
        "Features of the regions of all photos: a recipe such as "
        "features/regions_grid.flags, which computes them from --images, or "
        "a store of tbnets extract_image_features --regions.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhraseSettings:
    """Phrase localization settings."""

    positives: str = flag(
        "augmented",
        "Positive regions of a phrase. augmented: all regions whose overlap "
        "(IoU) with its box is above 0.7; single: only the best one.",
        choices=POSITIVES,
    )
    pairs_per_batch: Count = flag(100, "Phrases per batch. Wang 2018: 100.")
    phrases_per_image: Count = flag(
        1,
        "Phrases drawn together from one photo. They share the regions of the "
        "photo, so that higher values make a step cheaper. Wang 2018: 1.",
    )
    regions_per_phrase: Whole = flag(
        1,
        "Positives drawn for each phrase; 0: all. Wang 2018: 1; with "
        "neighbourhood sampling 2; for the similarity network all.",
    )
    phrases_per_region: Count = flag(
        1,
        "Different phrases per object in a batch; missing phrases are added. "
        "Wang 2018: 1; with neighbourhood sampling 2.",
    )
    candidates_per_image: Whole = flag(
        0,
        "Regions drawn from a photo as negatives of its phrases; 0: all "
        "(Wang 2018).",
    )
    negative_regions: str = flag(
        NEGATIVE_REGIONS[0],
        "Negative regions of a phrase. photo: regions of its photo (Wang "
        "2018); batch: positives of other phrases in the batch (Wang 2016).",
        choices=NEGATIVE_REGIONS,
    )
    hard_negative_epochs: Whole = flag(
        0,
        "Number of final epochs that fine-tune on hard negatives: wrong "
        "regions of the phrase's photo that rank above a right region, found "
        "once. These epochs use no terms within a view. "
        "--negative_regions=batch adds the negatives of the batch. Wang 2016: "
        "5; 0: none.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrespondenceSettings:
    """HM-LSTM region settings."""

    correspondence_epochs: Whole = flag(
        10,
        "Number of initial epochs that train only on photos and sentences. "
        "Each later epoch first assigns to each phrase a region of its photo. "
        "Niu 2017 gives no number.",
    )
    regions_per_image: Count = flag(
        19,
        "Number of regions per photo, the first in --regions, that can be "
        "assigned to a phrase, in addition to the whole photo. Niu 2017: 19.",
    )
    region_overlap: Share = flag(
        1.0,
        "Maximum overlap (IoU) with an earlier region of the photo; regions "
        "above it are skipped. 1: no region is skipped.",
    )
    region_branch: str = flag(
        "own",
        "Network that embeds regions. own: a branch like the image branch; "
        "shared: the image branch, which needs features of regions and photos "
        "from the same network (Niu 2017).",
        choices=("own", "shared"),
    )
    region_mean_weight: Amount = flag(
        1.0,
        "Weight of the loss between sentences and the mean region of their "
        "photo, which trains an own region branch at first. Niu 2017: 0.",
    )
    contrast: str = flag(
        "others",
        "Negatives of a phrase-region pair. others: pairs of other photos; "
        "batch: also pairs of the same photo.",
        choices=CONTRASTS,
    )


DATA_ROOT_VARIABLE = "TBNETS_DATA"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Run settings."""

    run_dir: Place = flag(
        "",
        "Folder of the run. Default if only --images=FOLDER gives photos: "
        "runs/FOLDER.",
        free=True,
    )
    task: str = flag("matching", "Task of the run.")
    model: str = flag("embedding", "Model to train.")
    from_: Place = flag(
        "",
        "Trained model to start from: a zoo name or a run folder. Its words "
        "and weights are loaded; flags left unset take the values that it "
        "was trained with.",
    )
    seed: Annotated[int, Limits(0, 2_000_000)] = flag(
        0, "Seed of all random numbers: weights, batches, dropout."
    )
    train_split: str = flag("train", "Split to train on.")
    dev_split: str = flag("dev", "Split that selects the best epoch.")
    test_split: str = flag("test", "Split evaluated once, at the end.")
    export: bool = flag(
        True, "Write a SavedModel of the best epoch.", free=True
    )


NO_SCENES = without_flag("scenes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnFlags:
    """Flags for the columns of a caption file."""

    image_column: str = flag(
        "",
        "Column or JSON key of the images in --captions, if it has an unusual "
        "name.",
        only=NO_SCENES,
    )
    caption_column: list[str] = flag(
        [],
        "Columns or JSON keys of the captions, if they have unusual names.",
        only=NO_SCENES,
    )
    split_column: str = flag(
        "",
        "Column or JSON key of the splits, if it has an unusual name.",
        only=NO_SCENES,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionSettings(ColumnFlags):
    """Caption and split settings."""

    data_root: Place = flag(
        "data",
        "Base folder of relative data paths. Default: the environment "
        f"variable {DATA_ROOT_VARIABLE}, then a flagfile.",
        free=True,
    )
    scenes: Place = flag(
        "",
        "Folder of the embedded data set of scenes, which replaces --captions "
        "and --images. If it does not exist, the scenes are rendered there.",
        argument="folder",
    )
    num_scenes: Annotated[list[int], Limits(0, 1_000_000, length=3)] = flag(
        [2000, 250, 250],
        "Numbers of scenes to render for train,dev,test.",
        only=with_flag("scenes"),
    )
    captions: Place = flag(
        "",
        "File or folder of captions; may contain {split}. Default: "
        "metadata.csv or metadata.jsonl in --images.",
        only=NO_SCENES,
    )
    split_lists: Place = flag(
        "",
        "Lists of photos, one per line, that replace the captions' own "
        "splits, such as flickr30k/{split}.txt.",
        only=NO_SCENES,
    )


NO_FEATURES = without_flag("image_features")
OTHER_THAN_SMALL = with_other("image_encoder", "small")
READS_PIXELS = NO_FEATURES & (
    with_flag("fine_tune") | with_flag("image_encoder", "small")
)
READS_PHOTO_FOLDER = (
    with_flag("images")
    & NO_FEATURES
    & without_flag("fine_tune")
    & NO_SCENES
    & OTHER_THAN_SMALL
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Image settings."""

    image_encoder: str = flag(
        "EfficientNetLite0",
        "Network that reads photos if there are no --image_features: "
        "EfficientNetLite0 to 2, SqueezeNet, a network of keras.applications "
        "by name, or a Keras Hub preset, hub:PRESET (a name, handle or "
        "folder). Its last layer computes features of --images, once; with "
        "--fine_tune, the network is trained. small: a small convolutional "
        "network, trained from pixels.",
        argument="name",
        only=NO_FEATURES,
    )
    fine_tune: bool = flag(
        False,
        "Train --image_encoder too, from pixels.",
        only=OTHER_THAN_SMALL & NO_FEATURES,
    )
    cache: Place = flag(
        "",
        "Folder for the features of --image_encoder. Empty: FOLDER.tbnets "
        "next to --images=FOLDER.",
        free=True,
        only=READS_PHOTO_FOLDER,
    )
    image_size: Whole = flag(
        64,
        "Side of the decoded image in pixels. Default with hub:PRESET: the "
        "preset's size.",
        only=READS_PIXELS,
    )
    image_features: Place = flag(
        "",
        "Features of the images: a recipe such as features/lite0.flags, "
        "which computes them from --images; a store of "
        "tbnets extract_image_features; Parquet files of tbnets embed, such "
        "as 'features/*.parquet'; or a .npy file with ids in _ids.txt next to "
        "it. May contain {split}. Several, separated by "
        "commas, are concatenated.",
    )


def _reads_photos(settings):
    values = settings.values()
    names = "image_features", "regions"
    items = ",".join(values.get(name, "") for name in names).split(",")
    return (
        not values.get("image_features")
        or values["cnn_weights"] != ""
        or any(is_recipe(item.strip()) for item in items)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """Photo and feature settings."""

    images: Place = flag(
        "",
        "Folder, tar archives or parquet files of photos for --image_encoder "
        "or a recipe. Phrase localization draws its boxes on them.",
        only=NO_SCENES
        & Condition(
            "without --image_features or with --cnn_weights or a recipe",
            _reads_photos,
        ),
    )
    image_transform: list[str] = flag(
        [],
        "Rescaling of features inside the model, in this order: signed_sqrt, "
        "l2, then center, standardize or ternary (Vilalta 2017), fitted on "
        "the training split.",
        argument="steps",
        only=Condition(
            "without --fine_tune and --image_encoder=small",
            lambda settings: settings.image_encoder == "features",
        ),
    )
    cnn_weights: Place = flag(
        "",
        "Weights of --image_encoder: imagenet (EfficientNetLite: from its "
        "pip package; others: downloaded by Keras), a weights file, or "
        "random. A preset has its own weights. With --image_features: the "
        "weights that computed the features, so that the exported model reads "
        "photos; empty: it reads features.",
        free=True,
        argument="weights",
        only=OTHER_THAN_SMALL,
    )
