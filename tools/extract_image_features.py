r"""Extracts features of photos by a convolutional network into a store.

For instance, one layer (VGG19's fc2, ten crops) as Wang et al. use it:

  python tools/extract_image_features.py --images=flickr30k/images \
      --cnn=VGG19 --layers=fc2 --crops=ten --output=features/vgg19

or the Full-Network Embedding of Vilalta et al. 2017, standardised by the
training split that the captions name:

  python tools/extract_image_features.py --images=flickr8k/images \
      --captions=flickr8k/dataset_flickr8k.json --cnn=VGG16 \
      --layers=full_network --dtype=ternary --output=features/vgg16_fne

or of the boxes that tools/propose_regions.py found:

  python tools/extract_image_features.py --images=flickr30k/images \
      --cnn=VGG19 --layers=fc2 --regions=proposals/edge_boxes \
      --output=features/regions

Then train with --image_features=features/vgg16_fne. Stopped at any moment,
the same command goes on where it was and writes the same bytes. Photos that
do not decode are listed and left out; mend them and run the command again.

docs/image_features.md tells more; docs/data_formats.md describes the store.
"""

import time

import tqdm
from absl import flags

from tbnets import startup

with startup.quiet_tensorflow():
    import keras
    import tensorflow  # noqa: F401

from tbnets.features import cnn
from tbnets.features import extraction
from tbnets.features import full_network
from tbnets.features import photo_features
from tbnets.features import regions
from tbnets.photo_flags import define_photo_flags
from tbnets.store.manifest import extraction_differences
from tbnets.store.shards import open_store
from tbnets.store.shards import read_made_by
from tbnets.store.writer import FeatureWriter

_PHOTOS = define_photo_flags()
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the feature store to write.", required=True
)
_CNN = flags.DEFINE_enum(
    "cnn", "VGG19", sorted(cnn.NETWORKS), "The network. Papers: VGG19, VGG16."
)
_WEIGHTS = flags.DEFINE_string(
    "cnn_weights",
    "imagenet",
    "imagenet (fetched by Keras), an HDF5 weights file, or random.",
)
_TOP = flags.DEFINE_bool(
    "top",
    True,
    "Build the fully-connected layers and the classifier too; --notop for "
    "weights files without them.",
)
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size",
    0,
    "Side of the network's input in pixels; 0: what it was made for.",
    lower_bound=0,
)
_LAYERS = flags.DEFINE_list(
    "layers",
    [cnn.LAST],
    "Layers, whose features are put side by side, maps averaged over their "
    "positions; last: the last before the classifier (VGG: fc2); "
    "full_network: all of them (Vilalta 2017).",
)
_CROPS = flags.DEFINE_enum(
    "crops",
    "one",
    photo_features.CROPS,
    "one: the whole photo, squeezed; ten: corners, centre and their mirror "
    "images, 224 of 256, averaged (Wang 2016).",
)
_DTYPE = flags.DEFINE_enum(
    "dtype",
    "float32",
    ["float32", "float16", "ternary"],
    "How features are stored; ternary: -1, 0, +1 as int8, by the statistics "
    "of the training images.",
)
_THRESHOLDS = flags.DEFINE_list(
    "thresholds",
    [str(full_network.LOW_THRESHOLD), str(full_network.HIGH_THRESHOLD)],
    "Of ternary features, in standard deviations. Vilalta 2017: -0.25,0.15.",
)
_STATISTICS_SPLIT = flags.DEFINE_string(
    "statistics_split",
    "train",
    "Split of --captions whose statistics standardise ternary features.",
)
_STATISTICS_FROM = flags.DEFINE_string(
    "statistics_from", None, "Store of ternary features to take them from."
)
_REGIONS = flags.DEFINE_string(
    "regions",
    None,
    "Store of tools/propose_regions.py: features of its boxes instead of "
    "whole photos.",
)
_REGION_FEATURES = flags.DEFINE_enum(
    "region_features",
    "roi_pool",
    sorted(regions.KINDS),
    "warp: each box is cut out and squeezed into the network (R-CNN); "
    "roi_pool: boxes are pooled from one map of the photo (Fast R-CNN).",
)
_KEEP_RAW = flags.DEFINE_bool(
    "keep_raw",
    False,
    "Keep the float32 features of the training images, in OUTPUT.raw.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", extraction.BATCH_SIZE, "Photos a step.", lower_bound=1
)
_SHARD_IMAGES = flags.DEFINE_integer(
    "shard_images",
    extraction.SHARD_IMAGES,
    "Photos a shard: a kill costs no more than this.",
    lower_bound=1,
)


def training_ids():
    """Returns the ids whose statistics standardise ternary features."""
    if _DTYPE.value != "ternary" or not _PHOTOS.captions.value:
        return set()
    records = _PHOTOS.read_captions(_STATISTICS_SPLIT.value)
    return set(records.image_ids)


def build_features():
    """Returns what makes features by the flags, of photos or of regions."""
    keras.utils.set_random_seed(0)
    weights = None if _WEIGHTS.value == "random" else _WEIGHTS.value
    network = cnn.build_cnn(
        _CNN.value, weights, _IMAGE_SIZE.value or None, _TOP.value
    )
    if not _REGIONS.value:
        return photo_features.PhotoFeatures(
            network, _LAYERS.value, _CROPS.value
        )
    if len(_LAYERS.value) > 1 or _DTYPE.value == "ternary":
        raise ValueError(
            "`--regions` must come with one layer, stored as floats. "
            f"Received: --layers={','.join(_LAYERS.value)}, "
            f"--dtype={_DTYPE.value}. Change these."
        )
    return regions.make_region_extractor(
        network, _REGION_FEATURES.value, _LAYERS.value[0]
    )


def thresholds():
    """Returns --thresholds as two numbers."""
    try:
        low, high = map(float, _THRESHOLDS.value)
        return low, high
    except ValueError as error:
        raise ValueError(
            "`--thresholds` must be two numbers with a comma between. "
            f"Received: --thresholds={','.join(_THRESHOLDS.value)}. Write "
            "for example --thresholds=-0.25,0.15."
        ) from error


def open_writer(features):
    """Opens the store, with the statistics of --statistics_from if any."""
    made_by = features.description()
    if _REGIONS.value:
        made_by["proposals"] = read_made_by(_REGIONS.value)
        return FeatureWriter(
            _OUTPUT.value, made_by, features.dim, _DTYPE.value, "regions"
        )
    if _DTYPE.value != "ternary":
        return FeatureWriter(_OUTPUT.value, made_by, features.dim, _DTYPE.value)
    low, high = thresholds()
    made_by["ternary"] = {"low": low, "high": high}
    writer = FeatureWriter(_OUTPUT.value, made_by, features.dim, "int8")
    if _STATISTICS_FROM.value:
        copy_statistics(writer, made_by)
    elif not _PHOTOS.captions.value and writer.statistics is None:
        raise ValueError(
            "`--captions` must tell the training images of ternary features. "
            "Received: --captions= and no --statistics_from. Set one of them."
        )
    return writer


def copy_statistics(writer, made_by):
    """Takes the statistics of another store that was made the same way."""
    other = open_store(_STATISTICS_FROM.value)
    lines = extraction_differences(
        other.extraction, made_by, other.path, "this extraction"
    )
    if lines or other.statistics is None:
        raise ValueError(
            "`--statistics_from` must be a store of ternary features made "
            f"the same way. Received: {other.path}, which "
            + (f"differs: {'; '.join(lines)}." if lines else "has none.")
            + " Extract both with the same flags."
        )
    of = other.manifest.statistics
    writer.add_statistics(other.statistics, of.of, of.images)


def extract(photos, train, features, writer, progress):
    """Extracts what the flags ask for; returns the failures."""
    sizes = {"shard_images": _SHARD_IMAGES.value, "progress": progress}
    if _REGIONS.value:
        proposals = open_store(_REGIONS.value)
        return regions.extract_regions(
            photos, proposals, features, writer, **sizes
        )
    sizes["batch_size"] = _BATCH_SIZE.value
    if _DTYPE.value != "ternary":
        return extraction.extract(photos, features, writer, **sizes)
    of = _STATISTICS_SPLIT.value
    return extraction.extract_ternary(
        photos, train, of, features, writer, thresholds(), **sizes
    )


def run(photos, train, features, writer):
    """Extracts with a progress bar; returns the failures and the seconds."""
    start = time.perf_counter()
    with tqdm.tqdm(
        total=len(extraction.remaining(photos, writer)),
        unit="image",
        smoothing=0.1,
        disable=None,
    ) as bar:
        failures = extract(photos, train, features, writer, bar.update)
    writer.finish()
    return failures, time.perf_counter() - start


def report(failures, done, seconds, writer, features):
    """Prints what was done and what to do next."""
    for path, reason in failures:
        print(f"left out: {path}, which {reason}")
    speed = f", {done / seconds:.1f} images/s" if done else ""
    print(
        f"{done} images extracted in {seconds:.0f} s{speed}; "
        f"{len(writer.done)} in the store, {len(failures)} left out\n"
        f"store     {_OUTPUT.value}: {features.dim} features "
        f"{'a region' if _REGIONS.value else 'an image'}, {_DTYPE.value}"
    )
    if not _REGIONS.value:
        print(f"Next, train with --image_features={_OUTPUT.value}")


def main(argv):
    """Extracts by the flags."""
    if len(argv) > 1:
        raise ValueError(
            "`extract_image_features.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    photos = _PHOTOS.find()
    features = build_features()
    writer = open_writer(features)
    before = len(writer.done)
    failures, seconds = run(photos, training_ids(), features, writer)
    if _DTYPE.value == "ternary" and not _KEEP_RAW.value:
        extraction.remove_raw(writer)
    report(failures, len(writer.done) - before, seconds, writer, features)


if __name__ == "__main__":
    startup.run_tool(main)
