"""Cuts regions out of photos and feature maps, and computes their features."""

import keras
import numpy as np
import tensorflow as tf

from tbnets.data.images import decode_photo, read_upright_sides
from tbnets.errors import InputError
from tbnets.evaluation.boxes import check_boxes
from tbnets.features.cnn import (
    LAST,
    SQUEEZED,
    fold_batch_normalization,
    in_float32,
    pooled_network,
)
from tbnets.features.photo_features import build_described_cnn

BOXES = tf.TensorSpec([None, 4], tf.float32)
LEAST_SIDE = 1 / 16
"""Minimum side of an averaged box, in cells of the map."""


def warped_crops(image, boxes, size, context=0.0):
    """Cuts boxes out of a photo and resizes them to squares.

    The resize is bilinear and antialiased. Pixels outside the photo are filled
    with the photo's mean colour.

    Args:
        image: `[height, width, 3]`, any numeric dtype.
        boxes: `[k, 4]`; k may be 0. Shorter sides are extended to one pixel.
        size: side length of the squares in pixels.
        context: width of a border that shows the box's surroundings, as a
            fraction of the square's side, in [0, 0.5). R-CNN uses 16/227.

    Returns:
        float32 `[k, size, size, 3]`.

    Source: Girshick et al. 2014, "Rich feature hierarchies", App. A (warp).
    Departures: the paper fills with the mean colour of the training images.
    """
    image = tf.cast(image, tf.float32)
    mean = tf.reduce_mean(image, axis=[0, 1], keepdims=True)
    centred = (image - mean)[None]
    boxes = tf.cast(boxes, tf.float32)
    # The kernel expects y before x.
    low = boxes[:, 1::-1]
    sides = tf.maximum(boxes[:, :1:-1] - low, 1.0)
    scales = size * (1 - 2 * context) / sides
    shifts = size * context - low * scales

    def crop(scale_and_shift):
        scale, shift = scale_and_shift
        return tf.raw_ops.ScaleAndTranslate(
            images=centred,
            size=[size, size],
            scale=scale,
            translation=shift,
            kernel_type="triangle",
            antialias=True,
        )[0]

    kind = tf.TensorSpec([size, size, 3], tf.float32)
    crops = tf.map_fn(crop, (scales, shifts), fn_output_signature=kind)
    return crops + mean[None]


def roi_pool(feature_map, boxes, output_size):
    """Max-pools each box of a feature map into a grid of bins.

    A box's edges are rounded to whole cells. Along a side of h cells, bin i
    contains the cells from floor(i h / output_size) up to, but not including,
    ceil((i + 1) h / output_size). In small boxes, bins overlap.

    Args:
        feature_map: float `[height, width, channels]`.
        boxes: `[k, 4]` in units of feature-map cells.
        output_size: number of bins per side.

    Returns:
        float `[k, output_size, output_size, channels]`.

    Source: Girshick 2015, "Fast R-CNN", Sec. 2.1. Departures: the right and
    bottom edges are exclusive; in the released code they are inclusive.
    """
    feature_map = tf.convert_to_tensor(feature_map)
    cells = tf.shape(feature_map)[1::-1]
    edges = tf.cast(tf.floor(tf.cast(boxes, tf.float32) + 0.5), tf.int32)
    low = tf.clip_by_value(edges[:, :2], 0, cells - 1)
    high = tf.minimum(tf.maximum(edges[:, 2:], low + 1), cells)
    shape = [output_size, output_size, feature_map.shape[-1]]
    kind = tf.TensorSpec(shape, feature_map.dtype)

    def bins(start, end):
        for i in range(output_size):
            first = i * (end - start) // output_size
            last = -(-(i + 1) * (end - start) // output_size)
            yield start + first, start + last

    def pool(low_and_high):
        (x_min, y_min), (x_max, y_max) = map(tf.unstack, low_and_high)
        rows = tf.stack(
            [tf.reduce_max(feature_map[a:b], 0) for a, b in bins(y_min, y_max)]
        )
        cells = [tf.reduce_max(rows[:, a:b], 1) for a, b in bins(x_min, x_max)]
        return tf.stack(cells, axis=1)

    return tf.map_fn(pool, (low, high), fn_output_signature=kind)


def roi_average(feature_map, boxes, grid=1):
    """Averages a bilinearly interpolated feature map over boxes.

    The mean is an exact integral, so it changes continuously with the box.
    Boxes are clipped to the map, and sides shorter than `LEAST_SIDE` are
    extended to it.

    Args:
        feature_map: float32 `[height, width, channels]`.
        boxes: `[k, 4]` in units of feature-map cells.
        grid: each box is divided into `grid * grid` cells, which are averaged
            separately.

    Returns:
        float32 `[k, grid * grid * channels]`, with the cells in row-major
        order.

    Source: Jiang et al. 2018, "Acquisition of Localization Confidence for
    Accurate Object Detection", Sec. 3.3 (Precise RoI Pooling). Departures:
    outside its outermost cells, the map is constant here but 0 in the paper.
    """
    feature_map = tf.convert_to_tensor(feature_map)
    boxes = tf.cast(boxes, tf.float32)
    if grid > 1:
        parts = tf.reshape(grid_cells(boxes, grid), [-1, 4])
        size = grid * grid * feature_map.shape[-1]
        return tf.reshape(roi_average(feature_map, parts), [-1, size])
    height, width = tf.unstack(tf.shape(feature_map)[:2])
    columns = _shares(boxes[:, 0], boxes[:, 2], width)
    rows = _shares(boxes[:, 1], boxes[:, 3], height)
    shares = rows[:, :, None] * columns[:, None, :]
    cells = tf.reshape(feature_map, [-1, feature_map.shape[-1]])
    return tf.matmul(tf.reshape(shares, [-1, height * width]), cells)


def grid_cells(boxes, grid):
    """Divides boxes `[k, 4]` into row-major cells `[k, grid * grid, 4]`."""
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    x, y = np.meshgrid(np.arange(grid), np.arange(grid))
    starts = np.stack([x.ravel(), y.ravel()], axis=1) / grid
    step = (high - low) / grid
    low = low + (high - low) * tf.constant(starts, tf.float32)
    return tf.concat([low, low + step], axis=2)


def _shares(low, high, num_cells):
    """Computes the weights with which each interval averages the cells."""
    end = tf.cast(num_cells, tf.float32)
    low, high = tf.clip_by_value(low, 0, end), tf.clip_by_value(high, 0, end)
    half = tf.maximum(high - low, LEAST_SIDE) / 2
    middle = tf.clip_by_value((low + high) / 2, half, end - half)
    # The map is constant outside the centres of the outermost cells. The weight
    # of an extra cell at each end is added to the outermost cell's weight.
    centres = tf.range(-0.5, end + 1)

    def integral(edges):
        """Integrates each cell's triangular kernel up to an edge."""
        far = tf.clip_by_value(edges[:, None] - centres, -1, 1)
        return far - far * tf.abs(far) / 2

    shares = integral(middle + half) - integral(middle - half)
    shares /= 2 * half[:, None]
    first = tf.one_hot(0, num_cells) * shares[:, :1]
    last = tf.one_hot(num_cells - 1, num_cells) * shares[:, -1:]
    return first + shares[:, 1:-1] + last


GEOMETRY_DIM = 5


def box_geometry(boxes, sides):
    """Returns each box's x_min, y_min, x_max, y_max and area, `[k, 5]`.

    Coordinates are divided by `sides`, the photo's width and height.

    Source: Mao et al. 2016, "Generation and Comprehension of Unambiguous Object
    Descriptions".
    """
    corners = boxes / tf.tile(sides, [2])
    extents = corners[:, 2:] - corners[:, :2]
    area = tf.reduce_prod(extents, axis=1, keepdims=True)
    return tf.concat([corners, area], axis=1)


class AveragedFeatures:
    """Averages a network's feature maps over boxes, in one pass per photo.

    Args:
        cnn: a `cnn.Cnn`, built for the size to which photos are resized.
        layers: name of a layer that outputs maps, `last` for the maps that a
            classifier averages, or a list of names to concatenate.
        geometry: whether to append `box_geometry`.
        grids: for each layer, a number g. A box is divided into g x g cells,
            which are averaged separately to encode the layout. Default: 1.
        scales: for each layer, the factor by which a box is scaled about its
            centre, for example to include the surroundings. Default: 1.

    Example:
        >>> cnn = build_cnn("EfficientNetLite2", "imagenet", image_size=448)
        >>> extract = AveragedFeatures(cnn, ["last", "block14_add"])
        >>> extract(read_photo("36979.jpg"), boxes).shape  # (k, 1405)
    """

    @in_float32()
    def __init__(
        self, cnn, layers=(LAST,), geometry=True, grids=None, scales=None
    ):
        self.cnn = cnn
        self.layers = [layers] if isinstance(layers, str) else list(layers)
        self.geometry = geometry
        self.grids = _one_each("grids", self.layers, grids, 1)
        self.scales = _one_each("scales", self.layers, scales, 0.1)
        self._distinct = list(dict.fromkeys(self.layers))
        outputs = cnn.outputs(self._distinct)
        maps = {name: _map(cnn, name, output) for name, output in outputs}
        network = keras.Model(cnn.network.inputs[0], list(maps.values()))
        self.network = fold_batch_normalization(network)
        pairs = zip(self.layers, self.grids)
        dims = [int(maps[name].shape[-1]) * grid**2 for name, grid in pairs]
        self.dim = GEOMETRY_DIM * geometry + sum(dims)
        photo = tf.TensorSpec([None, None, 3], tf.uint8)
        self._forward = tf.function(
            self.forward, [photo, BOXES], autograph=False
        )

    def description(self) -> dict:
        """Returns the settings for the manifest of a store."""
        return {
            **self.cnn.description(),
            "layers": self.layers,
            "resize": SQUEEZED,
            "regions": "roi_average",
            "grids": self.grids,
            "scales": self.scales,
            "geometry": self.geometry,
        }

    def forward(self, pixels, boxes):
        """Computes features `[k, dim]` of the boxes in a photo.

        `pixels` is `[height, width, 3]`, RGB in [0, 255], upright. `boxes` is
        float32 `[k, 4]` in pixels; k may be 0.
        """
        size = self.cnn.image_size
        sides = tf.cast(tf.shape(pixels)[1::-1], tf.float32)
        boxes = tf.clip_by_value(boxes, 0, tf.tile(sides, [2]))
        photo = tf.image.resize(pixels, [size] * 2, "bilinear", antialias=True)
        maps = self.network(self.cnn.preprocess(photo[None]), training=False)
        maps = dict(zip(self._distinct, tf.nest.flatten(maps)))
        parts = []
        for name, grid, scale in zip(self.layers, self.grids, self.scales):
            map_boxes = _scaled(boxes, scale, sides) * _cells(maps[name], sides)
            feature_map = tf.cast(maps[name][0], tf.float32)
            parts.append(roi_average(feature_map, map_boxes, grid))
        if self.geometry:
            parts.append(box_geometry(boxes, sides))
        return tf.concat(parts, axis=1)

    def decode(self, image_bytes):
        """Decodes the content of a JPEG or PNG file for `of_decoded`.

        Returns:
            (pixels, sides): `pixels` is uint8 `[height, width, 3]`, upright; a
            very large JPEG is scaled down. `sides` is float32 `[2]`, the width
            and height at full size.
        """
        pixels = decode_photo(image_bytes, self.cnn.image_size)
        return pixels, tf.cast(read_upright_sides(image_bytes), tf.float32)

    def of_decoded(self, pixels, sides, boxes):
        """Computes features `[k, dim]` of the boxes in a decoded photo.

        `pixels` and `sides` are from `decode`. `boxes` is float32 `[k, 4]` in
        pixels at full size.
        """
        decoded = tf.cast(tf.shape(pixels)[1::-1], tf.float32)
        return self.forward(pixels, boxes * tf.tile(decoded / sides, [2]))

    def __call__(self, pixels, boxes) -> np.ndarray:
        """Computes features `[k, dim]` of the boxes `[k, 4]` in a photo.

        `pixels` is uint8 `[height, width, 3]`, RGB, upright.
        """
        boxes = tf.constant(check_boxes(boxes), tf.float32)
        return self._forward(tf.cast(pixels, tf.uint8), boxes).numpy()


def _one_each(argument, layers, values, least):
    values = [1] * len(layers) if values is None else list(values)
    if len(values) != len(layers) or min(values, default=least) < least:
        expected = f"have a number >= {least} for each of {layers}"
        raise InputError(argument, expected, values)
    return values


def _scaled(boxes, scale, sides):
    if scale == 1:
        return boxes
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    halves = (boxes[:, 2:] - boxes[:, :2]) * scale / 2
    boxes = tf.concat([centres - halves, centres + halves], axis=1)
    return tf.clip_by_value(boxes, 0, tf.tile(sides, [2]))


def _cells(feature_map, sides):
    """Returns the map cells per photo pixel, `[4]`, for the edges of a box."""
    cells = tf.cast(tf.shape(feature_map)[2:0:-1], tf.float32)
    return tf.tile(cells / sides, [2])


def _map(cnn, name, output):
    kind = keras.layers.GlobalAveragePooling2D
    averages = [x for x in cnn.network.layers if isinstance(x, kind)]
    output = next((x.input for x in averages if x.output is output), output)
    if len(output.shape) != 4:
        received = f"{name} of shape {tuple(output.shape)}"
        raise InputError("layers", "output maps or their average", received)
    return output


CROPS_AT_ONCE = 32
POOLED_AT_ONCE = 128
_RESIZE = "bilinear, antialiased, upright"
_PHOTO = tf.TensorSpec([None, None, 3], tf.float32)


class WarpFeatures:
    """Computes features of regions as R-CNN does, with one pass per region.

    `layer` is the layer whose maps are averaged, or `last`. `context` is passed
    to `warped_crops`.
    """

    @in_float32()
    def __init__(self, cnn, layer=LAST, context=0.0):
        self.cnn = cnn
        self.layer = layer
        self.context = context
        network = pooled_network(cnn, cnn.outputs([layer]))
        self.network = fold_batch_normalization(network)
        self.dim = int(self.network.output_shape[-1])
        self._forward = tf.function(
            self.forward, [_PHOTO, BOXES], autograph=False
        )

    def description(self) -> dict:
        """Returns the settings for the manifest of a store."""
        return {
            **self.cnn.description(),
            "layers": [self.layer],
            "resize": _RESIZE,
            "regions": "warp",
            "context": self.context,
        }

    def forward(self, pixels, boxes):
        """Computes the features of boxes, with TensorFlow."""
        size = self.cnn.image_size
        crops = warped_crops(pixels, boxes, size, self.context)
        outputs = self.network(self.cnn.preprocess(crops), training=False)
        return tf.cast(outputs, tf.float32)

    def __call__(self, pixels, boxes) -> np.ndarray:
        """Computes features `[k, dim]` of the boxes `[k, 4]` in a photo.

        `pixels` is `[height, width, 3]`, RGB in [0, 255], upright.
        """
        pixels = tf.cast(pixels, tf.float32)
        return _in_blocks(self._forward, pixels, boxes, CROPS_AT_ONCE, self.dim)


class RoiFeatures:
    """Computes features of regions as Fast R-CNN does.

    The convolutions run once per photo. If the layer outputs maps, each region
    is pooled into bins, and the bins are averaged. If it outputs vectors, as
    VGG's `fc2` does, RoI pooling replaces the last max pooling, and its output
    size is the size that the dense layers require.

    Args:
        cnn: a `cnn.Cnn`, built for any image size.
        layer: name of the layer, or `last`.
        output_size: bins per side, unless the network requires a certain
            number.
        shorter_side: shorter side of a scaled photo in pixels.
        longest_side: maximum longer side in pixels.

    The default sizes are those of Fast R-CNN with VGG.
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
        self._map = tf.function(self.feature_map, [_PHOTO], autograph=False)
        map_spec = tf.TensorSpec([None, None, output.shape[-1]])
        self._pooled = tf.function(
            self.pooled, [map_spec, BOXES], autograph=False
        )

    def description(self) -> dict:
        """Returns the settings for the manifest of a store."""
        return {
            **self.cnn.description(),
            "layers": [self.layer],
            "resize": _RESIZE,
            "regions": "roi_pool",
            "output_size": self.output_size,
            "shorter_side": self.shorter_side,
            "longest_side": self.longest_side,
        }

    def feature_map(self, pixels):
        """Scales a photo and computes its float32 feature map.

        `pixels` is float32 `[height, width, 3]`, RGB in [0, 255].
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
        """Pools the features in each box and runs the remaining layers on them.

        `boxes` is float32 `[k, 4]` in units of feature-map cells.
        """
        bins = roi_pool(feature_map, boxes, self.output_size)
        if self.head is None:
            return tf.reduce_mean(bins, axis=[1, 2])
        return tf.cast(self.head(bins, training=False), tf.float32)

    def __call__(self, pixels, boxes) -> np.ndarray:
        """Computes features `[k, dim]` of the boxes `[k, 4]` in a photo.

        `pixels` is `[height, width, 3]`, RGB in [0, 255], upright.
        """
        pixels = tf.cast(pixels, tf.float32)
        cells = self._map(pixels)
        scale = [m / n for m, n in zip(cells.shape[1::-1], pixels.shape[1::-1])]
        boxes = check_boxes(boxes) * (scale * 2)
        return _in_blocks(self._pooled, cells, boxes, POOLED_AT_ONCE, self.dim)


EXTRACTORS = {
    "warp": WarpFeatures,
    "roi_pool": RoiFeatures,
    "roi_average": AveragedFeatures,
}
"""Extractor classes by name. An extractor maps (pixels, boxes) to features."""


def _in_blocks(function, picture, boxes, size, dim):
    boxes = tf.constant(check_boxes(boxes), tf.float32)
    starts = range(0, len(boxes), size)
    blocks = [boxes[start : start + size] for start in starts]
    parts = [function(picture, block).numpy() for block in blocks]
    return np.concatenate([np.zeros((0, dim), np.float32), *parts])


def _cut(network, layer, output):
    """Returns (head, map to pool, bins per side that it needs or None)."""
    layers = keras.layers
    joints = (layers.Flatten, layers.GlobalAveragePooling2D)
    joint = next((x for x in network.layers if isinstance(x, joints)), None)
    try:
        bins = joint.input
        head = keras.Model(bins, output)
    except (AttributeError, ValueError) as error:
        expected = "output maps, or follow the layer that flattens them"
        raise InputError("layer", expected, layer) from error
    if isinstance(joint, layers.GlobalAveragePooling2D):
        return head, bins, None
    pools = [x for x in network.layers if isinstance(x, layers.MaxPooling2D)]
    map_output = next((x.input for x in pools if x.output is bins), bins)
    return head, map_output, int(bins.shape[1])


def _any_size(network, output):
    """Returns the part of a network up to `output`, for photos of any size."""
    fixed = keras.Model(network.inputs[0], output)
    photo = keras.Input((None, None, 3))
    free = keras.models.clone_model(fixed, input_tensors=photo)
    free.set_weights(fixed.get_weights())
    return free


def open_averaged_features(description, weights):
    """Builds the `AveragedFeatures` that extracted a store's features."""
    cnn = build_described_cnn(description, weights)
    names = "layers", "geometry", "grids", "scales"
    return AveragedFeatures(cnn, *(description[name] for name in names))
