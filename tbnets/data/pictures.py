"""Reads photos with Pillow, without TensorFlow.

An exported network decodes only JPEG and PNG, so `read_content` encodes all
other photos as PNG. `read_square` decodes photos for a LiteRT model.
"""

import contextlib
import importlib
import io
import os
import re

import numpy as np
import PIL.Image

from tbnets.checks import short_text
from tbnets.data import archives
from tbnets.errors import InputError, check_kind

MAX_PIXELS = 80_000_000
ROOM = 8
"""A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if the result is at least
this many times larger than the requested size."""
KINDS = "JPEG, PNG, WebP, GIF, BMP or TIFF"
"""Supported formats, for messages."""
SCALES = (1, 2, 4, 8)


class BrokenImageError(InputError):
    """A file is not a photo, or does not exist.

    `reason` is a verb phrase such as "is empty".
    """

    def __init__(self, path, reason):
        name = path if isinstance(path, str | os.PathLike) else short_text(path)
        name = f"{len(path)} bytes" if isinstance(path, bytes) else name
        super().__init__(
            f"`path` must name a complete photo: {KINDS}. Received: "
            f"path='{name}', which {reason}. Replace or remove the file."
        )
        self.path = path
        self.reason = reason


def read_content(photo) -> bytes:
    """Returns the bytes of a photo as JPEG or PNG, which a graph can decode.

    Other formats are converted to PNG. The bytes of files that are not photos
    are returned unchanged. `photo` is a path, the content of a file (`bytes`),
    a `PIL.Image.Image`, pixels that `picture_of` accepts, or a tensor of bytes
    or pixels.

    Raises:
        BrokenImageError: the file does not exist or cannot be read.
        ValueError, TypeError: `photo` has another type, or is an array that
            does not contain pixels.
    """
    photo = photo.numpy() if hasattr(photo, "numpy") else photo
    picture = picture_of(photo) if isinstance(photo, np.ndarray) else photo
    if isinstance(picture, PIL.Image.Image):
        return _png_of(photo, picture)
    return as_decodable(read_file(photo))


def read_file(photo) -> bytes:
    """Returns the content of a file, which may be inside an archive.

    Raises BrokenImageError if it does not exist or cannot be read.
    """
    if isinstance(photo, bytes):
        return photo
    check_kind("photo", photo, str, os.PathLike)
    try:
        if not archives.is_file(photo):
            there = os.path.exists(photo)
            reason = "is not a file" if there else "does not exist"
            raise BrokenImageError(photo, reason)
        return archives.read_bytes(photo)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise BrokenImageError(photo, reason) from error


JPEG_START = b"\xff\xd8\xff"
PNG_START = b"\x89PNG\r\n\x1a\n"
_DECODED = {"JPEG": JPEG_START, "PNG": PNG_START}
_STARTS = {
    "GIF": rb"GIF8",
    "BMP": rb"BM",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II[*+]\x00|MM\x00[*+]",
    "AVIF": rb"....ftypavi[fs]",
    "HEIF": rb"....ftyp(?:he|mif1|msf1)",
    "PDF": rb"%PDF",
}
"""Maps each format that no graph decodes to a pattern for its first bytes."""
_CURES = {
    "AVIF": 'convert it, or pip install "pillow>=11.3"',
    "HEIF": "convert it, or pip install pillow-heif",
}


_OTHER_ORIENTATIONS = {"xmp", "XML:com.adobe.xmp", "Raw profile type exif"}
"""Names under which Pillow keeps orientations that are not in EXIF data."""


ORIENTATION_TAG = 0x0112
_TURNS = {
    2: PIL.Image.Transpose.FLIP_LEFT_RIGHT,
    3: PIL.Image.Transpose.ROTATE_180,
    4: PIL.Image.Transpose.FLIP_TOP_BOTTOM,
    5: PIL.Image.Transpose.TRANSPOSE,
    6: PIL.Image.Transpose.ROTATE_270,
    7: PIL.Image.Transpose.TRANSVERSE,
    8: PIL.Image.Transpose.ROTATE_90,
}


def as_decodable(content: bytes) -> bytes:
    """Converts the content of a file to PNG if a graph cannot decode it.

    Returns the content unchanged if it is a JPEG or PNG, or if Pillow cannot
    read it.
    """
    with contextlib.suppress(BrokenImageError):
        return convert(content, content)
    return content


def convert(photo, content):
    """Converts a photo in a format of `_STARTS` to PNG; returns its content.

    Raises BrokenImageError, which names `photo`, if that fails.
    """
    return _png_of(photo, _opened(photo, content, _STARTS))


def _opened(photo, content, starts):
    kinds = [
        kind
        for kind, start in starts.items()
        if re.match(start, content, re.DOTALL)
    ]
    if not kinds:
        reason = "is not a photo" if content else "is empty"
        raise BrokenImageError(photo, reason)
    name = kinds[0].upper()
    if not _is_read(name):
        cure = _CURES.get(name, "convert it")
        raise BrokenImageError(photo, f"is a {kinds[0]} file: {cure}")
    cut = BrokenImageError(photo, f"is not a complete {kinds[0]} file")
    try:
        picture = PIL.Image.open(io.BytesIO(content), formats=[name])
    except PIL.Image.DecompressionBombError as error:
        reason = f"has more than {MAX_PIXELS} pixels"
        raise BrokenImageError(photo, reason) from error
    except Exception as error:  # Pillow has many types for a damaged header.
        raise cut from error
    if content[12:16] == b"VP8 " and _is_too_short(content, *picture.size):
        raise cut
    return picture


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


UNREAD = "was not a photo when it was read"
"""The reason for a file that is a photo now."""
CHANGED = "changed while it was read"
"""The reason for a file whose content is no longer that of its key."""
NOT_FINITE = "has an embedding that is not finite"
"""The reason for a photo of which a network computes NaN or infinity."""
_PASSING = UNREAD, CHANGED, NOT_FINITE, "cannot be read", "does not exist"
"""Starts of reasons that say nothing about the content of a file."""


def is_cured(reason: str) -> bool:
    """Returns whether a file that failed for `reason` may succeed now.

    Either the file could not be read, or Pillow can now read its format.
    """
    kind = re.match(r"is a (\w+) file: ", reason)
    can_read = bool(kind) and _is_read(kind[1].upper())
    return can_read or reason.startswith(_PASSING)


def _png_of(photo, picture):
    """Returns a `PIL.Image.Image` as an upright PNG, in bytes."""
    stream = io.BytesIO()
    # The PNG is decoded soon, so compression would waste time.
    _upright(photo, picture).save(stream, "PNG", compress_level=0)
    return stream.getvalue()


def _upright(photo, picture):
    """Decodes a picture like `images.decode_photo`.

    Alpha is dropped and 16-bit values keep their upper 8 bits. Errors name
    `photo`.
    """
    _check_size(photo, picture)
    if picture.mode == "F":
        reason = "has floating-point pixels of an unknown range"
        raise BrokenImageError(photo, reason)
    try:
        picture = _turned(picture)
        if picture.mode.startswith("I"):
            pixels = np.clip(np.asarray(picture), 0, 2**16 - 1)
            # The maximum shows whether mode I holds 8 or 16 bits.
            if picture.mode != "I" or pixels.max() > 2**8 - 1:
                pixels >>= 8
            picture = PIL.Image.fromarray(pixels.astype(np.uint8))
        picture.info = {}  # Avoids a warning about palettes.
        return picture.convert("RGB")
    except Exception as error:  # Pillow has many types for damaged pixels.
        raise BrokenImageError(photo, f"does not decode: {error}") from error


def _turned(picture):
    """Turns a picture upright by its EXIF orientation, if that is valid."""
    picture.load()
    info = picture.info
    names = info.keys() - _OTHER_ORIENTATIONS
    picture.info = {name: info[name] for name in names}
    try:
        exif = picture.getexif()
        if "exif" in info:  # Pillow may have added an orientation at opening.
            exif = PIL.Image.Exif()
            exif.load(info["exif"])
        turn = _TURNS.get(exif.get(ORIENTATION_TAG))
    except Exception:  # Pillow raises many types for damaged EXIF data.
        turn = None
    picture.info = info
    return picture.copy() if turn is None else picture.transpose(turn)


def _check_size(photo, picture):
    width, height = picture.size
    if not 0 < width * height <= MAX_PIXELS:
        most = f", more than {MAX_PIXELS}" * bool(width * height)
        reason = f"has {width} x {height} pixels{most}"
        raise BrokenImageError(photo, reason)


def read_square(photo, side):
    """Decodes a photo and resizes it to a square, like `images.decode_image`.

    Pillow and TensorFlow decode JPEG differently, and pixels are rounded here,
    so the pixels differ by about 1 of 255. For `photo` and errors, see
    `open_upright`.

    Returns:
        uint8 `[side, side, 3]`.
    """
    picture = open_upright(photo, side)
    square = picture.resize((side, side), PIL.Image.Resampling.BILINEAR)
    return np.asarray(square)


def open_upright(photo, side):
    """Decodes a photo with Pillow, in its upright orientation.

    `photo` is an argument of `read_content`, but not a tensor. `side` is the
    side to which the photo will be resized: a large JPEG is decoded at a
    smaller scale, as in `images.decode_photo`.

    Returns:
        A `PIL.Image.Image` in RGB.

    Raises:
        BrokenImageError: the file is not a photo.
    """
    picture = picture_of(photo) if isinstance(photo, np.ndarray) else photo
    if not isinstance(picture, PIL.Image.Image):
        picture = _opened(photo, read_file(photo), _DECODED | _STARTS)
        if picture.format == "JPEG":
            _check_size(photo, picture)  # `draft` reduces the size.
            width, height = picture.size
            scale = max(
                each
                for each in SCALES
                if each == 1 or min(width, height) >= each * ROOM * side
            )
            picture.draft("RGB", (width // scale, height // scale))
    return _upright(photo, picture)


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
        )
    grey = pixels.shape[2:] == (1,)
    return PIL.Image.fromarray(pixels[..., 0] if grey else pixels)
