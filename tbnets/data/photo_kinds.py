"""Checks the format of photos, and converts other formats to PNG.

An exported network decodes only JPEG and PNG. Files of other formats, Pillow
images and pixel arrays are encoded as PNG on the host.
"""

import contextlib
import functools
import importlib
import io
import re

import numpy as np
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

from tbnets.errors import InputError

# These functions run in the graph. They read the header of a photo before
# memory is allocated: its format, its size and the EXIF orientation of a JPEG,
# which is the rotation that makes the stored image upright.

MAX_PIXELS = 80_000_000
_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD_BYTES = 24  # The signature, and the start of the chunk IHDR.
TOO_LARGE = "pixels; scale it down. Received width and height:"
NO_PHOTO = "convert it. Received another kind, of so many bytes:"
"""Fragments of two error messages, which `images` searches for."""
UPRIGHT = 1
_ORIENTATION_TAG = 0x0112
_EXIF_BYTES = 1 << 17
_MOST_ENTRIES = 1 << 10


def require(value, condition, expectation, received):
    """Returns `value` after asserting `condition`, bool `[]`, in the graph.

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
    """Returns whether each file's content starts like a JPEG or PNG file."""
    start = tf.strings.substr(image_bytes, 0, len(_PNG_START))
    return is_jpeg(image_bytes) | tf.equal(start, _PNG_START)


def read_sides(image_bytes, max_pixels=None):
    """Reads the stored width and height of a photo, int64 `[2]`.

    `image_bytes` is string `[]`. Raises tf.errors.InvalidArgumentError if the
    file is not a photo or has more than `max_pixels` (by default `MAX_PIXELS`)
    pixels.
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
        f"`image_bytes` must be the content of a JPEG or PNG file; {NO_PHOTO}",
        tf.strings.length(image_bytes),
    )
    sides = tf.strings.substr(head, 16, 8)
    sides = tf.io.decode_raw(sides, tf.int32, little_endian=False)
    return tf.cast(tf.bitcast(sides, tf.uint32), tf.int64)


def orientation(image_bytes):
    """Reads the EXIF orientation from the first 128 KiB of a file.

    Returns int32 `[]` from 1 to 8, or 1 (upright) if the orientation is missing
    or invalid, or the file is not a JPEG.

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

    `value` is the EXIF orientation, from 1 to 8. Orientations 5 to 8 swap
    height and width.
    """

    def turn(number):
        rows, columns = ((1, 1), (1, -1), (-1, -1), (-1, 1))[number % 4]
        outputs = pixels if number < 4 else tf.transpose(pixels, [1, 0, 2])
        return outputs[::rows, ::columns]

    turns = [functools.partial(turn, number) for number in range(8)]
    return tf.switch_case(value - 1, turns)


_STARTS = {
    "GIF": rb"GIF8",
    "BMP": rb"BM",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II[*+]\x00|MM\x00[*+]",
    "AVIF": rb"....ftypavi[fs]",
    "HEIF": rb"....ftyp(?:he|mif1|msf1)",
    "PDF": rb"%PDF",
}
"""Maps a format to a regular expression for a file's first bytes."""
_CURES = {
    "AVIF": 'convert it, or pip install "pillow>=11.3"',
    "HEIF": "convert it, or pip install pillow-heif",
}


def as_decodable(content: bytes) -> bytes:
    """Converts the content of a file to PNG if a graph cannot decode it.

    Returns the content unchanged if it is a JPEG or PNG, or if Pillow cannot
    read it.
    """
    return convert(content)[0] or content


def convert(content):
    """Converts the content of a file in another format to PNG.

    Returns (content, reason), as `png_of` does.
    """
    starts = _STARTS.items()
    kinds = [k for k, start in starts if re.match(start, content, re.DOTALL)]
    if not kinds:
        return b"", "is of another kind"
    name = kinds[0].upper()
    if not _is_read(name):
        return b"", f"is a {kinds[0]} file: {_CURES.get(name, 'convert it')}"
    try:
        picture = PIL.Image.open(io.BytesIO(content), formats=[name])
    except PIL.Image.DecompressionBombError:
        return b"", f"has more than {MAX_PIXELS} pixels"
    except Exception:  # Pillow raises many types for a damaged header.
        return b"", f"is not a complete {kinds[0]} file"
    if content[12:16] == b"VP8 " and _is_too_short(content, *picture.size):
        return b"", f"is not a complete {kinds[0]} file"
    return png_of(picture)


def _is_too_short(content, width, height):
    # A key frame needs more than 3 bits per block of 16 x 16 pixels (RFC 6386,
    # Sec. 11).
    # Without this check, Pillow allocates the whole picture.
    num_bytes = int.from_bytes(content[16:20], "little")
    return 8 * num_bytes < 3 * (width // 16) * (height // 16)


def _is_read(name):
    if name not in PIL.Image.OPEN:
        PIL.Image.init()
        if name == "HEIF":
            with contextlib.suppress(ImportError):
                importlib.import_module("pillow_heif").register_heif_opener()
    return name in PIL.Image.OPEN


def is_cured(reason: str) -> bool:
    """Returns whether Pillow can now read the format that `reason` names."""
    kind = re.match(r"is a (\w+) file: ", reason)
    return bool(kind) and _is_read(kind[1].upper())


def png_of(picture) -> tuple[bytes, str]:
    """Encodes a `PIL.Image.Image` as PNG, in its upright orientation.

    As when a photo is decoded, alpha is dropped and 16-bit values keep their
    upper 8 bits. Returns (content, reason): the PNG and "", or b"" and a verb
    phrase that explains why the encoding failed.
    """
    width, height = picture.size
    most = MAX_PIXELS
    if not width * height:
        return b"", f"has {width} x {height} pixels"
    if width * height > most:
        return b"", f"has {width} x {height} pixels, more than {most}"
    try:
        picture = PIL.ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I"):
            pixels = np.clip(np.asarray(picture), 0, 2**16 - 1)
            # The maximum shows whether mode I holds 8 or 16 bits.
            if picture.mode != "I" or pixels.max() > 2**8 - 1:
                pixels >>= 8
            picture = PIL.Image.fromarray(pixels.astype(np.uint8))
        if picture.mode == "F":
            return b"", "has floating-point pixels of an unknown range"
        picture.info = {}  # Avoids a warning about palettes.
        pixels = np.asarray(picture.convert("RGB"))
        # The PNG is decoded soon, so compression would waste time.
        return tf.io.encode_png(pixels, compression=0).numpy(), ""
    except Exception as error:  # Pillow raises many types for damaged pixels.
        return b"", f"does not decode: {error}"


def picture_of(pixels):
    """Converts uint8 pixels to a `PIL.Image.Image`.

    Accepts grey `[height, width]` or `[height, width, 1]`, RGB
    `[height, width, 3]` and RGBA `[height, width, 4]`. Raises ValueError for
    any other array.
    """
    is_photo = pixels.ndim == 2 or pixels.shape[2:] in {(1,), (3,), (4,)}
    if pixels.dtype != np.uint8 or not is_photo or not pixels.size:
        raise InputError(
            "photo",
            "be uint8 [height, width, 3], RGB, or [height, width], grey",
            f"{pixels.dtype} {list(pixels.shape)}",
            "Scale and convert it, or pass a path.",
        )
    grey = pixels.shape[2:] == (1,)
    return PIL.Image.fromarray(pixels[..., 0] if grey else pixels)
