"""Flags of the run itself, and of what it reads."""

from tbnets.data.captions import READERS
from tbnets.flags.flag import Flag, Limits, Other
from tbnets.flags.phrase_flags import PAIR_FLAGS, PHRASE_FLAGS, REGION_FLAGS
from tbnets.flags.text_flags import TEXT_FLAGS

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
        "task": ("matching",),
    },
)
_NETWORK = ({"image_encoder": Other(("features", "small"))},)

_COUNT = Limits(at_least=1)
_NOT_NEGATIVE = Limits(at_least=0)

DATA_GROUPS = {
    "run": (
        Flag(
            "run_dir",
            "string",
            "",
            "Folder of the run; runs/FOLDER for the photos of --images=FOLDER "
            "alone.",
            is_place=True,
            free=True,
        ),
        Flag("task", "string", "matching", "What the run is about."),
        Flag("model", "string", "embedding", "What is trained for it."),
        Flag(
            "seed",
            "integer",
            0,
            "Of all that is drawn: weights, batches, dropout.",
            limits=Limits(at_least=0, at_most=2_000_000),
        ),
        Flag(
            "export",
            "bool",
            True,
            "Write a SavedModel of the best epoch.",
            free=True,
        ),
        Flag(
            "evaluate_memory",
            "integer",
            512,
            "Memory of an evaluation, MiB.",
            free=True,
            limits=_COUNT,
        ),
    ),
    "captions": (
        Flag(
            "captions_format",
            "string",
            "karpathy",
            "Format of --captions; docs/data_formats.md describes each. Not "
            "given, table for a .csv, .tsv or .jsonl.",
            tuple(READERS),
            _CAPTION_FILES,
        ),
        Flag(
            "data_root",
            "string",
            "data",
            "Folder that relative data paths start from. Not given on the "
            f"command line, the environment variable {DATA_ROOT_VARIABLE} "
            "says it, then a flagfile.",
            is_place=True,
            free=True,
        ),
        Flag(
            "scenes",
            "string",
            "",
            "Folder of the embedded data set, rendered there when absent; "
            "takes the place of --captions and --images.",
            is_place=True,
        ),
        Flag(
            "num_scenes",
            "integers",
            ("2000", "250", "250"),
            "Scenes to render for train,dev,test with --scenes.",
            when=({"scenes": Other("")},),
            limits=Limits(at_least=0, at_most=1_000_000, length=3),
        ),
        Flag(
            "captions",
            "string",
            "",
            "File or folder of captions; may hold {split}.",
            when=_CAPTION_FILES,
            is_place=True,
        ),
        Flag(
            "split_lists",
            "string",
            "",
            "Lists of photos, one a line, that take the place of the "
            "captions' own splits, such as flickr30k/{split}.txt.",
            when=_CAPTION_FILES,
            is_place=True,
        ),
        Flag("train_split", "string", "train", "Split that is learned from."),
        Flag(
            "dev_split", "string", "dev", "Split that chooses the best epoch."
        ),
        Flag(
            "test_split",
            "string",
            "test",
            "Split that is reported once, at the end.",
        ),
    ),
    "images": (
        Flag(
            "image_encoder",
            "string",
            "features",
            "features: --image_features, or features of --images by --cnn, go "
            "straight to the branch; small: a small convolutional network; or "
            "EfficientNetLite0 to 2, "
            "SqueezeNet or a network of keras.applications by name.",
        ),
        Flag(
            "cnn",
            "string",
            "EfficientNetLite0",
            "Network whose last layer makes the features of --images.",
            when=_OWN_PHOTOS,
        ),
        Flag(
            "cache",
            "string",
            "",
            "Folder to keep these features in; empty: FOLDER.tbnets beside "
            "--images=FOLDER.",
            when=_OWN_PHOTOS,
            is_place=True,
            free=True,
        ),
        Flag(
            "image_size",
            "integer",
            64,
            "Side of the decoded image, pixels.",
            when=_PIXELS,
            limits=_COUNT,
        ),
        Flag(
            "image_weights",
            "string",
            "",
            "Weights of a network by name: imagenet (EfficientNetLite: as pip "
            "installed it; others: fetched by Keras), or a file (one of that "
            "name: ./imagenet); empty: random.",
            when=_NETWORK,
            is_place=True,
        ),
        Flag(
            "fine_tune",
            "bool",
            False,
            "Train the network by name too.",
            when=_NETWORK,
        ),
        Flag(
            "image_features",
            "string",
            "",
            "Features of the images: a store of "
            "tools/extract_image_features.py, or a .npy with ids beside it in "
            "_ids.txt; may hold {split}. Several, with commas between, are "
            "put side by side by id. Instead of --images.",
            when=_FEATURES,
            is_place=True,
        ),
    ),
    "features": (
        Flag(
            "images",
            "string",
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
        ),
        Flag(
            "image_transform",
            "list",
            (),
            "Rescaling of features of images or regions, inside the model, in "
            "this order: signed_sqrt, l2, then center, standardize or ternary "
            "(Vilalta 2017) by the training split.",
            when=_FEATURES,
        ),
        Flag(
            "cnn_weights",
            "string",
            "",
            "Weights of --cnn: imagenet, a file, or random. With "
            "--image_features of tools/extract_image_features.py: those they "
            "were made with, so that the exported model starts at the photo; "
            "empty: it starts at the features.",
            when=_FEATURES,
            is_place=True,
            free=True,
        ),
    ),
    "regions": REGION_FLAGS,
    "phrases": PHRASE_FLAGS,
    "correspondences": PAIR_FLAGS,
    "texts": TEXT_FLAGS,
}
