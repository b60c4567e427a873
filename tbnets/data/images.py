"""Decodes photos, and defines which files are valid photos.

A photo is valid if its content is that of a JPEG or PNG file, it has at most
`pictures.MAX_PIXELS` pixels, and it decodes completely. `decode_photo` checks
this in the graph, so that exported models decode photos as training does.
"""

import concurrent.futures
import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tbnets.checks import Array, Photo, checked_number, refuse_single
from tbnets.data import archives, pictures
from tbnets.data.pictures import (
    JPEG_START,
    ORIENTATION_TAG,
    PNG_START,
    ROOM,
    SCALES,
    BrokenImageError,
    read_content,
)
from tbnets.startup import usable_cores

_PNG_HEAD_BYTES = 24  # The signature, and the start of the chunk IHDR.
_TOO_LARGE = "pixels; scale it down. Received width and height:"
"""The part of an error message by which `_judged` recognises the error."""
UPRIGHT = 1
_KINDS = (3, 8), (4, 9)
"""The types, unsigned and signed, of TIFF values of 16 and of 32 bits."""
_SEGMENT_HEAD = 10
_MOST_SEGMENTS = 1 << 12


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
    start = tf.strings.substr(image_bytes, 0, len(JPEG_START))
    return tf.equal(start, JPEG_START)


def is_known(image_bytes):
    """Returns, for each file, whether it starts like a JPEG or PNG file."""
    start = tf.strings.substr(image_bytes, 0, len(PNG_START))
    return is_jpeg(image_bytes) | tf.equal(start, PNG_START)


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
    start = tf.strings.substr(head, 0, len(PNG_START))
    head = require(
        head,
        (start == PNG_START) & (tf.strings.substr(head, 12, 4) == b"IHDR"),
        "`image_bytes` must be the content of a JPEG or PNG file; convert it. "
        "Received another kind, of so many bytes:",
        tf.strings.length(image_bytes),
    )
    sides = tf.strings.substr(head, 16, 8)
    sides = tf.io.decode_raw(sides, tf.int32, little_endian=False)
    return tf.cast(tf.bitcast(sides, tf.uint32), tf.int64)


def orientation(image_bytes):
    """Reads the EXIF orientation of a JPEG or PNG file.

    `image_bytes` is string `[]`. Returns an int32 scalar from 1 to 8. It is 1
    (upright) if the first `_MOST_SEGMENTS` segments of the file contain no
    valid orientation.

    Sources: JEITA CP-3451, "Exif", Sec. 4.5 and 4.6; W3C, "PNG", Sec. 11.3.
    """
    return _traced_orientation()(image_bytes)


@functools.cache
def _traced_orientation():
    # Tracing takes a quarter of a second, most of the time in which a graph
    # that decodes photos is traced. So all graphs call one function.
    spec = tf.TensorSpec([], tf.string)
    with tf.init_scope():
        function = tf.function(_orientation, [spec], autograph=False)
        return function.get_concrete_function()


def _orientation(image_bytes):
    exif = tf.cond(
        is_jpeg(image_bytes),
        lambda: _find_exif(image_bytes, b"Exif\x00\x00", 2, _jpeg_segment),
        lambda: _find_exif(image_bytes, b"eXIf", 8, _png_chunk),
    )
    return tf.cond(
        tf.strings.length(exif) > 0,
        lambda: _read_orientation(exif),
        lambda: tf.constant(UPRIGHT),
    )


def _find_exif(image_bytes, name, start, read_segment):
    """Returns the EXIF data of a file, or "" if it has none.

    The data follow `name`, and the first segment is at byte `start`.
    `read_segment` takes the first `_SEGMENT_HEAD` bytes of a segment. It
    returns int64 scalars and a bool: (length of the segment, whether it is the
    last, place of its EXIF data, their length or 0), in bytes.
    """
    # Reading all segments takes 20 us each. `tf.strings.split` would create a
    # ragged tensor.
    pieces = tf.raw_ops.StringSplitV2(input=[image_bytes], sep=name, maxsplit=1)
    has_name = tf.size(pieces.values) > 1
    size = tf.cast(tf.strings.length(image_bytes), tf.int64)

    def step(place, _):
        head = tf.strings.substr(image_bytes, place, _SEGMENT_HEAD)
        length, is_last, exif_at, exif_bytes = read_segment(head)
        exif = tf.strings.substr(image_bytes, place + exif_at, exif_bytes)
        is_last |= exif_bytes > 0
        return tf.where(is_last, size, place + length), exif

    _, exif = tf.while_loop(
        lambda place, _: has_name & (place <= size - _SEGMENT_HEAD),
        step,
        (tf.constant(start, tf.int64), tf.constant(b"")),
        maximum_iterations=_MOST_SEGMENTS,
    )
    return exif


def _jpeg_segment(head):
    words = tf.io.decode_raw(head, tf.uint16, little_endian=False)
    words = tf.cast(words, tf.int64)
    marker, length = words[0], words[1] + 2
    # Bytes 0xFF may fill the place before a marker. Markers D0 to D8 are alone.
    length = tf.where(tf.abs(marker - 0xFFD4) <= 4, _int64(2), length)
    is_segment = (marker > 0xFF00) & (marker < 0xFFFF)
    length = tf.where(is_segment, length, _int64(1))
    # Pixels follow the last marker. Other bytes begin no segment.
    is_last = (marker == 0xFFD9) | (marker == 0xFFDA) | (marker <= 0xFF00)
    is_exif = tf.strings.substr(head, 4, 6) == b"Exif\x00\x00"
    is_exif &= (marker == 0xFFE1) & (length > _SEGMENT_HEAD)
    exif_bytes = tf.where(is_exif, length - _SEGMENT_HEAD, _int64(0))
    return length, is_last, _SEGMENT_HEAD, exif_bytes


def _png_chunk(head):
    numbers = tf.io.decode_raw(
        tf.strings.substr(head, 0, 8), tf.int32, little_endian=False
    )
    length, kind = tf.cast(tf.maximum(numbers[0], 0), tf.int64), numbers[1]
    is_exif = kind == int.from_bytes(b"eXIf", "big")
    exif_bytes = tf.where(is_exif, length, _int64(0))
    # A checksum of 4 bytes ends a chunk.
    return length + 12, kind == int.from_bytes(b"IEND", "big"), 8, exif_bytes


def _int64(number):
    return tf.constant(number, tf.int64)


def _integers(content):
    return tf.cast(tf.io.decode_raw(content, tf.uint8), tf.int64)


def _number(digits, num_bytes, is_little=False):
    """Reads unsigned numbers whose bytes are the last axis of `digits`."""
    weights = tf.constant([256**i for i in range(num_bytes)], tf.int64)
    weights = tf.where(is_little, weights, weights[::-1])
    return tf.reduce_sum(digits * weights, axis=-1)


def _read_orientation(exif):
    """Reads the orientation in the first directory of a TIFF structure."""
    is_little = tf.strings.substr(exif, 0, 4) == b"II*\x00"
    is_tiff = is_little | (tf.strings.substr(exif, 0, 4) == b"MM\x00*")
    size = tf.cast(tf.strings.length(exif), tf.int64)

    def rows(place, row_bytes, count):
        # Rows beyond the end are left out.
        place = tf.minimum(size, place)
        count = tf.minimum((size - place) // row_bytes, count)
        content = tf.strings.substr(exif, place, count * row_bytes)
        return tf.reshape(_integers(content), [-1, row_bytes])

    def number(rows, start, end):
        return _number(rows[:, start:end], end - start, is_little)

    place = tf.reduce_sum(number(rows(4, 4, 1), 0, 4))
    count = tf.reduce_sum(number(rows(place, 2, 1), 0, 2))
    entries = rows(place + 2, 12, count)
    kind, count = number(entries, 2, 4), number(entries, 4, 8)
    is_short, is_long = (
        (kind == unsigned) | (kind == signed) for unsigned, signed in _KINDS
    )
    short, long = number(entries, 8, 10), number(entries, 8, 12)
    values = tf.where(is_short, short, long)
    # Otherwise, the entry contains a place instead of the values.
    fits = (is_short & (count <= 2)) | (is_long & (count <= 1))
    is_orientation = number(entries, 0, 2) == ORIENTATION_TAG
    is_valid = is_tiff & is_orientation & fits & (count > 0)
    values = tf.boolean_mask(values, is_valid)
    value = tf.concat([[UPRIGHT], tf.cast(values, tf.int32)], axis=0)[-1]
    return tf.where((value >= 1) & (value <= 8), value, UPRIGHT)


def upright(pixels, value):
    """Rotates or flips pixels `[height, width, channels]` to be upright.

    `value` is the EXIF orientation, from 1 to 8.
    """
    steps = tf.gather([[1, 1], [1, -1], [-1, -1], [-1, 1]], (value - 1) % 4)
    turned = tf.cond(
        value > 4, lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels
    )
    pixels = turned[:: steps[0], :: steps[1]]
    return tf.ensure_shape(pixels, [None, None, turned.shape[-1]])


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
    return read_files(tf.expand_dims(path, 0))[0]


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

    Accepts the inputs of `read_content`. Raises BrokenImageError if the
    file is not a photo.
    """
    return _judged(photo, _graph(decode_photo))


@functools.cache
def _graph(function):
    # A graph takes a third of the time of the separate ops.
    spec = tf.TensorSpec([], tf.string)
    return tf.function(function, [spec], autograph=False)


def read_photo_sizes(paths) -> np.ndarray:
    """Reads the width and height of each photo when upright, int64 `[n, 2]`.

    Does not decode the photos. Raises BrokenImageError if the header of a file
    is invalid or the photo is too large.
    """
    sizes = []
    for path in paths:
        sizes.append(_judged(path, _graph(read_upright_sides)))
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
    if not content.startswith((JPEG_START, PNG_START)):
        pictures.convert(photo, content)  # Raises an error with the reason.
    try:
        return decode(content).numpy()
    except tf.errors.InvalidArgumentError as error:
        reason = "does not decode"
        if _TOO_LARGE in error.message:
            width, height = read_sides(content, math.inf).numpy()
            most = pictures.MAX_PIXELS
            reason = f"has {width} x {height} pixels, more than {most}"
        raise BrokenImageError(photo, reason) from error


def faults(paths):
    """Yields the result of `fault_of` for each path, computed in parallel."""
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(fault_of, paths)
