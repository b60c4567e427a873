"""What the first bytes of a photo tell, before memory is asked for.

Its kind and its sides, and the EXIF orientation of a JPEG: cameras store what
the sensor saw and note how it was held; a picture that is not turned upright
is another picture to a network. Everything here runs in the graph.
"""

import functools

import tensorflow as tf

MAX_PIXELS = 80_000_000
_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD_BYTES = 24  # The start, then of chunk IHDR length, name and sides.
TOO_LARGE = "pixels; scale it down. Received width and height:"
NO_PHOTO = "convert it. Received another kind, of so many bytes:"
"""Parts of the two errors here, by which they are known again."""
UPRIGHT = 1
_ORIENTATION_TAG = 0x0112
_EXIF_BYTES = 1 << 17
_MOST_ENTRIES = 1 << 10


def require(value, condition, expectation, received):
    """Returns a value, once a condition holds.

    Args:
        value: tensor.
        condition: bool `[]`.
        expectation: what is told where it does not hold, with
        received: a tensor.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs.
    """
    check = tf.raw_ops.Assert(condition=condition, data=[expectation, received])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(value)


def is_jpeg(image_bytes):
    """Tells whether contents begin as JPEG files do: string of any shape."""
    start = tf.strings.substr(image_bytes, 0, len(_JPEG_START))
    return tf.equal(start, _JPEG_START)


def is_known(image_bytes):
    """Tells whether contents begin as JPEG or PNG files do, of any shape."""
    start = tf.strings.substr(image_bytes, 0, len(_PNG_START))
    return is_jpeg(image_bytes) | tf.equal(start, _PNG_START)


def read_sides(image_bytes, max_pixels=None):
    """Reads width and height of a photo as it is stored.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        max_pixels: how many pixels it may have; None for `MAX_PIXELS`.

    Returns:
        int64 `[2]`. What depends on them comes after the check.

    Raises:
        tf.errors.InvalidArgumentError: the first bytes are not those of a
            photo, or of one too large.
    """
    max_pixels = MAX_PIXELS if max_pixels is None else max_pixels
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
    """Reads width and height of a photo as it is meant to be seen.

    As `read_sides`, with the EXIF orientation of a JPEG undone.
    """
    sides = read_sides(image_bytes)
    # From 5 on, orientations are turned by a quarter.
    return tf.where(orientation(image_bytes) > 4, sides[::-1], sides)


def small_enough(image_bytes, max_pixels=None):
    """Returns the content of a photo and its sides, once these are allowed.

    Args and errors are those of `read_sides`.
    """
    sides = read_sides(image_bytes, max_pixels)
    with tf.control_dependencies([sides]):
        return tf.identity(image_bytes), sides


def _png_sides(image_bytes):
    """Returns width and height of what is no JPEG and so must be a PNG."""
    head = tf.strings.substr(image_bytes, 0, _PNG_HEAD_BYTES)
    head = tf.strings.join([head, bytes(_PNG_HEAD_BYTES)])
    start = tf.strings.substr(head, 0, len(_PNG_START))
    head = require(
        head,
        (start == _PNG_START) & (tf.strings.substr(head, 12, 4) == b"IHDR"),
        f"`image_bytes` must be the content of a JPEG or PNG file; {NO_PHOTO}",
        tf.strings.length(image_bytes),
    )
    sides = tf.strings.substr(head, 16, 8)
    sides = tf.io.decode_raw(sides, tf.int32, little_endian=False)
    return tf.cast(tf.bitcast(sides, tf.uint32), tf.int64)


def orientation(image_bytes):
    """Reads the orientation from the first 128 KiB of a file.

    Args:
        image_bytes: string `[]`, the content of an image file.

    Returns:
        int32 `[]` in 1..8; 1 (upright) where nothing or nonsense is noted,
        and for files that are no JPEG.

    Source: JEITA CP-3451, "Exif", Sec. 4.6.
    """
    head = tf.strings.substr(image_bytes, 0, _EXIF_BYTES)
    # The op alone: `tf.strings.split` would make a ragged tensor of it.
    split = tf.raw_ops.StringSplitV2
    found = split(input=[head], sep=b"Exif\x00\x00", maxsplit=1)
    parts = tf.concat([found.values, ["", ""]], axis=0)
    before, after = parts[0], parts[1]
    # The mark of the segment and its length stand before the name.
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
    """Looks the tag up in the first directory of a TIFF block."""
    data = tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int32)
    data = tf.concat([data, [0]], axis=0)
    end = tf.size(data) - 1
    little = data[0] == 0x49  # "I" of "II"; else "MM"

    def number(places):
        """Reads a number of 16 bits at each place; 0 beyond the end."""
        first = tf.gather(data, tf.clip_by_value(places, 0, end))
        second = tf.gather(data, tf.clip_by_value(places + 1, 0, end))
        return tf.where(little, first + 256 * second, second + 256 * first)

    # Of an offset of 32 bits the lower half is enough: a block is smaller.
    directory = number(tf.where(little, 4, 6))
    count = tf.minimum(number(directory), _MOST_ENTRIES)
    entries = directory + 2 + 12 * tf.range(count)
    is_it = number(entries) == _ORIENTATION_TAG
    values = tf.boolean_mask(number(entries + 8), is_it)
    value = tf.concat([values, [UPRIGHT]], axis=0)[0]
    return tf.where((value >= 1) & (value <= 8), value, UPRIGHT)


def upright(pixels, value):
    """Turns a picture upright.

    Args:
        pixels: `[height, width, channels]` as stored.
        value: int32 `[]`, the orientation in 1..8.

    Returns:
        `[height, width, channels]`, or `[width, height, channels]` where
        the orientation is 5 or more.
    """

    def turn(number):
        rows, columns = ((1, 1), (1, -1), (-1, -1), (-1, 1))[number % 4]
        outputs = pixels if number < 4 else tf.transpose(pixels, [1, 0, 2])
        return outputs[::rows, ::columns]

    turns = [functools.partial(turn, number) for number in range(8)]
    return tf.switch_case(value - 1, turns)
