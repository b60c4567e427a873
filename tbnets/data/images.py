"""Encoded photos -> pixels, and the one rule of what a photo is.

A photo is a JPEG or PNG file by its content, whatever its name says, of at
most `photo_kinds.MAX_PIXELS` pixels, that decodes whole. `decode_photo` is that
rule. It runs in the graph, so the exported model decodes exactly as the
training input did, and a tool judges a file by no other: `read_photo` is the
same function for a file on the host, `faults` tells what is wrong with files.
On the host, photos of other kinds become PNG before: `read_content` and
`read_file` are the two doors, `photo_kinds` is what they do.
"""

import concurrent.futures
import functools
import os
import re
from collections.abc import Sequence

import numpy as np
import PIL.Image
import tensorflow as tf

from tbnets.checks import Array, Photo, checked_number, short_text
from tbnets.data import photo_kinds
from tbnets.errors import InputError, check_kind
from tbnets.startup import usable_cores

ROOM = 8
"""A large JPEG is decoded at a half, a quarter or an eighth of its size, as
long as what comes out is so many times as large as what is asked for."""
_SCALES = (1, 2, 4, 8)
KINDS = "JPEG, PNG, WebP, GIF, BMP or TIFF"
"""What a photo may be, for messages; `photo_kinds` tells of the others."""


class BrokenImageError(InputError):
    """A file that is no photo, or is not there.

    Args:
        path: the file, or what `read_content` was given instead.
        reason: what is wrong with it, a few words after "which".
    """

    def __init__(self, path, reason):
        name = path if isinstance(path, str | os.PathLike) else short_text(path)
        name = f"{len(path)} bytes" if isinstance(path, bytes) else name
        super().__init__(
            f"`path` must name a whole photo: {KINDS}. Received: "
            f"path='{name}', which {reason}. Replace or remove the file."
        )
        self.path = path
        self.reason = reason


# No branch depends on a tensor, and to convert it would take half a second.
@tf.autograph.experimental.do_not_convert
def decode_photo(image_bytes, side=None):
    """Decodes one photo as it is meant to be seen.

    In the graph. Greyscale is repeated over the three channels, an alpha
    channel is dropped, CMYK becomes RGB, of 16 bits the upper 8 are kept. A
    JPEG is turned upright by its EXIF orientation.

    A file of another kind, or of too many pixels, is refused by
    its first bytes, before memory is asked for.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        side: None to decode it at its own size. A number of pixels where it
            is scaled to that afterwards: then a JPEG whose shorter side is 16
            times as long or more is decoded at the smallest of 1/2, 1/4 and
            1/8 that leaves it `ROOM` times as long, which takes a fourth of
            the memory or less. Others are decoded as without.

    Returns:
        uint8 `[height, width, 3]`, RGB.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no whole JPEG or PNG
            file, or one too large.
    """
    image_bytes, sides = photo_kinds.small_enough(image_bytes)
    # It reads PNG as well.
    decode = functools.partial(tf.io.decode_jpeg, image_bytes, 3)
    if side is None:
        image = decode()
    else:
        has_room = photo_kinds.is_jpeg(image_bytes) & (
            tf.reduce_min(sides) >= [one * ROOM * side for one in _SCALES[1:]]
        )
        image = tf.switch_case(
            tf.reduce_sum(tf.cast(has_room, tf.int32)),
            [functools.partial(decode, one) for one in _SCALES],
        )
    return photo_kinds.upright(image, photo_kinds.orientation(image_bytes))


@tf.autograph.experimental.do_not_convert
def decode_image(image_bytes, image_size):
    """Decodes one photo and resizes it to a square, in the graph.

    The aspect ratio is not kept: the whole photo is squeezed into the square,
    so nothing at the border is lost. The resize is bilinear with
    antialiasing; a photo that has the size already is left alone. A JPEG that
    is far larger is decoded at a part of its size, see `decode_photo`.

    Args:
        image_bytes: string `[]`, the content of a JPEG or PNG file.
        image_size: side of the square, in pixels; or what makes a square
            otherwise: a function uint8 `[height, width, 3]` -> float32
            `[side, side, 3]` with an attribute `side`.

    Returns:
        float32 `[image_size, image_size, 3]`, RGB in [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: see `decode_photo`.
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
    """Decodes a batch of photos; see `decode_image`.

    Args:
        image_bytes: string `[num_images]`, JPEG or PNG files; or a list of
            photos as `read_content` takes them, or a stack of pixels;
            `num_images` may be 0.
        image_size: side of the square, in pixels; see `decode_image`.

    Returns:
        float32 `[num_images, image_size, image_size, 3]`, RGB in [0, 255].

    Example:
        tbnets.decode_images(["dog.jpg"], 64).shape  # (1, 64, 64, 3)
    """
    side = getattr(image_size, "side", image_size)
    checked_number("image_size", side, 1, whole=True)
    single = str | bytes | os.PathLike | PIL.Image.Image
    is_array = isinstance(image_bytes, np.ndarray)
    is_one = is_array and image_bytes.ndim not in (1, 4)
    if is_one or isinstance(image_bytes, single):
        raise InputError(
            "image_bytes",
            "be a list of photos",
            f"one {type(image_bytes).__name__}",
            "Put it into a list.",
        )
    if is_array or isinstance(image_bytes, list | tuple):
        image_bytes = [
            one if tf.is_tensor(one) else read_content(one)
            for one in image_bytes
        ]
    return tf.map_fn(
        lambda one: decode_image(one, image_size),
        tf.convert_to_tensor(image_bytes, tf.string),
        fn_output_signature=tf.TensorSpec([side, side, 3], tf.float32),
    )


def read_content(photo) -> bytes:
    """Reads what should be a photo, as a graph decodes it.

    Args:
        photo: the file, or the content of one (`bytes`); or a
            `PIL.Image.Image`, or pixels, as `photo_kinds.picture_of` takes
            them. A tensor is what it holds.

    Returns:
        A JPEG or PNG file, other kinds converted; what is none as it is.

    Raises:
        BrokenImageError: it is not there, or can not be read.
        TypeError: it is none of these.
        ValueError: pixels are none.
    """
    photo = photo.numpy() if tf.is_tensor(photo) else photo
    is_pixels = isinstance(photo, np.ndarray)
    picture = photo_kinds.picture_of(photo) if is_pixels else photo
    if isinstance(picture, PIL.Image.Image):
        content, reason = photo_kinds.png_of(picture)
        if reason:
            raise BrokenImageError(photo, reason)
        return content
    if not isinstance(photo, bytes):
        advice = "Give a path, the bytes of a file, a picture or its pixels."
        check_kind("photo", photo, (str, os.PathLike), advice)
        photo = _read_bytes(photo)
    return photo_kinds.as_decodable(photo)


def _read_bytes(path):
    """Reads a file, whatever it holds."""
    try:
        if not os.path.isfile(path):
            there = os.path.exists(path)
            reason = "is no file" if there else "is not there"
            raise BrokenImageError(path, reason)
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        reason = f"can not be read: {error.strerror}"
        raise BrokenImageError(path, reason) from error


def read_file(path):
    """Reads a photo's file in the graph of a pipeline, which stays here.

    Args:
        path: string `[]`.

    Returns:
        string `[]`, as `read_content` returns it. Python is entered for files
        that are neither JPEG nor PNG alone.
    """
    content = tf.io.read_file(path)

    def as_decodable(one):  # `bytes` in a graph, else an array of them.
        return photo_kinds.as_decodable(np.asarray(one, object).item())

    def convert():
        found = tf.numpy_function(as_decodable, [content], tf.string)
        return tf.ensure_shape(found, [])

    return tf.cond(photo_kinds.is_known(content), lambda: content, convert)


def read_photo(photo) -> np.ndarray:
    """Reads a photo as it is meant to be seen, at its own size.

    Args:
        photo: as `read_content` takes it.

    Returns:
        uint8 `[height, width, 3]`, RGB.

    Raises:
        BrokenImageError: it is no photo, or not there.
    """
    return _judged(photo, decode_photo)


def read_photo_sizes(paths) -> np.ndarray:
    """Reads the sizes of photos as they are meant to be seen, undecoded.

    Args:
        paths: n photos, as `read_content` takes them.

    Returns:
        int64 `[n, 2]`, width and height in pixels.

    Raises:
        BrokenImageError: a file is no photo by its first bytes, too large a
            one, or not there.
    """
    sizes = [_read_size(path) for path in paths]
    return np.array(sizes, np.int64).reshape(-1, 2)


def _read_size(path):
    size = _judged(path, photo_kinds.read_upright_sides)
    if not size.all():
        raise BrokenImageError(path, "has no pixels, or is cut")
    return size


def fault_of(photo):
    """Returns what is wrong with a photo, as `read_photo`; None for nothing."""
    try:
        read_photo(photo)
    except BrokenImageError as error:
        return error.reason
    return None


def _judged(photo, read):
    """Calls a function of a photo's content; says why where it is none."""
    content = read_content(photo)
    try:
        return read(content).numpy()
    except tf.errors.InvalidArgumentError as error:
        raise BrokenImageError(photo, _reason(content, error)) from error


def _reason(content, error):
    """Returns in words why a file's content was refused."""
    if not content:
        return "is empty"
    if photo_kinds.NO_PHOTO in error.message:
        return photo_kinds.fault_of_kind(content)
    if photo_kinds.TOO_LARGE in error.message:
        # A function's name may follow, with a number of its own.
        found = error.message.partition(photo_kinds.TOO_LARGE)[2]
        width, height = re.findall(r"\d+", found)[:2]
        most = photo_kinds.MAX_PIXELS
        return f"has {width} x {height} pixels, more than {most}"
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
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(fault_of, paths)
