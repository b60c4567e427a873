r"""Measures image-text retrieval on saved embeddings.

For instance:

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

from absl import flags

from tbnets import files
from tbnets import startup
from tbnets.evaluation import arrays
from tbnets.evaluation import protocols
from tbnets.evaluation import tables

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


def read_saved_embeddings():
    """Returns the arrays of the three file flags."""
    needed = (_IMAGES, _TEXTS, _ROWS)
    missing = [f"--{flag.name}" for flag in needed if not flag.value]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} must be given. Received: nothing. "
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
        *read_saved_embeddings(),
        memory_limit_mb=_MEMORY.value,
        text_to_text=_TEXT_TO_TEXT.value,
    )
    print(tables.format_table(metrics, f"protocol: {_PROTOCOL.value}"))
    if _JSON.value:
        files.write_json(_JSON.value, metrics)


if __name__ == "__main__":
    startup.run_tool(main)
