r"""Exports a trained network as a SavedModel, once more or otherwise.

Training exports its best epoch by itself. This tool exports another
checkpoint, or a model that starts at the photo where the network was trained
on features of tools/extract_image_features.py:

  python tools/export.py --run_dir=runs/vilalta2017_flickr8k_fne \
      --cnn_weights=imagenet

The next version is written to RUN/saved_model; docs/serving.md tells how to
serve it. With --half_precision it takes half the space; with --max_pixels it
takes smaller photos alone, which bounds the memory of a server.
"""

from absl import flags

from tbnets import startup
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets import runs
from tbnets.tasks.readers import start_at_photo

_RUN = flags.DEFINE_string("run_dir", None, "Folder of the run.", required=True)
_CHECKPOINT = flags.DEFINE_enum(
    "checkpoint", "best", ["best", "last"], "Epoch to export."
)
_WEIGHTS = flags.DEFINE_string(
    "cnn_weights",
    "",
    "imagenet or the weights file that the run's image features were made "
    "with: the model then takes photos; empty: as the run's own flag says.",
)
_DATA_ROOT = flags.DEFINE_string(
    "data_root",
    None,
    "Folder that relative data paths start from now; by default as TBNETS_DATA "
    "or the run says.",
)
_HALF_PRECISION = flags.DEFINE_bool(
    "half_precision",
    False,
    "Keep the weights as float16; they are computed with as float32.",
)
_MAX_PIXELS = flags.DEFINE_integer(
    "max_pixels",
    None,
    "Pixels beyond which the model refuses a photo, at most and by default 80 "
    "million; decoding takes some 6 bytes for each.",
    lower_bound=1,
)


def main(argv):
    """Exports by the flags."""
    if len(argv) > 1:
        raise InputError(
            "`export.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    session = runs.open_run(
        _RUN.value, _CHECKPOINT.value, data_root=_DATA_ROOT.value
    )
    start_at_photo(session.settings, _WEIGHTS.value)
    path = runs.export(
        session,
        half_precision=_HALF_PRECISION.value,
        max_pixels=_MAX_PIXELS.value,
    )
    print(f"SavedModel  {path}")


if __name__ == "__main__":
    startup.run_tool(main)
