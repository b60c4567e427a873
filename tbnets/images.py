"""Encoded photos -> pixels, and the one rule of what a photo is.

A photo is a JPEG or PNG file by its content, whatever its name says, of at
most `MAX_PIXELS` pixels, that decodes whole. `decode_photo` is that rule. It
runs in the graph, so the exported model decodes exactly as the training
input did, and a tool judges a file by no other: `read_photo` is the same
function for a file on the host, `faults` tells what is wrong with files.
"""

import concurrent.futures
import os
import pathlib
import re

import numpy as np
import tensorflow as tf

from tbnets import exif
from tbnets.cores import usable_cores
from tbnets.errors import InputError
from tbnets.errors import MissingFileError
from tbnets.files import BESIDE_SUFFIX

MAX_PIXELS = 80_000_000
_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_HEAD_BYTES = 2**17
"""What is read of a file for the size of its photo, as for its EXIF notes."""
_PNG_HEAD_BYTES = 24  # The start, then of chunk IHDR length, name and sides.
PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png")
_OTHER_KINDS = {
    "GIF": rb"GIF8",
    "BMP": rb"BM",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II\*\x00|MM\x00\*",
    "HEIF or AVIF": rb"....ftyp",
    "PDF": rb"%PDF",
}
"""Kinds of files that are taken for photos -> their start; for messages."""
_TOO_LARGE = "pixels; scale it down. Received width and height:"
_NO_PHOTO = "convert it. Received another kind, of so many bytes:"


class BrokenImageError(InputError):
    """A file that is no photo, or is not there.

    Args:
        path: the file.
        reason: what is wrong with it, a few words after "which".
    """

    def __init__(self, path, reason):
        super().__init__(
            "`path` must name a whole JPEG or PNG file. Received: "
            f"path='{path}', which {reason}. Replace or remove the file."
        )
        self.path = path
        self.reason = reason


def decode_photo(image_bytes):
    """Decodes one photo as it is meant to be seen, at its own size.

    In the graph. Greyscale is repeated over the three channels, an alpha
    channel is dropped, CMYK becomes RGB, of 16 bits the upper 8 are kept. A
    JPEG is turned upright by its EXIF orientation.

    A file of another kind, or of more than `MAX_PIXELS` pixels, is refused by
    its first bytes, before memory is asked for.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.

    Returns:
        uint8 `[height, width, 3]`, RGB.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no whole JPEG or PNG
            file, or one too large.
    """
    with tf.control_dependencies(_check_head(image_bytes)):
        image = tf.io.decode_image(
            image_bytes, channels=3, expand_animations=False
        )
    return exif.upright(image, exif.orientation(image_bytes))


def decode_image(image_bytes, image_size):
    """Decodes one photo and resizes it to a square, in the graph.

    The aspect ratio is not kept: the whole photo is squeezed into the square,
    so nothing at the border is lost. The resize is bilinear with
    antialiasing; a photo that has the size already is left alone.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        image_size: side of the square, in pixels.

    Returns:
        float32 `[image_size, image_size, 3]`, RGB in [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: see `decode_photo`.
    """
    image = decode_photo(image_bytes)
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
    sides = _sides(image_bytes)
    num_pixels = tf.reduce_prod(tf.cast(sides, tf.float64))
    return _require(
        num_pixels <= MAX_PIXELS,
        f"`image_bytes` must be a photo of at most {MAX_PIXELS} {_TOO_LARGE}",
        sides,
    )


def _sides(image_bytes):
    """Returns int64 width and height as a photo's first bytes tell them."""
    start = tf.strings.substr(image_bytes, 0, len(_JPEG_START))
    return tf.cond(
        tf.equal(start, _JPEG_START),
        lambda: tf.io.extract_jpeg_shape(image_bytes, tf.int64)[1::-1],
        lambda: _png_sides(image_bytes),
    )


def _png_sides(image_bytes):
    """Returns width and height of what is no JPEG and so must be a PNG."""
    head = tf.strings.substr(image_bytes, 0, _PNG_HEAD_BYTES)
    head = tf.strings.join([head, bytes(_PNG_HEAD_BYTES)])
    start = tf.strings.substr(head, 0, len(_PNG_START))
    is_png = _require(
        (start == _PNG_START) & (tf.strings.substr(head, 12, 4) == b"IHDR"),
        f"`image_bytes` must be the content of a JPEG or PNG file; {_NO_PHOTO}",
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
    """Returns the paths of all photos in a folder, sorted.

    They are told by their names. A folder is none, whatever it is called; a
    link that leads nowhere is one, so that it is missed. Links to folders are
    not followed, and what `files.folder_beside` keeps there is no photo.
    """
    folder = pathlib.Path(folder)
    paths = folder.rglob("*")
    found = sorted(p for p in paths if p.suffix.lower() in PHOTO_SUFFIXES)
    found = [
        path
        for path in found
        if (path.is_file() or not path.exists())
        and not any(
            part.endswith(BESIDE_SUFFIX)
            for part in path.relative_to(folder).parts[:-1]
        )
    ]
    if not found:
        raise MissingFileError(
            f"`--images` must be a folder of {', '.join(PHOTO_SUFFIXES)} files."
            f" Received: --images={folder}, which has none. Check the path."
        )
    return found


def read_content(path, most=-1) -> bytes:
    """Reads a file that should be a photo, whatever it holds.

    Args:
        path: the file.
        most: how many bytes are read, the first ones; -1: all.

    Raises:
        BrokenImageError: it is not there, or can not be read.
    """
    try:
        if not os.path.isfile(path):
            there = os.path.exists(path)
            reason = "is no file" if there else "is not there"
            raise BrokenImageError(path, reason)
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        reason = f"can not be read: {error.strerror}"
        raise BrokenImageError(path, reason) from error


def read_photo(path) -> np.ndarray:
    """Reads a photo as it is meant to be seen, at its own size.

    Args:
        path: JPEG or PNG file.

    Returns:
        uint8 `[height, width, 3]`, RGB.

    Raises:
        BrokenImageError: it is no photo, or not there.
    """
    content = read_content(path)
    try:
        return decode_photo(content).numpy()
    except tf.errors.InvalidArgumentError as error:
        raise BrokenImageError(path, _reason(content, error)) from error


def read_photo_sizes(paths) -> np.ndarray:
    """Reads the sizes of photos as they are meant to be seen, undecoded.

    Args:
        paths: n JPEG or PNG files.

    Returns:
        int64 `[n, 2]`, width and height in pixels.

    Raises:
        BrokenImageError: a file is no photo by its first bytes, too large a
            one, or not there.
    """
    return np.array([_read_size(path) for path in paths], np.int64).reshape(
        -1, 2
    )


def _read_size(path):
    content = read_content(path, _HEAD_BYTES)
    try:
        sides = _upright_sides(content).numpy()
    except tf.errors.InvalidArgumentError:
        content = read_content(path)  # A head may be longer than most are.
        try:  # In eager mode, whose errors are a line.
            sides = _upright_sides.python_function(content).numpy()
        except tf.errors.InvalidArgumentError as error:
            raise BrokenImageError(path, _reason(content, error)) from error
    if not sides.all():
        raise BrokenImageError(path, "has no pixels, or is cut")
    return sides


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def _upright_sides(image_bytes):
    with tf.control_dependencies(_check_head(image_bytes)):
        sides = _sides(image_bytes)
    # From 5 on, orientations are turned by a quarter.
    turned = exif.orientation(image_bytes) > 4
    return tf.where(turned, sides[::-1], sides)


def fault_of(content):
    """Returns what is wrong with the content of a file; None for a photo."""
    try:
        decode_photo(content)
    except tf.errors.InvalidArgumentError as error:
        return _reason(content, error)
    return None


def _reason(content, error):
    """Returns in words why a file's content was refused."""
    if not content:
        return "is empty"
    if _NO_PHOTO in error.message:
        for kind, start in _OTHER_KINDS.items():
            if re.match(start, content, re.DOTALL):
                return f"is a {kind} file"
        return "is of another kind"
    if _TOO_LARGE in error.message:
        found = error.message.split(_TOO_LARGE)[1]
        # A function's name may follow, with a number of its own.
        width, height = re.findall(r"\d+", found)[:2]
        return f"has {width} x {height} pixels, more than {MAX_PIXELS}"
    reason = re.sub(r"\{\{.*\}\} | \[Op:\w+\]", "", error.message)
    return f"does not decode: {reason.rstrip('.')}"


def faults(paths):
    """Judges files, several at once.

    Args:
        paths: files that should be photos.

    Yields:
        For each in its order what is wrong with it, a few words after
        "which"; None for a photo.
    """
    pool = concurrent.futures.ThreadPoolExecutor(usable_cores())
    try:
        yield from pool.map(_fault, paths)
    finally:
        pool.shutdown(cancel_futures=True)


def _fault(path):
    try:
        read_photo(path)
    except BrokenImageError as error:
        return error.reason
    return None
