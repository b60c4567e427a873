"""Cuts boxes out of photos and feature maps, with TensorFlow."""

import numpy as np
import tensorflow as tf

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
