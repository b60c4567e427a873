"""Photos that Pillow decodes are those that a graph decodes."""

import numpy as np
import PIL.Image
import pytest

from tbnets.data import pictures
from tbnets.data.images import decode_images
from tbnets.data.pictures import read_square
from tests.photo_files import file_of

SIDE = 24


def picture(width=90, height=60, mode="RGB"):
    """Returns a smooth picture, which JPEG changes little."""
    x, y = np.linspace(0, 3, width), np.linspace(0, 2, height)[:, None]
    planes = [np.sin(x * a + y * b) for a, b in ((1, 2), (2, 1), (3, -1))]
    pixels = (127.5 * (1 + np.stack(planes, axis=2))).astype(np.uint8)
    return PIL.Image.fromarray(pixels).convert(mode)


def turned(value):
    exif = PIL.Image.Exif()
    exif[0x0112] = value
    return exif


@pytest.mark.parametrize(
    "content",
    [
        file_of(picture(), "PNG"),
        file_of(picture(mode="L"), "PNG"),
        file_of(picture(mode="RGBA"), "PNG"),
        file_of(picture(mode="P"), "PNG"),
        file_of(picture(), "PNG", exif=turned(6)),
        file_of(picture(), "JPEG", quality=95),
        file_of(picture(mode="L"), "JPEG", quality=95),
        *(file_of(picture(), "JPEG", exif=turned(n)) for n in range(1, 9)),
        file_of(picture(900, 800), "JPEG", quality=95),
        file_of(picture(), "WEBP", lossless=True),
        file_of(picture(), "BMP"),
        file_of(picture(24, 24), "PNG"),
        file_of(picture(5, 90), "PNG"),
    ],
)
def test_square_is_near_the_graphs(content):
    expected = decode_images([content], SIDE)[0].numpy()
    pixels, reason = read_square(content, SIDE)
    assert reason == ""
    assert pixels.dtype == np.uint8
    # Pillow rounds after each of two passes, and decodes JPEG more exactly.
    assert np.abs(pixels - expected).max() <= 10
    assert np.abs(pixels - expected).mean() <= 1.5


def test_square_of_pixels_pictures_and_files_are_equal(tmp_path):
    image, path = picture(), tmp_path / "a.png"
    image.save(path)
    photos = [np.asarray(image), image, str(path), path, path.read_bytes()]
    squares = [read_square(photo, SIDE)[0] for photo in photos]
    for square in squares[1:]:
        np.testing.assert_array_equal(square, squares[0])


def test_faults_have_reasons(tmp_path, monkeypatch):
    jpeg = file_of(picture(), "JPEG")
    assert read_square(b"", SIDE) == (None, "is empty")
    assert read_square(b"text", SIDE)[1] == "is of another kind"
    assert read_square(tmp_path / "gone.jpg", SIDE)[1] == "does not exist"
    assert "truncated" in read_square(jpeg[:-200], SIDE)[1]
    # A JPEG is decoded at a part of its size, but limited by the whole.
    content = file_of(PIL.Image.new("RGB", (400, 300)), "JPEG")
    monkeypatch.setattr(pictures, "MAX_PIXELS", 400 * 300)
    assert not read_square(content, 4)[1]
    monkeypatch.setattr(pictures, "MAX_PIXELS", 400 * 300 - 1)
    assert "400 x 300" in read_square(content, 4)[1]


def test_wrong_types_are_errors():
    with pytest.raises(TypeError):
        read_square(3, SIDE)
    with pytest.raises(ValueError):
        read_square(np.zeros((4, 4, 3)), SIDE)
