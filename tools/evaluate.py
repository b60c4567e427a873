r"""Measures image-text retrieval, of a run or on saved embeddings.

A run of tools/train.py, on one of its splits:

  python tools/evaluate.py --run_dir=runs/quickstart --split=test

Embeddings of any model, from files:

  python tools/evaluate.py \
      --image_embeddings=images.npy \
      --text_embeddings=captions.npy \
      --caption_to_image=caption_to_image.npy \
      --json=metrics.json

images.npy is [num_images, dim] and captions.npy [num_captions, dim], both with
rows of length 1: scores are inner products. caption_to_image.npy holds, for
each caption, the row of its image, from 0; a text file with one number a line
will do. The order of the rows is free, and so is the number of captions per
image.

Prints recall at 1, 5 and 10, median and mean rank in both directions and from
captions to captions. What they mean exactly is in docs/evaluation.md.
"""

import functools
import pathlib

import numpy as np
from absl import flags

from tbnets import files
from tbnets import startup
from tbnets.evaluation import arrays
from tbnets.evaluation import protocols
from tbnets.evaluation import tables

_RUN = flags.DEFINE_string(
    "run_dir", None, "Folder of a run; instead of the three arrays below."
)
_SPLIT = flags.DEFINE_string("split", "test", "Split to evaluate of a run.")
_CHECKPOINT = flags.DEFINE_enum(
    "checkpoint", "best", ["best", "last"], "Epoch to evaluate of a run."
)
_SAVE = flags.DEFINE_string(
    "save_embeddings",
    None,
    "Folder to write a run's image_embeddings.npy, text_embeddings.npy and "
    "caption_to_image.npy to.",
)
_IMAGES = flags.DEFINE_string(
    "image_embeddings",
    None,
    "Embeddings of the images, [num_images, dim] (.npy).",
)
_TEXTS = flags.DEFINE_string(
    "text_embeddings",
    None,
    "Embeddings of the captions, [num_captions, dim] (.npy).",
)
_ROWS = flags.DEFINE_string(
    "caption_to_image",
    None,
    "Row of the image of each caption (.npy of integers, or text).",
)
_PROTOCOL = flags.DEFINE_enum(
    "protocol",
    "full",
    list(protocols.PROTOCOLS),
    "; ".join(f"{k}: {v.description}" for k, v in protocols.PROTOCOLS.items()),
)
_TEXT_TO_TEXT = flags.DEFINE_bool(
    "text_to_text", True, "Rank captions against captions too."
)
_MEMORY = flags.DEFINE_float(
    "memory_limit_mb",
    512,
    "MiB for tiles of scores, beside the embeddings. The result does not "
    "depend on it.",
    lower_bound=1,
)
_JSON = flags.DEFINE_string("json", None, "File to write the metrics to.")


def embed_run():
    """Returns the three arrays of a split, embedded by a run's network."""
    with startup.quiet_tensorflow():
        from tbnets.tasks import inputs
        from tbnets.tasks import parts
        from tbnets.tasks.embedder import Embedder
    network, vocabulary, settings, _ = parts.open_run(
        _RUN.value, _CHECKPOINT.value, more_splits=[_SPLIT.value]
    )
    examples = inputs.load_examples(settings, _SPLIT.value, vocabulary)
    embedder = Embedder(network, settings.image_size)
    found = {
        "image_embeddings": embedder.images(examples),
        "text_embeddings": embedder.texts(examples),
        "caption_to_image": examples.records.caption_to_image,
    }
    if _SAVE.value:
        folder = pathlib.Path(_SAVE.value)
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in found.items():
            write = functools.partial(np.save, arr=array)
            files.write_atomically(folder / f"{name}.npy", write)
    return tuple(found.values())


def read_saved_embeddings():
    """Returns the arrays of the three file flags."""
    needed = (_IMAGES, _TEXTS, _ROWS)
    missing = [f"--{flag.name}" for flag in needed if not flag.value]
    if missing:
        raise ValueError(
            f"--run_dir or {', '.join(missing)} must be given. Received: "
            "nothing. "
            "`python tools/evaluate.py --help` shows an example."
        )
    return (
        arrays.read_array(_IMAGES.value),
        arrays.read_array(_TEXTS.value),
        arrays.read_caption_to_image(_ROWS.value),
    )


def main(argv):
    """Reads, measures, prints, writes."""
    if len(argv) > 1:
        raise ValueError(
            f"Arguments must be flags. Received: {argv[1:]}. Write "
            "--image_embeddings=FILE and so on."
        )
    metrics = protocols.evaluate_protocol(
        _PROTOCOL.value,
        *(embed_run() if _RUN.value else read_saved_embeddings()),
        memory_limit_mb=_MEMORY.value,
        text_to_text=_TEXT_TO_TEXT.value,
    )
    title = f"protocol: {_PROTOCOL.value}"
    if _RUN.value:
        title = f"{_RUN.value}, {_SPLIT.value}, {title}"
    print(tables.format_table(metrics, title))
    if _JSON.value:
        files.write_json(_JSON.value, metrics)


if __name__ == "__main__":
    startup.run_tool(main)
