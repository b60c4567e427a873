"""Photos that no graph decodes -> PNG: other kinds of files, pictures, pixels.

An exported network decodes JPEG and PNG. What else people keep photos as is
read by Pillow on the host and goes on as a PNG of the same pixels, so that
there is one way from there. A JPEG or PNG file passes as it is.
"""

import contextlib
import importlib
import io
import re

import numpy as np
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

from tbnets.data import photo_head
from tbnets.errors import InputError

_STARTS = {
    "GIF": rb"GIF8",
    "BMP": rb"BM",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II[*+]\x00|MM\x00[*+]",
    "AVIF": rb"....ftypavi[fs]",
    "HEIF": rb"....ftyp(?:he|mif1|msf1)",
    "PDF": rb"%PDF",
}
"""Kinds of files that stand among photos -> how they begin."""
_CURES = {
    "AVIF": 'convert it, or pip install "pillow>=11.3"',
    "HEIF": "convert it, or pip install pillow-heif",
}


def as_decodable(content: bytes) -> bytes:
    """Returns the content of a file as a graph decodes it.

    Args:
        content: of any file.

    Returns:
        A PNG where Pillow reads it, of several pictures in it the first; else
        the content as it is, which is a JPEG, a PNG or no photo.
    """
    return _converted(content)[0] or content


def fault_of_kind(content: bytes) -> str:
    """Tells why `as_decodable` has no PNG, a few words after "which"."""
    return _converted(content)[1]


def _converted(content):
    """Returns `png_of` what a file of another kind than JPEG and PNG shows."""
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
        return b"", f"has more than {photo_head.MAX_PIXELS} pixels"
    except Exception:  # Of a damaged head Pillow raises any.
        return b"", f"is no whole {kinds[0]} file"
    if content[12:16] == b"VP8 " and _is_too_short(content, *picture.size):
        return b"", f"is no whole {kinds[0]} file"
    return png_of(picture)


def _is_too_short(content, width, height):
    """Returns whether a lossy WebP file has too few bytes for its size.

    A key frame codes the prediction modes of each block of 16 x 16 pixels with
    fixed probabilities (RFC 6386, Sec. 11), which takes more than 3 bits.
    Pillow would allocate the whole picture first.
    """
    num_bytes = int.from_bytes(content[16:20], "little")
    return 8 * num_bytes < 3 * (width // 16) * (height // 16)


def _is_read(name):
    """Tells whether Pillow reads a kind of files, by its name for it."""
    if name not in PIL.Image.OPEN:
        PIL.Image.init()
        if name == "HEIF":
            with contextlib.suppress(ImportError):
                importlib.import_module("pillow_heif").register_heif_opener()
    return name in PIL.Image.OPEN


def is_cured(reason: str) -> bool:
    """Tells whether a file's fault was its kind, which Pillow now reads."""
    kind = re.match(r"is a (\w+) file: ", reason)
    return bool(kind) and _is_read(kind[1].upper())


def png_of(picture) -> tuple[bytes, str]:
    """Encodes a picture as PNG, upright by its EXIF orientation.

    As where a PNG is decoded, alpha is dropped, and of 16 bits the upper 8 are
    kept: of whole numbers (mode I) too, if one is above 255.

    Args:
        picture: a `PIL.Image.Image`, left as it is.

    Returns:
        (content, reason): b"" and a few words after "which" where it has no
        pixels, too many, or such that no colour is known of.
    """
    width, height = picture.size
    most = photo_head.MAX_PIXELS
    if not width * height:
        return b"", f"has {width} x {height} pixels"
    if width * height > most:
        return b"", f"has {width} x {height} pixels, more than {most}"
    try:
        picture = PIL.ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I"):
            pixels = np.clip(np.asarray(picture), 0, 2**16 - 1)
            # Of numbers without a size the largest tells.
            if picture.mode != "I" or pixels.max() > 2**8 - 1:
                pixels >>= 8
            picture = PIL.Image.fromarray(pixels.astype(np.uint8))
        if picture.mode == "F":
            return b"", "has pixels of floating point, of an unknown range"
        picture.info = {}  # Or Pillow warns of what it does with a palette.
        pixels = np.asarray(picture.convert("RGB"))
        # It lives for a moment, and is not worth the time to compress it.
        return tf.io.encode_png(pixels, compression=0).numpy(), ""
    except Exception as error:  # Of damaged pixels too.
        return b"", f"does not decode: {error}"


def picture_of(pixels):
    """Returns pixels as a `PIL.Image.Image`.

    Args:
        pixels: uint8 `[height, width, 3]`, RGB; or `[height, width]` or
            `[height, width, 1]`, grey; a fourth channel is alpha.

    Raises:
        ValueError: they are none.
    """
    is_photo = pixels.ndim == 2 or pixels.shape[2:] in {(1,), (3,), (4,)}
    if pixels.dtype != np.uint8 or not is_photo or not pixels.size:
        raise InputError(
            "`photo` must be uint8 [height, width, 3], RGB, or [height, width],"
            f" grey. Received: {pixels.dtype} {list(pixels.shape)}. Scale it to"
            " [0, 255] and convert it, or give a path."
        )
    grey = pixels.shape[2:] == (1,)
    return PIL.Image.fromarray(pixels[..., 0] if grey else pixels)
