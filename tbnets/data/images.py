"""Decodes photos, and defines which files are valid photos.

A photo is valid if its content is that of a JPEG or PNG file, it has at most
`pictures.MAX_PIXELS` pixels, and it decodes completely. `decode_photo` checks
this in the graph, so that exported models decode photos as training does.
"""

import concurrent.futures
import functools
import math
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tbnets.checks import Array, Photo, checked_number, refuse_single
from tbnets.data import photo_archives, photo_kinds, pictures
from tbnets.data.pictures import (
    ROOM,
    SCALES,
    BrokenImageError,
    read_content,
)
from tbnets.startup import usable_cores


# AutoGraph would take half a second, and there is no Python branch to convert.
@tf.autograph.experimental.do_not_convert
def decode_photo(image_bytes, side=None):
    """Decodes one photo in its upright orientation, in the graph.

    Greyscale is repeated over the three channels, alpha is dropped, CMYK is
    converted to RGB, and 16-bit values keep their upper 8 bits. Other formats
    and photos with too many pixels are rejected before memory is allocated.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        side: side in pixels to which the photo will be resized; None to decode
            it at full size. A JPEG is decoded at the smallest of the scales 1,
            1/2, 1/4 and 1/8 at which its shorter side is at least `ROOM` times
            `side`.

    Returns:
        uint8 `[height, width, 3]`, RGB.
    """
    image_bytes, sides = photo_kinds.small_enough(image_bytes)
    # This op also reads PNG.
    decode = functools.partial(tf.io.decode_jpeg, image_bytes, 3)
    if side is None:
        image = decode()
    else:
        has_room = photo_kinds.is_jpeg(image_bytes) & (
            tf.reduce_min(sides)
            >= [scale * ROOM * side for scale in SCALES[1:]]
        )
        image = tf.switch_case(
            tf.reduce_sum(tf.cast(has_room, tf.int32)),
            [functools.partial(decode, scale) for scale in SCALES],
        )
    return photo_kinds.upright(image, photo_kinds.orientation(image_bytes))


@tf.autograph.experimental.do_not_convert
def decode_image(image_bytes, image_size):
    """Decodes one photo and resizes it to a square, in the graph.

    Resizing is bilinear with antialiasing and does not keep the aspect ratio.
    `image_size` is either the side in pixels, or a function that maps uint8
    `[height, width, 3]` to float32 `[side, side, 3]` and has an attribute
    `side`.

    Returns:
        float32 `[image_size, image_size, 3]`, RGB in [0, 255].
    """
    if callable(image_size):
        return image_size(decode_photo(image_bytes))
    image = decode_photo(image_bytes, image_size)
    size = [image_size, image_size]
    image = tf.cond(
        tf.reduce_all(tf.shape(image)[:2] == size),
        lambda: tf.cast(image, tf.float32),
        lambda: tf.image.resize(image, size, "bilinear", antialias=True),
    )
    return tf.ensure_shape(image, [image_size, image_size, 3])


@tf.autograph.experimental.do_not_convert
def decode_images(
    image_bytes: Array | Sequence[Photo], image_size: int
) -> tf.Tensor:
    """Decodes a batch of photos and resizes them to squares.

    Args:
        image_bytes: string `[num_images]`, the contents of JPEG or PNG files; a
            list of photos that `read_content` accepts; or an array of pixels.
            `num_images` may be 0.
        image_size: side of the square in pixels. Aspect ratios are not kept.

    Returns:
        float32 `[num_images, image_size, image_size, 3]`, RGB in [0, 255].

    Example:
        tbnets.decode_images(["dog.jpg"], 64).shape  # (1, 64, 64, 3)
    """
    side = getattr(image_size, "side", image_size)
    checked_number("image_size", side, 1, whole=True)
    refuse_single("image_bytes", image_bytes)
    if isinstance(image_bytes, np.ndarray | list | tuple):
        image_bytes = [
            photo if tf.is_tensor(photo) else read_content(photo)
            for photo in image_bytes
        ]
    return tf.map_fn(
        lambda photo: decode_image(photo, image_size),
        tf.convert_to_tensor(image_bytes, tf.string),
        fn_output_signature=tf.TensorSpec([side, side, 3], tf.float32),
    )


@tf.autograph.experimental.do_not_convert
def read_file(path):
    """Reads a photo in the graph of an input pipeline.

    `path` is string `[]`. Formats other than JPEG and PNG are converted to PNG.
    The graph cannot be exported, because it calls Python for these formats and
    for photos in archives.
    """
    content = tf.cond(
        tf.strings.regex_full_match(path, photo_archives.INSIDE),
        lambda: _in_python(photo_archives.read_bytes, path),
        lambda: tf.io.read_file(path),
    )
    return _decodable(content)


@tf.autograph.experimental.do_not_convert
def read_files(paths):
    """Reads a batch of photos, as `read_file` reads a single photo.

    `paths` and the returned contents are string `[batch]`.
    """
    # Calling Python for each photo would take a fifth of the decoding time.
    contents = tf.cond(
        tf.reduce_any(
            tf.strings.regex_full_match(paths, photo_archives.INSIDE)
        ),
        lambda: _in_python(np.vectorize(photo_archives.read_bytes, "O"), paths),
        lambda: tf.map_fn(tf.io.read_file, paths),
    )
    return tf.cond(
        tf.reduce_all(photo_kinds.is_known(contents)),
        lambda: contents,
        lambda: tf.map_fn(_decodable, contents),
    )


def _decodable(content):
    return tf.cond(
        photo_kinds.is_known(content),
        lambda: content,
        lambda: _in_python(pictures.as_decodable, content),
    )


def _in_python(function, value):
    def call(x):  # A scalar is `bytes` in a graph, otherwise an array.
        x = np.asarray(x, object)
        return function(x if x.ndim else x.item())

    value = tf.convert_to_tensor(value)
    result = tf.numpy_function(call, [value], tf.string)
    return tf.ensure_shape(result, value.shape)


def read_photo(photo) -> np.ndarray:
    """Reads a photo as upright RGB pixels, uint8 `[height, width, 3]`.

    Accepts the same inputs as `read_content`. Raises BrokenImageError if the
    file is not a photo.
    """
    return _judged(photo, _decoder())


@functools.cache
def _decoder():
    # A graph takes a third of the time of the separate ops.
    spec = tf.TensorSpec([], tf.string)
    return tf.function(decode_photo, [spec], autograph=False)


def read_photo_sizes(paths) -> np.ndarray:
    """Reads the width and height of each photo when upright, int64 `[n, 2]`.

    Does not decode the photos. Raises BrokenImageError if the header of a file
    is invalid or the photo is too large.
    """
    sizes = []
    for path in paths:
        sizes.append(_judged(path, photo_kinds.read_upright_sides))
        if not sizes[-1].all():
            raise BrokenImageError(path, "has no pixels or is truncated")
    return np.array(sizes, np.int64).reshape(-1, 2)


def fault_of(photo):
    """Returns why `read_photo` rejects a photo, or None for a valid photo."""
    try:
        read_photo(photo)
    except BrokenImageError as error:
        return error.reason
    return None


def _judged(photo, decode):
    content = read_content(photo)
    try:
        return decode(content).numpy()
    except tf.errors.InvalidArgumentError as error:
        raise BrokenImageError(photo, _reason(content, error)) from error


def _reason(content, error):
    if not content:
        return "is empty"
    if not photo_kinds.is_known(content):
        return pictures.convert(content)[1]
    if photo_kinds.TOO_LARGE in error.message:
        width, height = photo_kinds.read_sides(content, math.inf).numpy()
        most = pictures.MAX_PIXELS
        return f"has {width} x {height} pixels, more than {most}"
    # A graph adds the lines of code before the reason, and nodes after it.
    line = error.message.partition("\n\t [[")[0].splitlines()[-1]
    reason = re.sub(r"\{\{.*\}\} | \[Op:\w+\]", "", line)
    return f"does not decode: {reason.rstrip('.')}"


def faults(paths):
    """Yields the result of `fault_of` for each path, computed in parallel."""
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(fault_of, paths)
