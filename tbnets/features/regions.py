"""Regions of a photo -> feature vectors, by a convolutional network.

`WarpFeatures` cuts each box out, squeezes it into the network's input and
runs all of the network on it (R-CNN). `RoiFeatures` runs the convolutions
once for the photo, pools each box from their last map and runs only the
fully-connected layers on it (Fast R-CNN). `averaged_regions` averages boxes
from maps of several depths. Boxes are those of `tbnets.evaluation.boxes`.
"""

import keras
import numpy as np
import tensorflow as tf

from tbnets.errors import InputError, check_choice
from tbnets.evaluation.boxes import check_boxes
from tbnets.features.averaged_regions import AveragedFeatures
from tbnets.features.cnn import LAST, in_float32, pooled_network
from tbnets.features.cutting import BOXES, roi_pool, warped_crops
from tbnets.features.folding import fold_batch_normalization
from tbnets.features.photo_features import build_described_cnn

CROPS_AT_ONCE = 32
POOLED_AT_ONCE = 128
_RESIZE = "bilinear, antialiased, upright"
_PHOTO = tf.TensorSpec([None, None, 3], tf.float32)


class WarpFeatures:
    """Turns regions into features by running the network on each of them.

    Args:
        cnn: a `cnn.Cnn`.
        layer: name of a layer, maps of which are averaged over positions,
            or `last`, see `Cnn.outputs`.
        context: as in `warped_crops`.
    """

    @in_float32()
    def __init__(self, cnn, layer=LAST, context=0.0):
        self.cnn = cnn
        self.layer = layer
        self.context = context
        network = pooled_network(cnn, cnn.outputs([layer]))
        self.network = fold_batch_normalization(network)
        self.dim = int(self.network.output_shape[-1])
        self._forward = tf.function(self.forward, [_PHOTO, BOXES])

    def description(self) -> dict:
        """Returns what makes the features, as the store's manifest keeps it."""
        return {
            **self.cnn.describe([self.layer], _RESIZE),
            "regions": "warp",
            "context": self.context,
        }

    def forward(self, pixels, boxes):
        """Computes the features of some boxes, in the graph."""
        size = self.cnn.image_size
        crops = warped_crops(pixels, boxes, size, self.context)
        outputs = self.network(self.cnn.preprocess(crops), training=False)
        return tf.cast(outputs, tf.float32)

    def __call__(self, pixels, boxes) -> np.ndarray:
        """Computes the features of any number of boxes of a photo.

        Args:
            pixels: `[height, width, 3]`, RGB in [0, 255], upright.
            boxes: `[k, 4]`; k may be 0.

        Returns:
            float32 `[k, dim]`.
        """
        pixels = tf.cast(pixels, tf.float32)
        return _in_blocks(self._forward, pixels, boxes, CROPS_AT_ONCE, self.dim)


class RoiFeatures:
    """Turns regions into features, with one pass of convolutions a photo.

    A layer of maps is pooled to `output_size` bins a box, which are then
    averaged. For a layer of vectors, such as VGG's `fc2`, the pooling takes
    the place of the max pooling before the fully-connected layers, of the
    size that they expect; without such a max pooling, the map that is
    flattened or averaged is pooled itself.

    Args:
        cnn: a `cnn.Cnn`; its network may have been built for any size.
        layer: name of the layer, or `last`, see `Cnn.outputs`.
        output_size: bins a side where the network does not ask for a size.
            Fast R-CNN with VGG: 7.
        shorter_side: pixels to which the photo is scaled. Fast R-CNN: 600.
        longest_side: most pixels of the other side. Fast R-CNN: 1000.

    Raises:
        ValueError: the network can not be cut there.
    """

    @in_float32()
    def __init__(
        self,
        cnn,
        layer=LAST,
        output_size=7,
        shorter_side=600,
        longest_side=1000,
    ):
        self.cnn = cnn
        self.layer = layer
        self.shorter_side = shorter_side
        self.longest_side = longest_side
        [(_, output)] = cnn.outputs([layer])
        self.dim, self.head, bins = int(output.shape[-1]), None, None
        if len(output.shape) == 2:
            self.head, output, bins = _cut(cnn.network, layer, output)
        self.output_size = bins or output_size
        network = _any_size(cnn.network, output)
        self.convolutions = fold_batch_normalization(network)
        self._map = tf.function(self.feature_map, [_PHOTO])
        found = tf.TensorSpec([None, None, output.shape[-1]])
        self._pooled = tf.function(self.pooled, [found, BOXES])

    def description(self) -> dict:
        """Returns what makes the features, as the store's manifest keeps it."""
        return {
            **self.cnn.describe([self.layer], _RESIZE),
            "regions": "roi_pool",
            "output_size": self.output_size,
            "shorter_side": self.shorter_side,
            "longest_side": self.longest_side,
        }

    def feature_map(self, pixels):
        """Scales a photo and runs the convolutions, in the graph.

        Args:
            pixels: float32 `[height, width, 3]`, RGB in [0, 255].

        Returns:
            float32 `[map height, map width, channels]`.
        """
        sides = tf.cast(tf.shape(pixels)[:2], tf.float32)
        scale = self.shorter_side / tf.reduce_min(sides)
        scale = tf.minimum(scale, self.longest_side / tf.reduce_max(sides))
        size = tf.cast(tf.maximum(tf.round(scale * sides), 1), tf.int32)
        photo = tf.image.resize(pixels, size, "bilinear", antialias=True)
        photo = self.cnn.preprocess(photo[None])
        outputs = self.convolutions(photo, training=False)
        return tf.cast(outputs[0], tf.float32)

    def pooled(self, feature_map, boxes):
        """Pools boxes, in cells of the map, and runs the rest of the network.

        Args:
            feature_map: float32 `[map height, map width, channels]`.
            boxes: float32 `[k, 4]`.

        Returns:
            float32 `[k, dim]`.
        """
        bins = roi_pool(feature_map, boxes, self.output_size)
        if self.head is None:
            return tf.reduce_mean(bins, axis=[1, 2])
        return tf.cast(self.head(bins, training=False), tf.float32)

    def __call__(self, pixels, boxes) -> np.ndarray:
        """Computes the features of any number of boxes of a photo.

        Args:
            pixels: `[height, width, 3]`, RGB in [0, 255], upright.
            boxes: `[k, 4]`; k may be 0.

        Returns:
            float32 `[k, dim]`.
        """
        pixels = tf.cast(pixels, tf.float32)
        found = self._map(pixels)
        scale = [m / n for m, n in zip(found.shape[1::-1], pixels.shape[1::-1])]
        boxes = check_boxes(boxes) * (scale * 2)
        return _in_blocks(self._pooled, found, boxes, POOLED_AT_ONCE, self.dim)


KINDS = {
    "warp": WarpFeatures,
    "roi_pool": RoiFeatures,
    "roi_average": AveragedFeatures,
}
"""Ways to features of regions, by name."""


def make_region_extractor(cnn, kind="roi_pool", layer=LAST, **options):
    """Makes a function (pixels, boxes) -> features, see `KINDS`.

    Args:
        cnn: a `cnn.Cnn`.
        kind: `warp`, `roi_pool` or `roi_average`.
        layer: name of a layer of the network, or `last`; for `roi_average`
            also a list of several.
        **options: further arguments of the class of this kind.

    Returns:
        A `WarpFeatures`, `RoiFeatures` or `AveragedFeatures`.

    Raises:
        ValueError: the kind or the layer is unknown.
    """
    check_choice("kind", kind, KINDS)
    return KINDS[kind](cnn, layer, **options)


def _in_blocks(function, picture, boxes, size, dim):
    """Calls a function for some boxes at a time, so that memory is bounded."""
    boxes = tf.constant(check_boxes(boxes), tf.float32)
    blocks = [boxes[at : at + size] for at in range(0, len(boxes), size)]
    parts = [function(picture, some).numpy() for some in blocks]
    return np.concatenate([np.zeros((0, dim), np.float32), *parts])


def _cut(network, layer, output):
    """Cuts a network before its fully-connected part.

    Returns:
        (head, map, size): a model from bins to the layer's output, the Keras
        tensor to pool from, and the bins a side it expects or None.
    """
    layers = keras.layers
    joints = (layers.Flatten, layers.GlobalAveragePooling2D)
    joint = next((x for x in network.layers if isinstance(x, joints)), None)
    try:
        bins = joint.input
        head = keras.Model(bins, output)
    except (AttributeError, ValueError) as error:
        raise InputError(
            "`layer` must be a layer of maps, or one after they are flattened "
            f"or averaged. Received: layer={layer} of {network.name}. Choose "
            "another layer."
        ) from error
    if isinstance(joint, layers.GlobalAveragePooling2D):
        return head, bins, None
    pools = [x for x in network.layers if isinstance(x, layers.MaxPooling2D)]
    before = next((x.input for x in pools if x.output is bins), bins)
    return head, before, int(bins.shape[1])


def _any_size(network, output):
    """Returns the network up to a map, for photos of any size."""
    fixed = keras.Model(network.inputs[0], output)
    photo = keras.Input((None, None, 3))
    free = keras.models.clone_model(fixed, input_tensors=photo)
    free.set_weights(fixed.get_weights())
    return free


def open_averaged_features(description, weights):
    """Builds the `AveragedFeatures` that a store was extracted with.

    Args:
        description: what `AveragedFeatures.description` returned.
        weights: as in `photo_features.build_named_cnn`, those of the
            extraction.

    Raises:
        ValueError: the weights are others than those of the description.
    """
    cnn = build_described_cnn(description, weights)
    names = {"layers", "geometry", "grids", "scales"} & description.keys()
    return AveragedFeatures(cnn, **{name: description[name] for name in names})
