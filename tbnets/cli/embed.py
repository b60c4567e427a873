"""Embed photos on Apache Beam, and write the embeddings to Parquet files.

For example, embed a folder of photos with one process per core:

  tbnets embed photos --output=embeddings
  tbnets index --embeddings='embeddings/*.parquet' --output=photos.index

The photos are a folder, tar archives or parquet files, as for training; or a
pattern of photos, such as 'photos/*.jpg' or 'gs://bucket/photos/**.jpg'.

If the command is interrupted, run it again: it computes only photos that are
new or changed. With --known, it also reuses the rows in another output.

Options after -- are those of Beam, such as the runner:

  tbnets embed 'gs://bucket/photos/**.jpg' --output=gs://bucket/embeddings \
      -- --runner=FlinkRunner --flink_master=localhost:8081

Extract features to train with --image_features='features/*.parquet':

  tbnets embed photos --features=EfficientNetLite0 --output=features

See docs/scale.md.
"""

import dataclasses
import os
import time

from tbnets.cli.data_flags import PhotoFlags
from tbnets.cli.model_flags import MODEL
from tbnets.data.archives import has_archives
from tbnets.errors import InputError
from tbnets.tasks.settings.flag import REQUIRED, Place, Whole, flag

PHOTOS_PER_FILE = 500
"""A killed process loses at most the embeddings of this many photos."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the photos, the network and the output."""

    photos: list[str] = flag(
        [], "The photos; after --, options of Beam.", kind="words"
    )
    output: str = flag(REQUIRED, "Folder for the Parquet files.")
    model: str = flag("flickr8k_photos", f"{MODEL}.")
    trust: bool = flag(
        False,
        "Load --model even if its graph has ops that read or write files. "
        "Use it only for models that you trust.",
    )
    features: str = flag(
        "",
        "Network whose features are extracted in place of embeddings, as in "
        "--image_encoder of tbnets train.",
    )
    cnn_weights: Place = flag(
        "imagenet",
        "Weights of --features: imagenet, a weights file, or random.",
        argument="weights",
    )
    known: str = flag(
        "",
        "An earlier output, whose rows are reused for photos with the same id "
        "and content.",
    )
    files: Whole = flag(
        0,
        "Number of files, unless there are earlier files in the folder or in "
        f"--known. Default: one for {PHOTOS_PER_FILE} photos.",
    )


def main(options):
    """Runs the pipeline."""
    from tbnets.beam import pipeline, transforms  # Requires Beam.

    if not options.photos or options.photos[0].startswith("-"):
        raise InputError(
            "tbnets embed",
            "get the photos",
            " ".join(options.photos) or "none",
            "Write for example tbnets embed photos --output=embeddings.",
        )
    place, *words = options.photos
    runner = pipeline.Runner(words)
    network = transforms.Model(options.model, options.trust)
    if options.features:
        network = transforms.Network(options.features, options.cnn_weights)
    if os.path.isdir(place) or has_archives(place):
        found = PhotoFlags(images=place, output=options.output).find_photos()
        photos = [(key, os.fspath(path)) for key, path in found]
    else:
        photos = pipeline.list_photos(place, runner.is_direct)
    if isinstance(photos, str) and not options.files:
        raise InputError(
            "--files",
            "be set, because only the workers list the photos",
            "no value",
            "Set it to about one file for 10,000 photos.",
        )
    num_files = options.files or -(-len(photos) // PHOTOS_PER_FILE)
    made_by = network.load().made_by  # Bad arguments end the command here.
    output = pipeline.open_output(
        options.output, options.known, num_files, made_by
    )
    start = time.monotonic()
    counts = pipeline.run(photos, network, output, runner)
    seconds = time.monotonic() - start
    print(
        f"{options.output}  {output.num_files} files: {counts['computed']} "
        f"photos computed and {counts['known']} reused in {seconds:.0f} s; "
        f"{counts['failed']} without an embedding, see the column status"
    )
