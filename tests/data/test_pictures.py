"""Tests of the formats of photos, of Pillow's decoding and of orientation."""

import io
import sys

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from tbnets.data import images, pictures
from tbnets.data.images import (
    BrokenImageError,
    decode_images,
    fault_of,
    read_content,
    read_photo,
    read_photo_sizes,
)
from tbnets.data.pictures import open_upright, read_square
from tests.data.test_images import exif
from tests.photo_files import file_of

PIXELS = (np.arange(12 * 20 * 3) * 37 % 256).astype(np.uint8).reshape(12, 20, 3)
PICTURE = PIL.Image.fromarray(PIXELS)
GREY = PIXELS[..., 0]


def encoded(format, mode="RGB", **options):
    return file_of(PICTURE.convert(mode), format, **options)


def test_webp_too_short_for_its_size_is_not_decoded(monkeypatch):
    blank = PIL.Image.new("RGB", (320, 320))
    content = bytearray(file_of(blank, "WEBP"))
    assert fault_of(bytes(content)) is None
    content[26:30] = (8000).to_bytes(2, "little") * 2  # Its width and height.
    monkeypatch.setattr(pictures, "_turned", None)  # Would decode.
    assert "WebP" in fault_of(bytes(content))


@pytest.mark.parametrize("mode", ["RGB", "I", "L"])
def test_picture_without_pixels_is_refused(mode):
    for size in ((0, 0), (0, 5)):
        with pytest.raises(BrokenImageError, match=r"has 0 x \d pixels\."):
            read_content(PIL.Image.new(mode, size))


@pytest.mark.parametrize(
    "content",
    [
        encoded("BMP"),
        encoded("TIFF"),
        encoded("TIFF", compression="tiff_lzw"),
        encoded("TIFF", "RGBA"),
        encoded("TIFF", "CMYK"),
        encoded("WEBP", lossless=True),
        encoded("WEBP", "RGBA", lossless=True, exact=True),
    ],
    ids="bmp tiff lzw tiff_alpha tiff_cmyk webp webp_alpha".split(),
)
def test_converted_pixels_equal_the_stored_pixels(content):
    np.testing.assert_array_equal(read_photo(content), PIXELS)
    assert read_photo_sizes([content]).tolist() == [[20, 12]]


@pytest.mark.parametrize("scale", [1, 256])
def test_range_of_integers_follows_from_their_maximum(scale):
    picture = PIL.Image.fromarray(GREY.astype(np.int32) * scale)
    assert picture.mode == "I"
    np.testing.assert_array_equal(read_photo(picture)[..., 0], GREY)


def test_batch_of_paths_bytes_pictures_and_arrays(tmp_path):
    PICTURE.save(tmp_path / "a.bmp")
    lying = PIL.Image.fromarray(np.rot90(PIXELS))
    lying.getexif()[0x0112] = 6
    sorts = [
        *(tmp_path / "a.bmp", encoded("BMP"), PICTURE, PIXELS),
        *(lying, np.dstack([PIXELS, GREY])),
    ]
    found = decode_images(sorts, 12).numpy()
    np.testing.assert_array_equal(
        found, decode_images([encoded("PNG")] * 6, 12)
    )
    found = decode_images([GREY, GREY[..., None]], 12).numpy()
    grey = file_of(PIL.Image.fromarray(GREY), "PNG")
    np.testing.assert_array_equal(found, decode_images([grey] * 2, 12))
    # As arrays, and as tensors.
    wanted = decode_images([encoded("PNG")] * 2, 12)
    contents = np.array([encoded("PNG")] * 2, object)
    paths = np.array([str(tmp_path / "a.bmp")] * 2)
    for some in (np.stack([PIXELS] * 2), paths, contents):
        np.testing.assert_array_equal(decode_images(some, 12), wanted)
    np.testing.assert_array_equal(read_photo(tf.constant(PIXELS)), PIXELS)
    assert decode_images([], 8).shape == (0, 8, 8, 3)


def test_error_names_the_package_for_a_format(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    told = fault_of(b"\0\0\0\x18ftypheic" + bytes(40))
    assert "pip install pillow-heif" in told
    assert "HEIF" not in fault_of(b"\0\0\0\x18ftypisom" + bytes(40))


def test_too_large_photo_is_refused_before_decoding(monkeypatch):
    bomb = bytearray(encoded("BMP"))
    for side in (30_000, 9_000):
        bomb[18:26] = np.array([side, side], "<i4").tobytes()
        assert "more than 80000000" in fault_of(bytes(bomb))
    monkeypatch.setattr(pictures, "MAX_PIXELS", 12 * 20 - 1)
    for picture in (PICTURE, PIXELS):
        with pytest.raises(BrokenImageError, match="20 x 12 pixels"):
            read_content(picture)


def with_orientation(orientation, order="<", first=b"", format="JPEG"):
    notes = PIL.Image.Exif()
    notes.endian = order
    notes[0x010F] = "a maker of cameras"
    if orientation is not None:
        notes[0x0112] = orientation
    content = file_of(PICTURE, format, exif=notes.tobytes(), quality=95)
    return content[:2] + first + content[2:]


@pytest.mark.parametrize(
    "value, order",
    [*((value, "<") for value in range(1, 9)), (5, ">"), (8, ">")],
)
def test_decoded_photo_is_upright_as_pillow_turns_it(value, order):
    comment = b"\xff\xfe\x00\x09nothing" * (value % 2)
    content = with_orientation(value, order, comment)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        expected = np.asarray(PIL.ImageOps.exif_transpose(picture))
    assert int(images.orientation(content)) == value
    pixels = tf.io.decode_jpeg(content, dct_method="INTEGER_ACCURATE")
    turned = images.upright(pixels, images.orientation(content))
    np.testing.assert_array_equal(turned, expected)
    assert read_photo_sizes([content]).tolist() == [[*expected.shape[1::-1]]]


def segment(marker, content):
    size = (len(content) + 2).to_bytes(2, "big")
    return b"\xff" + bytes([marker]) + size + content


def with_exif_chunk(is_last):
    """Returns a PNG whose EXIF chunk is before or behind its pixels."""
    content = file_of(PICTURE, "PNG", exif=exif(6))
    start = content.index(b"eXIf") - 4
    size = 12 + int.from_bytes(content[start : start + 4], "big")
    chunk = content[start : start + size]
    content = content.replace(chunk, b"")
    at = content.index(b"IEND" if is_last else b"IDAT") - 4
    return content[:at] + chunk + content[at:]


NAMES_EXIF = b"Exif\0\0 is not here."


@pytest.mark.parametrize(
    "content",
    [
        with_orientation(6),
        with_orientation(6, first=segment(0xFE, NAMES_EXIF)),
        with_orientation(6, first=segment(0xE1, b"http:" + NAMES_EXIF)),
        with_orientation(6, first=segment(0xE2, bytes(65_000)) * 3),
        with_orientation(6, first=b"\xff\xff"),  # Fill bytes.
        with_exif_chunk(is_last=False),
        with_exif_chunk(is_last=True),
    ],
    ids="first comment xmp large fill png png_end".split(),
)
def test_orientation_is_found_wherever_the_exif_data_are(content):
    assert int(images.orientation(content)) == 6
    assert read_photo_sizes([content]).tolist() == [[12, 20]]
    assert read_photo(content).shape == (20, 12, 3)
    assert open_upright(content, 24).size == (12, 20)


@pytest.mark.parametrize(
    "first",
    [
        segment(0xFE, b"") + b"no segment",
        segment(0xFE, b"") * 4096,
        b"\xff" * 4096,  # Fill bytes.
    ],
    ids="no_segment many_segments many_fill_bytes".split(),
)
def test_search_for_exif_data_ends(first):
    assert int(images.orientation(with_orientation(6, first=first))) == 1


SIDE = 24


def picture(width=90, height=60, mode="RGB"):
    """Returns a smooth picture, which JPEG changes little."""
    x, y = np.linspace(0, 3, width), np.linspace(0, 2, height)[:, None]
    planes = [np.sin(x * a + y * b) for a, b in ((1, 2), (2, 1), (3, -1))]
    pixels = (127.5 * (1 + np.stack(planes, axis=2))).astype(np.uint8)
    return PIL.Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize(
    "content",
    [
        file_of(picture(), "PNG"),
        file_of(picture(mode="RGBA"), "PNG"),
        file_of(picture(mode="P"), "PNG"),
        file_of(picture(), "PNG", exif=exif(6)),
        file_of(picture(), "JPEG", quality=95),
        *(file_of(picture(), "JPEG", exif=exif(n)) for n in range(1, 9)),
        file_of(picture(900, 800), "JPEG", quality=95),
        file_of(picture(), "WEBP", lossless=True),
        file_of(picture(5, 90), "PNG"),
    ],
)
def test_square_is_close_to_that_of_the_graph(content):
    expected = decode_images([content], SIDE)[0].numpy()
    pixels = read_square(content, SIDE)
    assert pixels.dtype == np.uint8
    # Pillow rounds after each of two passes, and decodes JPEG more exactly.
    assert np.abs(pixels - expected).max() <= 10
    assert np.abs(pixels - expected).mean() <= 1.5


def test_faults_have_reasons(tmp_path, monkeypatch):
    jpeg = file_of(picture(), "JPEG")
    reasons = {
        b"": "is empty",
        b"text": "is not a photo",
        tmp_path / "gone.jpg": "does not exist",
        jpeg[:-200]: "does not decode: image file is truncated",
    }
    for photo, reason in reasons.items():
        with pytest.raises(BrokenImageError, match=f"which {reason}") as error:
            read_square(photo, SIDE)
        assert error.value.path == photo
    # A JPEG is decoded at a part of its size, but limited by the whole.
    content = file_of(PIL.Image.new("RGB", (400, 300)), "JPEG")
    monkeypatch.setattr(pictures, "MAX_PIXELS", 400 * 300)
    assert read_square(content, 4).shape == (4, 4, 3)
    monkeypatch.setattr(pictures, "MAX_PIXELS", 400 * 300 - 1)
    with pytest.raises(BrokenImageError, match="400 x 300"):
        read_square(content, 4)


def test_damaged_photos_and_pixels_of_an_unknown_range_are_refused():
    floats = file_of(PIL.Image.fromarray(np.float32(GREY)), "TIFF")
    for content in (encoded("WEBP")[:60], b"BM, a text", floats):
        assert fault_of(content)
        with pytest.raises(BrokenImageError):
            read_photo(content)
