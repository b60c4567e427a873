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
from tbnets.data import archives, pictures
from tbnets.data.pictures import (
    ROOM,
    SCALES,
    BrokenImageError,
    read_content,
)
from tbnets.startup import usable_cores

_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD_BYTES = 24  # The signature, and the start of the chunk IHDR.
_TOO_LARGE = "pixels; scale it down. Received width and height:"
"""The part of an error message by which `_reason` recognises the error."""
UPRIGHT = 1
_ORIENTATION_TAG = 0x0112
_EXIF_BYTES = 1 << 17
_MOST_ENTRIES = 1 << 10


def require(value, condition, expectation, received):
    """Returns `value` after asserting the scalar bool `condition` in the graph.

    If the assertion fails, the error contains `expectation` and the tensor
    `received`.
    """
    check = tf.raw_ops.Assert(condition=condition, data=[expectation, received])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(value)


def is_jpeg(image_bytes):
    """Returns whether each file's content starts like a JPEG file."""
    start = tf.strings.substr(image_bytes, 0, len(_JPEG_START))
    return tf.equal(start, _JPEG_START)


def is_known(image_bytes):
    """Returns, for each file, whether it starts like a JPEG or PNG file."""
    start = tf.strings.substr(image_bytes, 0, len(_PNG_START))
    return is_jpeg(image_bytes) | tf.equal(start, _PNG_START)


def read_sides(image_bytes, max_pixels=None):
    """Reads the stored width and height of a photo, int64 `[2]`.

    `image_bytes` is string `[]`. Raises tf.errors.InvalidArgumentError if the
    file is not a photo or has more than `max_pixels` pixels (by default
    `pictures.MAX_PIXELS`).
    """
    max_pixels = pictures.MAX_PIXELS if max_pixels is None else max_pixels
    sides = tf.cond(
        is_jpeg(image_bytes),
        lambda: tf.io.extract_jpeg_shape(image_bytes, tf.int64)[1::-1],
        lambda: _png_sides(image_bytes),
    )
    return require(
        sides,
        tf.reduce_prod(tf.cast(sides, tf.float64)) <= max_pixels,
        f"`image_bytes` must be a photo of at most {max_pixels} {_TOO_LARGE}",
        sides,
    )


def read_upright_sides(image_bytes):
    """Reads the width and height of a photo after its EXIF rotation."""
    sides = read_sides(image_bytes)
    # Orientations 5 to 8 swap width and height.
    return tf.where(orientation(image_bytes) > 4, sides[::-1], sides)


def small_enough(image_bytes, max_pixels=None):
    """Returns (content, sides) of a photo after the checks in `read_sides`."""
    sides = read_sides(image_bytes, max_pixels)
    with tf.control_dependencies([sides]):
        return tf.identity(image_bytes), sides


def _png_sides(image_bytes):
    head = tf.strings.substr(image_bytes, 0, _PNG_HEAD_BYTES)
    head = tf.strings.join([head, bytes(_PNG_HEAD_BYTES)])
    start = tf.strings.substr(head, 0, len(_PNG_START))
    head = require(
        head,
        (start == _PNG_START) & (tf.strings.substr(head, 12, 4) == b"IHDR"),
        "`image_bytes` must be the content of a JPEG or PNG file; convert it. "
        "Received another kind, of so many bytes:",
        tf.strings.length(image_bytes),
    )
    sides = tf.strings.substr(head, 16, 8)
    sides = tf.io.decode_raw(sides, tf.int32, little_endian=False)
    return tf.cast(tf.bitcast(sides, tf.uint32), tf.int64)


def orientation(image_bytes):
    """Reads the EXIF orientation from the first 128 KiB of a file.

    Returns an int32 scalar from 1 to 8. It is 1 (upright) if the file is not a
    JPEG, or if its orientation is missing or invalid.

    Source: JEITA CP-3451, "Exif", Sec. 4.6.
    """
    head = tf.strings.substr(image_bytes, 0, _EXIF_BYTES)
    # `tf.strings.split` would create a ragged tensor.
    split = tf.raw_ops.StringSplitV2
    pieces = split(input=[head], sep=b"Exif\x00\x00", maxsplit=1)
    parts = tf.concat([pieces.values, ["", ""]], axis=0)
    before, after = parts[0], parts[1]
    # The marker and the length of the segment precede its name.
    mark_at = tf.maximum(tf.strings.length(before) - 4, 0)
    is_exif = (
        (tf.strings.substr(head, 0, 2) == b"\xff\xd8")
        & (tf.strings.substr(before, mark_at, 2) == b"\xff\xe1")
        & (tf.strings.length(after) > 0)
    )
    return tf.cond(
        is_exif, lambda: _read_orientation(after), lambda: tf.constant(UPRIGHT)
    )


def _read_orientation(tiff):
    data = tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int32)
    data = tf.concat([data, [0]], axis=0)
    end = tf.size(data) - 1
    little = data[0] == 0x49  # "II" is little-endian, "MM" big-endian.

    def number(places):
        # Reads a 16-bit number at each offset, or 0 beyond the end.
        first = tf.gather(data, tf.clip_by_value(places, 0, end))
        second = tf.gather(data, tf.clip_by_value(places + 1, 0, end))
        return tf.where(little, first + 256 * second, second + 256 * first)

    # The lower half of the 32-bit offset suffices for a block of 64 KiB.
    directory = number(tf.where(little, 4, 6))
    count = tf.minimum(number(directory), _MOST_ENTRIES)
    entries = directory + 2 + 12 * tf.range(count)
    is_it = number(entries) == _ORIENTATION_TAG
    values = tf.boolean_mask(number(entries + 8), is_it)
    value = tf.concat([values, [UPRIGHT]], axis=0)[0]
    return tf.where((value >= 1) & (value <= 8), value, UPRIGHT)


def upright(pixels, value):
    """Rotates or flips pixels `[height, width, channels]` to be upright.

    `value` is the EXIF orientation, from 1 to 8.
    """

    def turn(number):
        rows, columns = ((1, 1), (1, -1), (-1, -1), (-1, 1))[number % 4]
        outputs = pixels if number < 4 else tf.transpose(pixels, [1, 0, 2])
        return outputs[::rows, ::columns]

    turns = [functools.partial(turn, number) for number in range(8)]
    return tf.switch_case(value - 1, turns)


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
    image_bytes, sides = small_enough(image_bytes)
    # This op also reads PNG.
    decode = functools.partial(tf.io.decode_jpeg, image_bytes, 3)
    if side is None:
        image = decode()
    else:
        has_room = is_jpeg(image_bytes) & (
            tf.reduce_min(sides)
            >= [scale * ROOM * side for scale in SCALES[1:]]
        )
        image = tf.switch_case(
            tf.reduce_sum(tf.cast(has_room, tf.int32)),
            [functools.partial(decode, scale) for scale in SCALES],
        )
    return upright(image, orientation(image_bytes))


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
        tf.strings.regex_full_match(path, archives.INSIDE),
        lambda: _in_python(archives.read_bytes, path),
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
        tf.reduce_any(tf.strings.regex_full_match(paths, archives.INSIDE)),
        lambda: _in_python(np.vectorize(archives.read_bytes, "O"), paths),
        lambda: tf.map_fn(tf.io.read_file, paths),
    )
    return tf.cond(
        tf.reduce_all(is_known(contents)),
        lambda: contents,
        lambda: tf.map_fn(_decodable, contents),
    )


def _decodable(content):
    return tf.cond(
        is_known(content),
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
        sizes.append(_judged(path, read_upright_sides))
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
    if not is_known(content):
        return pictures.convert(content)[1]
    if _TOO_LARGE in error.message:
        width, height = read_sides(content, math.inf).numpy()
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
