"""Reads the headers of JPEG and PNG files in a TensorFlow graph.

The photo's format, size and EXIF orientation are read before memory is
allocated for the pixels.
"""

import functools

import tensorflow as tf

from tbnets.data import pictures

_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD_BYTES = 24  # The signature, and the start of the chunk IHDR.
TOO_LARGE = "pixels; scale it down. Received width and height:"
"""The part of an error message by which `images` recognises the error."""
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
        f"`image_bytes` must be a photo of at most {max_pixels} {TOO_LARGE}",
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
