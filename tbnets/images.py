"""Encoded photos -> pixels, by one function for training and serving.

`decode_image` runs in the graph, so the exported model decodes and resizes
exactly as the training input did. `load_image` is the same function for a
file on the host, with errors that name the file.
"""

import io
import pathlib
import re
import struct

import numpy as np
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

from tbnets import exif

MAX_PIXELS = 80_000_000
_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD_BYTES = 24  # The start, then of chunk IHDR length, name and sides.
PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png")


class BrokenImageError(ValueError):
    """A file that is no whole photo.

    Args:
        path: the file.
        reason: what is wrong with it, a few words after "which".
        expected: what it must be.
    """

    def __init__(self, path, reason, expected="a whole JPEG or PNG file"):
        super().__init__(
            f"`path` must name {expected}. Received: path='{path}', which "
            f"{reason}. Replace or remove the file."
        )
        self.path = path
        self.reason = reason


def decode_image(image_bytes, image_size):
    """Decodes one photo and resizes it to a square, in the graph.

    Greyscale is repeated over the three channels, an alpha channel is
    dropped. The aspect ratio is not kept: the whole photo is squeezed into
    the square, so nothing at the border is lost. The resize is bilinear with
    antialiasing; a photo that has the size already is left alone. A JPEG is
    turned upright by its EXIF orientation; CMYK becomes RGB.

    A file of another kind, or of more than `MAX_PIXELS` pixels, is refused by
    its first bytes, before memory is asked for.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        image_size: side of the square, in pixels.

    Returns:
        float32 `[image_size, image_size, 3]`, RGB in [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no whole JPEG or PNG
            file, or one too large.
    """
    with tf.control_dependencies(_check_head(image_bytes)):
        image = tf.io.decode_image(
            image_bytes, channels=3, expand_animations=False
        )
    image = exif.upright(image, exif.orientation(image_bytes))
    size = [image_size, image_size]
    image = tf.cond(
        tf.reduce_all(tf.shape(image)[:2] == size),
        lambda: tf.cast(image, tf.float32),
        lambda: tf.image.resize(image, size, "bilinear", antialias=True),
    )
    return tf.ensure_shape(image, [image_size, image_size, 3])


def _check_head(image_bytes):
    """Refuses what is no photo or too large a one, in the graph.

    Returns:
        list of the ops that must run before the photo is decoded.
    """
    start = tf.strings.substr(image_bytes, 0, len(_JPEG_START))
    sides = tf.cond(
        tf.equal(start, _JPEG_START),
        lambda: tf.io.extract_jpeg_shape(image_bytes, tf.int64)[1::-1],
        lambda: _png_sides(image_bytes),
    )
    num_pixels = tf.reduce_prod(tf.cast(sides, tf.float64))
    return _require(
        num_pixels <= MAX_PIXELS,
        f"`image_bytes` must be a photo of at most {MAX_PIXELS} pixels; scale "
        "it down. Received width and height:",
        sides,
    )


def _png_sides(image_bytes):
    """Returns width and height of what is no JPEG and so must be a PNG."""
    head = tf.strings.substr(image_bytes, 0, _PNG_HEAD_BYTES)
    head = tf.strings.join([head, bytes(_PNG_HEAD_BYTES)])
    start = tf.strings.substr(head, 0, len(_PNG_START))
    is_png = _require(
        (start == _PNG_START) & (tf.strings.substr(head, 12, 4) == b"IHDR"),
        "`image_bytes` must be the content of a JPEG or PNG file; convert it. "
        "Received another kind, of so many bytes:",
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


def decode_images(image_bytes, image_size):
    """Decodes a batch of photos; see `decode_image`.

    Args:
        image_bytes: string `[num_images]`; `num_images` may be 0.
        image_size: side of the square, in pixels.

    Returns:
        float32 `[num_images, image_size, image_size, 3]`, RGB in [0, 255].
    """
    return tf.map_fn(
        lambda one: decode_image(one, image_size),
        tf.convert_to_tensor(image_bytes, tf.string),
        fn_output_signature=tf.TensorSpec(
            [image_size, image_size, 3], tf.float32
        ),
    )


def list_photos(folder):
    """Returns the paths of all photos in a folder, sorted."""
    paths = pathlib.Path(folder).rglob("*")
    found = sorted(p for p in paths if p.suffix.lower() in PHOTO_SUFFIXES)
    if not found:
        raise FileNotFoundError(
            f"`--images` must be a folder of {', '.join(PHOTO_SUFFIXES)} files."
            f" Received: --images={folder}, which has none. Check the path."
        )
    return found


def read_image_bytes(path):
    """Reads a photo's file and checks its header before it is decoded.

    Args:
        path: JPEG or PNG file.

    Returns:
        bytes, the content of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        BrokenImageError: If it is not a JPEG or PNG file, or has more than
            `MAX_PIXELS` pixels.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"`path` must name a photo. Received: path='{path}', which is not "
            "a file. Check the image folder."
        )
    try:
        with PIL.Image.open(path, formats=("JPEG", "PNG")) as image:
            width, height = image.size
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        # Pillow names the file as well, which the error does.
        reason = str(error).replace(f" '{path}'", " it")
        raise BrokenImageError(path, f"does not decode: {reason}") from error
    if width * height > MAX_PIXELS:
        raise BrokenImageError(
            path,
            f"has {width} x {height} pixels",
            f"a photo of at most {MAX_PIXELS} pixels",
        )
    return path.read_bytes()


def load_image(path, image_size):
    """Reads, decodes and resizes one photo.

    Args:
        path: JPEG or PNG file.
        image_size: side of the square, in pixels.

    Returns:
        float32 NumPy array `[image_size, image_size, 3]`, RGB in [0, 255].

    Raises:
        FileNotFoundError: If there is no such file.
        BrokenImageError: If the file is truncated, not a photo or too large.
    """
    content = read_image_bytes(path)
    try:
        return decode_image(content, image_size).numpy()
    except tf.errors.InvalidArgumentError as error:
        reason = re.sub(r"\{\{.*\}\} | \[Op:\w+\]", "", error.message)
        reason = f"does not decode: {reason.rstrip('.')}"
        raise BrokenImageError(path, reason) from error


def read_photo(path) -> np.ndarray:
    """Reads a photo as it is meant to be seen, at its own size.

    It is turned upright by its EXIF orientation and becomes RGB: grey is
    repeated, an alpha channel dropped.

    Args:
        path: JPEG or PNG file.

    Returns:
        uint8 `[height, width, 3]`.

    Raises:
        FileNotFoundError: there is no such file.
        BrokenImageError: it does not decode, or is too large.
    """
    content = read_image_bytes(path)
    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            upright = PIL.ImageOps.exif_transpose(image)
            if upright.mode.startswith("I"):  # 16 bits, which would be cut.
                grey = (np.asarray(upright) >> 8).astype(np.uint8)
                upright = PIL.Image.fromarray(grey)
            return np.asarray(upright.convert("RGB"))
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        reason = f"does not decode: {error}"
        raise BrokenImageError(path, reason) from error
