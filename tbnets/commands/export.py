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

import dataclasses

from tbnets import runs
from tbnets.commands.checks import OfRun
from tbnets.flags.flag import REQUIRED, Count, flag
from tbnets.tasks.readers import start_at_photo


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(OfRun):
    """Which network is exported, and how."""

    run_dir: str = flag(REQUIRED, "Folder of the run.")
    cnn_weights: str = flag(
        "",
        "imagenet or the weights file that the run's image features were made "
        "with: the model then takes photos; empty: as the run's own flag says.",
    )
    half_precision: bool = flag(
        False, "Keep the weights as float16; they are computed with as float32."
    )
    max_pixels: Count | None = flag(
        None,
        "Pixels beyond which the model refuses a photo, at most and by default "
        "80 million; decoding takes some 6 bytes for each.",
    )


def main(options):
    """Exports by the flags."""
    session = runs.open_run(
        options.run_dir,
        options.checkpoint,
        data_root=options.data_root,
        adjust=lambda settings: start_at_photo(settings, options.cnn_weights),
    )
    path = runs.export(
        session,
        half_precision=options.half_precision,
        max_pixels=options.max_pixels,
    )
    print(f"SavedModel  {path}")
