"""The EXIF orientation of a JPEG file, read and undone in the graph.

Cameras store what the sensor saw and note how it was held; a picture that is
not turned upright is another picture to a network.
"""

import tensorflow as tf

UPRIGHT = 1
_ORIENTATION_TAG = 0x0112
_HEAD_BYTES = 1 << 17
_MOST_ENTRIES = 1 << 10


def orientation(image_bytes):
    """Reads the orientation from the first 128 KiB of a file.

    Args:
        image_bytes: string `[]`, the content of an image file.

    Returns:
        int32 `[]` in 1..8; 1 (upright) where nothing or nonsense is noted,
        and for files that are no JPEG.

    Source: JEITA CP-3451, "Exif", Sec. 4.6.
    """
    head = tf.strings.substr(image_bytes, 0, _HEAD_BYTES)
    before, after = _split_at_exif(head)
    # The mark of the segment and its length stand before the name.
    mark_at = tf.maximum(tf.strings.length(before) - 4, 0)
    is_exif = (
        (tf.strings.substr(head, 0, 2) == b"\xff\xd8")
        & (tf.strings.substr(before, mark_at, 2) == b"\xff\xe1")
        & (tf.strings.length(after) > 0)
    )
    return tf.cond(
        is_exif,
        lambda: _read_orientation(after),
        lambda: tf.constant(UPRIGHT),
    )


def _split_at_exif(head):
    """Returns what stands before and after the first "Exif", 0, 0."""
    # The op alone: `tf.strings.split` would make a ragged tensor of it.
    split = tf.raw_ops.StringSplitV2(
        input=[head], sep=b"Exif\x00\x00", maxsplit=1
    )
    parts = tf.concat([split.values, ["", ""]], axis=0)
    return parts[0], parts[1]


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
    values = tf.boolean_mask(
        number(entries + 8), number(entries) == _ORIENTATION_TAG
    )
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

    def turn(transposed, flip_rows, flip_columns):
        def apply():
            outputs = tf.transpose(pixels, [1, 0, 2]) if transposed else pixels
            rows, columns = (-1 if f else 1 for f in (flip_rows, flip_columns))
            return outputs[::rows, ::columns]

        return apply

    # What is flipped after the transposition, for 1 to 8.
    flips = ((0, 0), (0, 1), (1, 1), (1, 0), (0, 0), (0, 1), (1, 1), (1, 0))
    return tf.switch_case(
        value - 1, [turn(i >= 4, *flip) for i, flip in enumerate(flips)]
    )
