"""Tests of photo decoding."""

import os
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets.data.images import (
    BrokenImageError,
    decode_image,
    decode_images,
    decode_photo,
    fault_of,
    faults,
    read_content,
    read_file,
    read_photo,
    read_photo_sizes,
)
from tests import photo_files

PIXELS = np.arange(40 * 60 * 3, dtype=np.uint32).reshape(40, 60, 3) * 37 % 256


def encode(mode="RGB", format="PNG", pixels=PIXELS, **options):
    image = PIL.Image.fromarray(pixels.astype(np.uint8)).convert(mode)
    return photo_files.file_of(image, format, **options)


def exif(value):
    """Returns notes that tell how a photo is turned."""
    notes = PIL.Image.Exif()
    notes[0x0112] = value
    return notes


@pytest.mark.parametrize(
    "mode, format",
    [
        *((mode, "JPEG") for mode in ("RGB", "L", "CMYK")),
        *((mode, "PNG") for mode in ("RGB", "L", "LA", "P", "RGBA", "1")),
    ],
)
def test_decoded_photos_equal_those_of_pillow(tmp_path, mode, format):
    path = tmp_path / "photo"
    path.write_bytes(encode(mode, format, smooth_pixels(60, 40)))
    found = read_photo(path)
    assert found.shape == (40, 60, 3) and found.dtype == np.uint8
    np.testing.assert_array_equal(found, decode_photo(path.read_bytes()))
    with PIL.Image.open(path) as photo:
        by_pillow = np.asarray(photo.convert("RGB"), int)
    assert np.abs(found - by_pillow).mean() < (6 if mode == "CMYK" else 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return photo_files.write_all(tmp_path_factory.mktemp("photos"))


def or_error(function, argument):
    """Returns what a function returns, or the error of TensorFlow."""
    try:
        return function(argument)
    except tf.errors.OpError as error:
        return error


def decode_in_a_pipeline(contents, read=tf.identity):
    """Yields one photo after the other as training decodes it, or the error."""
    photos = iter(
        tf.data.Dataset.from_tensor_slices(contents).map(
            lambda one: decode_image(read(one), 8)
        )
    )
    return (or_error(next, photos) for _ in contents)


def test_host_and_graph_accept_the_same_files(folder):
    names = [*photo_files.CONTENTS, "link.jpg", photo_files.FOLDER]
    paths = [folder / name for name in names]
    found = dict(zip(names, faults(paths)))
    decoded = decode_in_a_pipeline([*map(os.fsencode, paths)], read_file)
    for name, path, photo in zip(names, paths, decoded):
        assert tf.is_tensor(photo) == (found[name] is None), name
        if path.is_file():
            assert fault_of(path) == found[name]
            assert fault_of(read_content(path)) == found[name]
    assert found.pop(photo_files.FOLDER) == "is not a file"
    # In their order, and no further than they are asked for.
    assert list(faults(paths * 2)) == 2 * [*found.values(), "is not a file"]
    assert next(faults([folder / "empty.jpg"] * 50)) == "is empty"
    photos = [name for name, reason in found.items() if reason is None]
    assert sorted(photos) == photo_files.PHOTOS
    photo_files.assert_all_left_out(
        {name: reason for name, reason in found.items() if reason}
    )


def huge_png(side=20_000):
    """Returns a PNG of one colour and 49 kB, without drawing it."""

    def chunk(name, data):
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(side * (1 + side // 8)), 9)  # A bit a pixel.
    chunks = chunk(b"IHDR", head), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def with_sides(content, frame, side=20_000):
    """Returns a JPEG whose frame of some kind tells other sides."""
    at = content.index(frame) + 5
    return content[:at] + struct.pack(">HH", side, side) + content[at + 4 :]


BASELINE, PROGRESSIVE = b"\xff\xc0", b"\xff\xc2"
HUGE = {
    "png": huge_png(),
    "jpeg": with_sides(encode(format="JPEG"), BASELINE),
    "progressive": with_sides(
        encode(format="JPEG", progressive=True), PROGRESSIVE
    ),
}


def peak_memory():
    """Returns the most memory this process has had, in bytes."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def with_png_sides(width, height):
    """Returns a PNG whose head tells other sides."""
    sides = struct.pack(">II", width, height)
    return encode()[:16] + sides + encode()[24:]


CUT = [
    encode(format=format)[:size]
    for format in ("PNG", "JPEG")
    for size in range(3, 30, 3)
]
OTHERS = [
    b"",
    b"no photo at all",
    b"GIF89a",
    b"%PDF-1.4",
    encode()[:8],
    encode()[:8] + b"\x00\x00\x00\x01tEXt." + encode()[8:],
    with_png_sides(0, 20),
    with_png_sides(9000, 9000),
    with_png_sides(2**32 - 1, 2**32 - 1),
    with_png_sides(2**31, 1),
]


@pytest.mark.parametrize("content", [*OTHERS, *CUT, *HUGE.values()], ids=len)
def test_error_names_the_invalid_photo(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    reads = [read_photo]
    if content not in CUT:  # Of which the sides may be there.
        reads.append(lambda path: read_photo_sizes([path]))
    for read in reads:
        with pytest.raises(BrokenImageError) as caught:
            read(path)
        assert caught.value.path == path
    assert fault_of(content)


@pytest.fixture(
    params=["eager", "batch in a graph", "Dataset.map"], scope="module"
)
def decode(request):
    """Returns a function that decodes photos in turn to 8 x 8 pixels."""
    if request.param == "Dataset.map":
        return decode_in_a_pipeline
    graph = tf.function(
        lambda batch: decode_images(batch, 8),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )

    def decode_one(content):
        if request.param == "eager":
            return decode_image(content, 8)
        return graph(tf.constant([content]))[0]

    return lambda contents: (or_error(decode_one, one) for one in contents)


def test_huge_photo_is_refused_before_decoding(decode):
    photos = decode([encode(), *HUGE.values()])
    assert next(photos).shape == (8, 8, 3)
    before = peak_memory()
    errors = [*photos]
    # 400 million pixels of three bytes are 1.2 GB.
    assert peak_memory() - before < 200e6
    for error in errors:
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert "[20000 20000]" in str(error)


def test_eager_graph_and_map_decode_equally(decode):
    # Half a turn: the first row and column become the last.
    turned = encode(format="JPEG", exif=exif(3))
    others = [encode(format=f) for f in ("GIF", "BMP", "WEBP", "TIFF")]
    photos = decode([encode(format="JPEG"), turned, *OTHERS, *CUT, *others])
    photo, upright, *errors = photos
    np.testing.assert_array_equal(photo, decode_image(encode(format="JPEG"), 8))
    np.testing.assert_allclose(upright, photo[::-1, ::-1], atol=1e-3)
    assert {*map(type, errors)} == {tf.errors.InvalidArgumentError}


def smooth_pixels(width, height):
    """Returns slow waves, which any scale shows alike."""
    x, y = np.arange(width) / width, np.arange(height)[:, None] / height
    waves = [np.sin(5 * x + 3 * y + phase) for phase in (0, 1, 2)]
    return 127 + 100 * np.stack(waves, axis=2)


def smooth(width, height, **options):
    """Returns a JPEG file of slow waves."""
    pixels = smooth_pixels(width, height)
    return encode(format="JPEG", pixels=pixels, quality=95, **options)


@pytest.mark.parametrize(
    ("sides", "decoded"),
    [
        # The shorter side of 8 pixels that are asked for, times 8, times 2.
        ((127, 200), (127, 200)),
        ((128, 200), (64, 100)),
        ((600, 250), (300, 125)),
        ((512, 600), (64, 75)),
        ((1104, 1104), (138, 138)),
    ],
)
def test_large_jpeg_is_decoded_at_a_smaller_scale(sides, decoded):
    content = smooth(*sides)
    assert decode_photo(content, 8).shape == (decoded[1], decoded[0], 3)
    assert decode_photo(content).shape == (sides[1], sides[0], 3)
    if any(side % 8 for side in sides):
        return  # The last column of pixels is a part of one.
    whole = tf.image.resize(decode_photo(content), [8, 8], antialias=True)
    np.testing.assert_allclose(decode_image(content, 8), whole, atol=4)
