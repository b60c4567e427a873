"""What the first bytes of a photo tell, before memory is asked for.

Everything here runs in the graph.
"""

import tensorflow as tf

from tbnets import exif

MAX_PIXELS = 80_000_000
_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD_BYTES = 24  # The start, then of chunk IHDR length, name and sides.
TOO_LARGE = "pixels; scale it down. Received width and height:"
NO_PHOTO = "convert it. Received another kind, of so many bytes:"
"""Parts of the two errors here, by which they are known again."""


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
    is_small = _require(
        tf.reduce_prod(tf.cast(sides, tf.float64)) <= max_pixels,
        f"`image_bytes` must be a photo of at most {max_pixels} {TOO_LARGE}",
        sides,
    )
    with tf.control_dependencies(is_small):
        return tf.identity(sides)


def read_upright_sides(image_bytes):
    """Reads width and height of a photo as it is meant to be seen.

    As `read_sides`, with the EXIF orientation of a JPEG undone.
    """
    sides = read_sides(image_bytes)
    # From 5 on, orientations are turned by a quarter.
    turned = exif.orientation(image_bytes) > 4
    return tf.where(turned, sides[::-1], sides)


def _png_sides(image_bytes):
    """Returns width and height of what is no JPEG and so must be a PNG."""
    head = tf.strings.substr(image_bytes, 0, _PNG_HEAD_BYTES)
    head = tf.strings.join([head, bytes(_PNG_HEAD_BYTES)])
    start = tf.strings.substr(head, 0, len(_PNG_START))
    is_png = _require(
        (start == _PNG_START) & (tf.strings.substr(head, 12, 4) == b"IHDR"),
        f"`image_bytes` must be the content of a JPEG or PNG file; {NO_PHOTO}",
        tf.strings.length(image_bytes),
    )
    with tf.control_dependencies(is_png):
        sides = tf.strings.substr(head, 16, 8)
    sides = tf.io.decode_raw(sides, tf.int32, little_endian=False)
    return tf.cast(tf.bitcast(sides, tf.uint32), tf.int64)


def _require(condition, expectation, found):
    """Raises unless a condition holds, when the graph runs.

    Returns:
        list of the ops that check it, none in eager mode.
    """
    check = tf.raw_ops.Assert(condition=condition, data=[expectation, found])
    return [] if check is None else [check]
