"""The flags of a run, shared by the tools, and their record on disk.

Every flag of a run is defined here once, with its unit and the papers'
value. Tools turn them into plain `settings` (an object with one attribute a
flag); the library takes settings or arguments and never looks at flags.
"""

import json
import pathlib
import types

from absl import flags

from tbnets.data.captions import READERS

FLAGS = flags.FLAGS
SETTINGS_FILE = "settings.json"

# Flags that may differ between a run and its continuation.
FREE_ON_RESUME = frozenset(
    [
        "epochs",
        "patience",
        "data_root",
        "run_dir",
        "export",
        "evaluate_memory",
        "cnn_weights",
    ]
)
_RUN_FLAGS = []


def _define(kind, name, default, text, *choices):
    getattr(flags, f"DEFINE_{kind}")(name, default, *choices, text)
    _RUN_FLAGS.append(name)


def _define_enum(name, default, choices, text):
    flags.DEFINE_enum(name, default, list(choices), text)
    _RUN_FLAGS.append(name)


def _define_list(name, default, text):
    flags.DEFINE_list(name, default, text)
    _RUN_FLAGS.append(name)


def _define_data():
    _define_enum(
        "captions_format",
        "karpathy",
        READERS,
        "Format of --captions; docs/data_formats.md describes each.",
    )
    for name, default, text in (
        (
            "data_root",
            "data",
            "Folder that relative data paths below start from. The "
            "environment variable TBNETS_DATA overrides it.",
        ),
        (
            "scenes",
            "",
            "Folder of the embedded data set, rendered there when absent; "
            "takes the place of --captions and --images.",
        ),
        ("captions", "", "File or folder of captions; may hold {split}."),
        ("images", "", "Folder of image files, to train from pixels."),
        (
            "image_features",
            "",
            "Features of the images: a store of "
            "tools/extract_image_features.py, or a .npy with ids beside it in "
            "_ids.txt; may hold {split}. Several, with commas between, are "
            "put side by side by id. Instead of --images.",
        ),
        (
            "text_features",
            "",
            "Feature array with a row a caption (.npy); may hold {split}. "
            "Needs --text_encoder=features.",
        ),
        ("train_split", "train", "Split that is learned from."),
        ("dev_split", "dev", "Split that chooses the best epoch."),
        ("test_split", "test", "Split that is reported once, at the end."),
    ):
        _define("string", name, default, text)
    _define_list(
        "num_scenes",
        ["2000", "250", "250"],
        "Scenes to render for train,dev,test with --scenes.",
    )
    _define("integer", "image_size", 64, "Side of the decoded image, pixels.")
    _define(
        "integer",
        "min_count",
        1,
        "Times a word must stand in the training captions to be known.",
    )
    _define("integer", "max_words", 0, "Most frequent words kept; 0: all.")
    _define(
        "integer", "max_tokens", 0, "Words kept of a caption; 0: all of them."
    )


def _define_image_side():
    _define(
        "string",
        "image_encoder",
        "features",
        "features: --image_features go straight to the branch; small: a "
        "small convolutional network; or SqueezeNet or a network of "
        "keras.applications by name.",
    )
    _define(
        "string",
        "image_weights",
        "",
        "Weights of such a network: imagenet, or a file; empty: random.",
    )
    _define(
        "string",
        "cnn_weights",
        "",
        "With --image_features of tools/extract_image_features.py: imagenet "
        "or the weights file they were made with, so that the exported model "
        "starts at the photo; empty: it starts at the features.",
    )
    _define("bool", "fine_tune", False, "Train the Keras application too.")
    _define_list(
        "image_transform",
        [],
        "Rescaling of precomputed image features, inside the model, in this "
        "order: signed_sqrt, l2, then center, standardize or ternary "
        "(Vilalta 2017) by the training split.",
    )
    _define_list(
        "image_units",
        ["2048", "512"],
        "Sizes of the image branch's FC layers; one entry: linear branch.",
    )


def _define_text_side():
    _define_enum(
        "text_encoder",
        "lstm",
        ["mean", "lstm", "gru", "features"],
        "What reads the captions. lstm: Wang 2018; gru: Vilalta 2017; mean: "
        "of learned word vectors; features: --text_features.",
    )
    _define("integer", "word_dim", 256, "Word vector size. Wang 2018: 256.")
    _define("integer", "rnn_units", 512, "State size. Wang 2018: 512.")
    _define("bool", "bidirectional", False, "Read captions both ways.")
    _define_enum(
        "pooling",
        "last",
        ["last", "mean", "max"],
        "Which recurrent states make the text feature. Papers: last.",
    )
    _define_list(
        "text_units",
        ["1024", "512"],
        "Sizes of the text branch's FC layers. Wang 2018: 1024,512 on LSTM "
        "states, 2048,512 on features; empty: none (Vilalta 2017).",
    )


def _define_both_sides():
    _define_enum(
        "batch_normalization",
        "last",
        ["last", "first", "none"],
        "After which FC layer. Papers: last; the authors' code: first.",
    )
    _define("float", "dropout", 0.5, "Rate after each ReLU. Papers: 0.5.")
    _define("float", "input_dropout", 0.0, "Rate on branch inputs. Papers: 0.")
    _define("float", "word_dropout", 0.0, "Rate on word vectors. Papers: 0.")


def _define_loss():
    _define("float", "margin", 0.05, "Gap of the hinge. Wang 2016: 0.1.")
    _define_enum(
        "negatives",
        "top_k",
        ["top_k", "all", "hardest", "all_to_hardest"],
        "Negatives of each positive pair: the --num_negatives hardest of the "
        "batch (Wang), all (Kiros, Vilalta), the hardest (VSE++), or all at "
        "first and the hardest after --hardness_epochs.",
    )
    _define("integer", "num_negatives", 10, "K. Wang 2016: 50; 2018: 10.")
    _define("float", "hardness_epochs", 1.0, "Length of the change, epochs.")
    _define_enum(
        "distance", "euclidean", ["euclidean", "cosine"], "Wang: euclidean."
    )
    _define_enum(
        "reduction",
        "mean_active",
        ["sum", "mean", "mean_active"],
        "Over the triplets of a term: sum, mean, or mean of those above 0.",
    )
    for term, weight, paper in (
        ("image_to_text", 1.0, "1"),
        ("text_to_image", 1.5, "2 (2016), 1.5 (2018)"),
        ("text_to_text", 0.05, "0.2 (2016), 0.05 (2018)"),
        ("image_to_image", 0.0, "0"),
    ):
        _define(
            "float",
            f"{term}_weight",
            weight,
            f"Weight of the {term} term. Papers: {paper}.",
        )
    _define(
        "bool",
        "equal_texts_match",
        False,
        "A caption text that stands on two images matches both.",
    )


def _define_optimization():
    _define("integer", "images_per_batch", 500, "Images a batch. Wang: 500.")
    _define("integer", "captions_per_image", 2, "Captions of each. Wang: 2.")
    _define("integer", "epochs", 30, "Passes over the images.")
    _define("integer", "seed", 0, "Of weights, batches and dropout.")
    _define(
        "string",
        "optimizer",
        "adam",
        "sgd, adam, adamw, or with the addons extra an optimizer of "
        "tensorflow-addons by its name, for example LAMB. Wang 2016: sgd; "
        "2018: adam.",
    )
    _define(
        "float",
        "learning_rate",
        2e-4,
        "Wang 2016: 0.1 (sgd); 2018: 1e-4 on features, 2e-4 with LSTM.",
    )
    _define("float", "momentum", 0.9, "Of sgd. Wang 2016: 0.9.")
    _define("float", "weight_decay", 0.0, "Of sgd and adamw. 2016: 5e-4.")
    _define_enum(
        "schedule",
        "constant",
        ["constant", "step", "exponential", "cosine"],
        "How the learning rate falls. Wang 2016: step.",
    )
    _define("float", "decay_rate", 0.1, "Factor of step and exponential.")
    _define("float", "decay_epochs", 10.0, "Epochs to each such factor.")
    _define(
        "float", "clip_norm", 0.0, "Largest gradient norm; 0: any. Kiros: 2."
    )
    _define(
        "integer",
        "patience",
        0,
        "Stop after this many epochs without a better dev recall sum; 0: "
        "never.",
    )
    _define_enum(
        "precision",
        "float32",
        ["float32", "mixed_bfloat16"],
        "Keras dtype policy of the layers; loss and embeddings stay float32.",
    )
    _define("bool", "jit_compile", False, "Compile by XLA; for accelerators.")


def _define_run():
    _define("string", "run_dir", "", "Folder of the run; required.")
    _define("bool", "export", True, "Write a SavedModel of the best epoch.")
    _define("integer", "evaluate_memory", 512, "Memory of an evaluation, MiB.")


def define_run_flags():
    """Defines every flag of a run; call once, at import of a tool."""
    _define_data()
    _define_image_side()
    _define_text_side()
    _define_both_sides()
    _define_loss()
    _define_optimization()
    _define_run()


def run_flags():
    """Returns the names of the flags of a run."""
    return tuple(_RUN_FLAGS)


def settings():
    """Returns the parsed flags of a run as plain attributes."""
    values = {name: FLAGS[name].value for name in _RUN_FLAGS}
    for name in ("num_scenes", "image_units", "text_units"):
        try:
            values[name] = [int(item) for item in values[name]]
        except ValueError as error:
            raise ValueError(
                f"`--{name}` must be integers with commas between. "
                f"Received: --{name}={','.join(values[name])}. "
                "A comment can not follow a value in a flagfile."
            ) from error
    return types.SimpleNamespace(**values)


def read_settings(run_dir):
    """Returns the settings that a run was started with.

    Raises:
        ValueError: `run_dir` is no folder of a run.
    """
    path = pathlib.Path(run_dir) / SETTINGS_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return types.SimpleNamespace(**values)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            "`run_dir` must be the folder of a run, with "
            f"{SETTINGS_FILE} in it. Received: run_dir={run_dir} ({error}). "
            "Start one with tools/train.py --run_dir=..."
        ) from error


def check_resumable(before, now):
    """Refuses to continue a run with flags that change what it computes.

    Args:
        before: settings the run was started with.
        now: settings of the continuation.

    Raises:
        ValueError: listing every flag that differs.
    """
    free = FREE_ON_RESUME
    if now.schedule == "cosine":  # Its course depends on the last epoch.
        free = free - {"epochs"}
    differing = [
        f"--{name}={value} (now {getattr(now, name, None)})"
        for name, value in sorted(vars(before).items())
        if name not in free and getattr(now, name, None) != value
    ]
    if differing:
        raise ValueError(
            "`--resume` must continue with the flags the run was started "
            f"with. Received: other values than {'; '.join(differing)}. "
            "Restore these, or start a new --run_dir."
        )


def as_flagfile_line(name, value):
    """Returns the line that sets a flag in a flagfile."""
    if isinstance(value, list | tuple):
        value = ",".join(str(item) for item in value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"--{name}={value}\n"
