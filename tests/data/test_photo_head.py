"""Tests of the EXIF orientation, and of sides without decoding."""

import io

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from tbnets.data import photo_kinds
from tbnets.data.images import decode_image, read_photo, read_photo_sizes

PIXELS = (np.arange(16 * 24 * 3) * 37 % 256).reshape(16, 24, 3)


def encode(orientation, order="little", first=b"", format="JPEG"):
    picture = PIL.Image.fromarray(PIXELS.astype(np.uint8))
    notes = PIL.Image.Exif()
    notes.endian = "<" if order == "little" else ">"
    notes[0x010F] = "a maker of cameras"
    if orientation is not None:
        notes[0x0112] = orientation
    buffer = io.BytesIO()
    picture.save(buffer, format, exif=notes.tobytes(), quality=95)
    content = buffer.getvalue()
    return content[:2] + first + content[2:]


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("value", range(1, 9))
def test_decoded_photo_is_upright_as_pillow_turns_it(value, order):
    content = encode(value, order)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        expected = np.asarray(PIL.ImageOps.exif_transpose(picture))
    assert int(photo_kinds.orientation(content)) == value
    pixels = tf.io.decode_jpeg(content, dct_method="INTEGER_ACCURATE")
    turned = photo_kinds.upright(pixels, photo_kinds.orientation(content))
    np.testing.assert_array_equal(turned, expected)


@pytest.mark.parametrize(
    "content",
    [
        *map(encode, (None, 0, 9, 1000)),
        encode(6, format="PNG"),
        b"",
        b"\xff\xd8",
        b"Exif\0\0",
        b"\xff\xd8\xff\xe1\0\x08Exif\0\0",
        b"\xff\xd8\xff\xe1\0\x08Exif\0\0II*\0\xff\xff\xff\xff",
        b"\xff\xd8\xff\xe1\0\x08Exif\0\0MM\0*\0\0\0\x08\xff\xff",
        b"\xff\xd8\xff\xe2\0\x08Exif\0\0II*\0\x08\0\0\0",
    ],
)
def test_orientation_of_nonsense_is_upright(content):
    assert int(photo_kinds.orientation(content)) == 1


def test_orientation_is_found_after_other_segments():
    comment = b"\xff\xfe\x00\x09nothing"
    assert int(photo_kinds.orientation(encode(6, first=comment))) == 6


def test_decode_image_turns_in_a_graph():
    graph = tf.function(
        lambda content: decode_image(content, 8),
        input_signature=[tf.TensorSpec([], tf.string)],
    )
    stored = graph(encode(1)).numpy()
    # Orientation 3 is half a turn: first row and column become the last.
    np.testing.assert_allclose(graph(encode(3)), stored[::-1, ::-1], atol=1e-3)


@pytest.mark.parametrize("value", range(1, 9))
def test_photo_sizes_are_those_of_the_upright_photo(value, tmp_path):
    (tmp_path / "a.jpg").write_bytes(encode(value))
    found = read_photo_sizes([tmp_path / "a.jpg"] * 2)
    height, width, _ = read_photo(tmp_path / "a.jpg").shape
    assert found.tolist() == [[width, height]] * 2
