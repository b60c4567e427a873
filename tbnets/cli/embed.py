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
import functools
import os

from tbnets.cli.data_flags import PhotoFlags
from tbnets.cli.model_flags import MODEL, ModelFlags
from tbnets.data.archives import has_archives
from tbnets.errors import InputError
from tbnets.tasks.settings.flag import REQUIRED, Place, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ModelFlags):
    """Flags for the photos, the network and the output."""

    model: str = flag("flickr8k_photos", f"{MODEL}.")
    photos: list[str] = flag(
        [], "The photos; after --, options of Beam.", kind="words"
    )
    output: str = flag(REQUIRED, "Folder for the Parquet files.")
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


def main(options):
    """Runs the pipeline."""
    from tbnets.beam import pipeline, transforms  # isort: skip
    import apache_beam as beam  # The line above names the extra if missing.

    place, *words = options.photos or ["--"]
    if place.startswith("-"):
        raise InputError(
            "tbnets embed", "get photos", "none", "See tbnets embed --help."
        )
    network = transforms.load_model, options.model, options.trust
    if options.features:
        network = transforms.load_network, options.features, options.cnn_weights
    is_pattern = "*" in place or "://" in place
    if is_pattern and not has_archives(place):
        photos = pipeline.find_photos(place)
    else:
        found = PhotoFlags(images=place, output=options.output).find_photos()
        pairs = [(key, os.fspath(path)) for key, path in found]
        photos = beam.Create(pairs), len(pairs)
    load, output = functools.partial(*network), options.output
    num_files = pipeline.write(*photos, load, output, options.known, words)
    print(f"{output}  {num_files} files of embeddings")
