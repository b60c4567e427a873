"""Settings of the run itself, and of what it reads."""

import dataclasses

from tbnets.data.captions import READERS
from tbnets.flags.flag import COUNT, Limits, Other, flag

DATA_ROOT_VARIABLE = "TBNETS_DATA"

_CAPTION_FILES = ({"scenes": ("",)},)
_PIXELS = ({"image_encoder": Other("features")},)
_FEATURES = ({"image_encoder": ("features",)},)
_OWN_PHOTOS = (
    {
        "image_encoder": ("features",),
        "image_features": ("",),
        "images": Other(""),
        "scenes": ("",),
    },
)
_NETWORK = ({"image_encoder": Other(("features", "small"))},)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The run."""

    run_dir: str = flag(
        "",
        "Folder of the run; runs/FOLDER for the photos of --images=FOLDER "
        "alone.",
        is_place=True,
        free=True,
    )
    task: str = flag("matching", "What the run is about.")
    model: str = flag("embedding", "What is trained for it.")
    seed: int = flag(
        0,
        "Of all that is drawn: weights, batches, dropout.",
        limits=Limits(at_least=0, at_most=2_000_000),
    )
    train_split: str = flag("train", "Split that is learned from.")
    dev_split: str = flag("dev", "Split that chooses the best epoch.")
    test_split: str = flag("test", "Split that is reported once, at the end.")
    export: bool = flag(
        True, "Write a SavedModel of the best epoch.", free=True
    )
    evaluate_memory: int = flag(
        512, "Memory of an evaluation, MiB.", limits=COUNT, free=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Captions:
    """Captions and splits."""

    captions_format: str = flag(
        "karpathy",
        "Format of --captions; docs/data_formats.md describes each. Not "
        "given, table for a .csv, .tsv or .jsonl.",
        choices=tuple(READERS),
        when=_CAPTION_FILES,
    )
    data_root: str = flag(
        "data",
        "Folder that relative data paths start from. Not given on the "
        f"command line, the environment variable {DATA_ROOT_VARIABLE} "
        "says it, then a flagfile.",
        is_place=True,
        free=True,
    )
    scenes: str = flag(
        "",
        "Folder of the embedded data set, rendered there when absent; "
        "takes the place of --captions and --images.",
        is_place=True,
    )
    num_scenes: list[int] = flag(
        [2000, 250, 250],
        "Scenes to render for train,dev,test with --scenes.",
        when=({"scenes": Other("")},),
        limits=Limits(at_least=0, at_most=1_000_000, length=3),
    )
    captions: str = flag(
        "",
        "File or folder of captions; may hold {split}.",
        when=_CAPTION_FILES,
        is_place=True,
    )
    split_lists: str = flag(
        "",
        "Lists of photos, one a line, that take the place of the "
        "captions' own splits, such as flickr30k/{split}.txt.",
        when=_CAPTION_FILES,
        is_place=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """Images, from pixels or from features."""

    image_encoder: str = flag(
        "features",
        "features: --image_features, or features of --images by --cnn, go "
        "straight to the branch; small: a small convolutional network; or "
        "EfficientNetLite0 to 2, "
        "SqueezeNet or a network of keras.applications by name.",
    )
    cnn: str = flag(
        "EfficientNetLite0",
        "Network whose last layer makes the features of --images.",
        when=_OWN_PHOTOS,
    )
    cache: str = flag(
        "",
        "Folder to keep these features in; empty: FOLDER.tbnets beside "
        "--images=FOLDER.",
        when=_OWN_PHOTOS,
        is_place=True,
        free=True,
    )
    image_size: int = flag(
        64, "Side of the decoded image, pixels.", when=_PIXELS, limits=COUNT
    )
    image_weights: str = flag(
        "",
        "Weights of a network by name: imagenet (EfficientNetLite: as pip "
        "installed it; others: fetched by Keras), or a file (one of that "
        "name: ./imagenet); empty: random.",
        when=_NETWORK,
        is_place=True,
    )
    fine_tune: bool = flag(
        False, "Train the network by name too.", when=_NETWORK
    )
    image_features: str = flag(
        "",
        "Features of the images: a store of "
        "tools/extract_image_features.py, or a .npy with ids beside it in "
        "_ids.txt; may hold {split}. Several, with commas between, are "
        "put side by side by id. Instead of --images.",
        when=_FEATURES,
        is_place=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """Photos, and features of images or regions."""

    images: str = flag(
        "",
        "Folder of image files, to train from pixels, or from features "
        "that --cnn extracts of them; of phrase localization, to draw "
        "what it finds.",
        when=(
            {"image_encoder": Other("features"), "scenes": ("",)},
            {"image_features": ("",), "scenes": ("",)},
            {"cnn_weights": Other(""), "scenes": ("",)},
        ),
        is_place=True,
    )
    image_transform: list[str] = flag(
        [],
        "Rescaling of features of images or regions, inside the model, in "
        "this order: signed_sqrt, l2, then center, standardize or ternary "
        "(Vilalta 2017) by the training split.",
        when=_FEATURES,
    )
    cnn_weights: str = flag(
        "",
        "Weights of --cnn: imagenet, a file, or random. With "
        "--image_features of tools/extract_image_features.py: those they "
        "were made with, so that the exported model starts at the photo; "
        "empty: it starts at the features.",
        when=_FEATURES,
        is_place=True,
        free=True,
    )
