"""Settings of the run itself, and of what it reads."""

import dataclasses
from typing import Annotated

from tbnets.data.captions import READERS
from tbnets.tasks.settings.flag import (
    Count,
    Limits,
    Place,
    Whole,
    flag,
)

DATA_ROOT_VARIABLE = "TBNETS_DATA"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
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
class Captions:
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
class Images:
    """Images, from pixels or from features."""

    image_encoder: str = flag(
        "features",
        "features: --image_features, or those of --images by --cnn; small: a "
        "small convolutional network; EfficientNetLite0 to 2, SqueezeNet or a "
        "network of keras.applications by name; or a preset of Keras Hub, "
        "hub:PRESET (a name, a handle or a folder).",
    )
    cnn: str = flag(
        "EfficientNetLite0",
        "Network whose last layer makes the features of --images; may be a "
        "preset of Keras Hub, hub:PRESET.",
    )
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
    image_weights: Place = flag(
        "",
        "Weights of a network by name: imagenet (EfficientNetLite: of pip; "
        "others: fetched by Keras), or a file; empty: random. A preset of "
        "Keras Hub has its own, but for random.",
    )
    fine_tune: bool = flag(False, "Train the network by name too.")
    image_features: Place = flag(
        "",
        "Features of the images: a recipe such as features/lite0.flags, by "
        "which they are made of --images; a store of "
        "tools/extract_image_features.py; or a .npy with ids in _ids.txt "
        "beside it, may hold {split}. Several, with commas between, stand "
        "side by side.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """Photos, and features of images or regions."""

    images: Place = flag(
        "",
        "Folder of photos, to train from pixels or from features by --cnn or "
        "a recipe; of phrase localization, to draw what it finds.",
    )
    image_transform: list[str] = flag(
        [],
        "Rescaling of features inside the model, in this order: signed_sqrt, "
        "l2, then center, standardize or ternary (Vilalta 2017) by the "
        "training split.",
    )
    cnn_weights: Place = flag(
        "",
        "Weights of --cnn: imagenet, a file, or random. With --image_features: "
        "those they were made with, for an exported model that starts at the "
        "photo; empty: it starts at the features.",
        free=True,
    )
