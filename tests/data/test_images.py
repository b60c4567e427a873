"""Tests of photo decoding."""

import io
import os
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets.data import photo_kinds
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
    buffer = io.BytesIO()
    image = PIL.Image.fromarray(pixels.astype(np.uint8)).convert(mode)
    image.save(buffer, format, **options)
    return buffer.getvalue()


def test_decode_image_resize_literal():
    # 2 x 4 halved: each output pixel averages under an antialiased triangle;
    # a photo with constant halves keeps the order and the range.
    pixels = np.zeros([2, 4, 3])
    pixels[:, 2:] = [255, 0, 128]
    image = decode_image(encode(pixels=pixels), 2).numpy()
    assert image.shape == (2, 2, 3)
    assert image.dtype == np.float32
    # Triangle of half-width 2 around 1.0 weighs columns 0, 1, 2 (at 0.5, 1.5,
    # 2.5) with 0.75, 0.75, 0.25: 0.25 / 1.75 = 1/7 of the right half.
    np.testing.assert_allclose(image[0, 0], [255 / 7, 0, 128 / 7], rtol=1e-5)
    np.testing.assert_allclose(
        image[1, 1], [255 * 6 / 7, 0, 128 * 6 / 7], rtol=1e-5
    )


def test_decode_image_without_resize_returns_the_pixels():
    pixels = PIXELS[:40, :40]
    image = decode_image(encode(pixels=pixels), 40)
    np.testing.assert_array_equal(image, pixels)


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_decode_image_repeats_grey(format):
    image = decode_image(encode("L", format), 8)
    assert image.shape == (8, 8, 3)
    np.testing.assert_array_equal(image[..., 0], image[..., 2])


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "1"])
def test_decode_image_png_modes(mode):
    image = decode_image(encode(mode), 8)
    assert image.shape == (8, 8, 3)
    assert float(tf.reduce_max(image)) <= 255.0


def test_decode_image_drops_alpha():
    alpha = PIL.Image.fromarray(PIXELS.astype(np.uint8))
    alpha.putalpha(0)
    buffer = io.BytesIO()
    alpha.save(buffer, "PNG")
    np.testing.assert_array_equal(
        decode_image(buffer.getvalue(), 8), decode_image(encode(), 8)
    )


def test_decode_image_agrees_with_pillow():
    photo = PIL.Image.fromarray(PIXELS.astype(np.uint8))
    expected = np.asarray(photo.resize((16, 16), PIL.Image.BILINEAR))
    image = decode_image(encode(), 16)
    np.testing.assert_allclose(image, expected.astype(float), atol=1.0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_decode_images_batch(count):
    content = [encode(format="JPEG")] * count
    batch = decode_images(content, 8)
    assert batch.shape == (count, 8, 8, 3)
    for image in batch:
        np.testing.assert_array_equal(image, decode_image(content[0], 8))


def test_decode_image_is_the_same_in_dataset_map_and_graph():
    content = encode(format="JPEG")
    eager = decode_image(content, 8)
    dataset = tf.data.Dataset.from_tensors(content)
    mapped = dataset.map(lambda one: decode_image(one, 8))
    assert mapped.element_spec.shape == (8, 8, 3)
    np.testing.assert_array_equal(next(iter(mapped)), eager)
    signature = [tf.TensorSpec([None], tf.string)]
    graph = tf.function(
        lambda batch: decode_images(batch, 8), input_signature=signature
    )
    np.testing.assert_array_equal(graph(tf.constant([content]))[0], eager)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return photo_files.write_all(tmp_path_factory.mktemp("photos"))


def decode_in_a_pipeline(paths):
    """Yields whether training would decode a file, of one after the other."""
    encoded = [os.fsencode(path) for path in paths]
    photos = iter(
        tf.data.Dataset.from_tensor_slices(encoded).map(
            lambda one: decode_image(read_file(one), 8)
        )
    )
    for _ in paths:
        try:
            next(photos)
        except tf.errors.OpError:
            yield False
        else:
            yield True


def test_files_are_judged_alike_on_the_host_and_in_the_graph(folder):
    names = [*photo_files.CONTENTS, "link.jpg", photo_files.FOLDER]
    paths = [folder / name for name in names]
    found = dict(zip(names, faults(paths)))
    decoded = decode_in_a_pipeline(paths)
    for name, path in zip(names, paths):
        assert next(decoded) == (found[name] is None), name
        if path.is_file():
            assert fault_of(path) == found[name]
            assert fault_of(read_content(path)) == found[name]
    assert found.pop(photo_files.FOLDER) == "is no file"
    photos = [name for name, reason in found.items() if reason is None]
    assert sorted(photos) == photo_files.PHOTOS
    photo_files.assert_all_left_out(
        {name: reason for name, reason in found.items() if reason}
    )


@pytest.mark.parametrize("name", photo_files.REASONS)
def test_read_photo_names_the_broken_file(folder, name):
    with pytest.raises(BrokenImageError) as caught:
        read_photo(folder / name)
    assert caught.value.path == folder / name
    assert caught.value.reason.startswith(photo_files.REASONS[name])
    assert f"{folder / name}', which {caught.value.reason}." in str(
        caught.value
    )
    assert "{{" not in str(caught.value) and "[Op:" not in str(caught.value)


def test_sizes_of_photos_are_read_from_their_heads(folder):
    names = ["good.jpg", "alpha.png"]
    shapes = [read_photo(folder / name).shape[1::-1] for name in names]
    found = read_photo_sizes(folder / name for name in names)
    assert found.tolist() == [list(shape) for shape in shapes]
    assert read_photo_sizes([]).shape == (0, 2)
    for name in ("empty.jpg", "none.jpg"):
        with pytest.raises(BrokenImageError) as caught:
            read_photo_sizes([folder / name])
        assert caught.value.path == folder / name


def png_head(width, height):
    """Returns the content of a PNG up to its sides."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    return head + struct.pack(">II", width, height)


@pytest.mark.parametrize(
    "content, reason",
    [
        (png_head(0, 20), "has no pixels, or is cut"),
        (png_head(30, 20)[:20], "has no pixels, or is cut"),
        (png_head(30, 20)[:16], "has no pixels, or is cut"),
        (
            png_head(9000, 9000),
            "has 9000 x 9000 pixels, more than 80000000",
        ),
        (b"\xff\xd8\xff\xe0", "does not decode: Invalid JPEG data, size 4"),
        (b"GIF89a", "is no whole GIF file"),
        (b"%PDF-1.4", "is a PDF file: convert it"),
        (b"text", "is of another kind"),
    ],
)
def test_sizes_of_what_is_no_photo_are_refused(tmp_path, content, reason):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(BrokenImageError) as caught:
        read_photo_sizes([path])
    assert caught.value.reason == reason


def test_sizes_stand_behind_comments_of_any_length(tmp_path):
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (30, 20)).save(buffer, "JPEG")
    content = buffer.getvalue()
    comments = 5 * (b"\xff\xfe\xff\xff" + bytes(65533))
    path = tmp_path / "a.jpg"
    path.write_bytes(content[:2] + comments + content[2:])
    assert read_photo_sizes([path]).tolist() == [[30, 20]]


def test_faults_of_many_files_keep_their_order(folder):
    names = ["good.jpg", "empty.jpg", "alpha.png"] * 20
    found = list(faults(folder / name for name in names))
    assert found == [None, "is empty", None] * 20
    assert list(faults([])) == []


def test_faults_are_looked_for_no_further_than_asked(folder):
    found = faults([folder / "empty.jpg"] * 50)
    assert next(found) == "is empty"
    found.close()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_read_photo_is_decode_photo_of_the_file(folder, mode):
    name = {"RGB": "good.jpg", "L": "grey.jpg", "CMYK": "cmyk.jpg"}[mode]
    found = read_photo(folder / name)
    assert found.shape == (30, 40, 3) and found.dtype == np.uint8
    expected = decode_photo((folder / name).read_bytes())
    np.testing.assert_array_equal(found, expected)
    with PIL.Image.open(folder / name) as photo:
        by_pillow = np.asarray(photo.convert("RGB"), int)
    assert np.abs(found - by_pillow).mean() < 6


def huge_png(width=20_000, height=20_000):
    """Returns a PNG of one colour and 49 kB, without drawing it."""

    def chunk(name, data):
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    packer = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)  # A bit a pixel.
    rows = b"".join(packer.compress(row) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", rows + packer.flush())
        + chunk(b"IEND", b"")
    )


def with_sides(content, frame, width, height):
    """Returns a JPEG whose frame of some kind tells other sides."""
    at = content.index(frame) + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


BASELINE, PROGRESSIVE = b"\xff\xc0", b"\xff\xc2"
HUGE = {
    "png": huge_png(),
    "jpeg": with_sides(encode(format="JPEG"), BASELINE, 20_000, 20_000),
    "progressive": with_sides(
        encode(format="JPEG", progressive=True), PROGRESSIVE, 20_000, 20_000
    ),
}


def peak_memory():
    """Returns the most memory this process has had, in bytes."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture(
    params=["eager", "batch in a graph", "Dataset.map"], scope="module"
)
def decode_one(request):
    """Returns a function that decodes one photo to 8 x 8 pixels."""
    if request.param == "eager":
        return lambda content: decode_image(content, 8)
    if request.param == "Dataset.map":
        held = tf.Variable(b"", dtype=tf.string)
        mapped = tf.data.Dataset.range(1).map(lambda _: decode_image(held, 8))

        def next_of(content):
            held.assign(content)
            return next(iter(mapped))

        return next_of
    graph = tf.function(
        lambda batch: decode_images(batch, 8),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    return lambda content: graph(tf.constant([content]))[0]


@pytest.mark.parametrize("kind", list(HUGE))
def test_a_huge_photo_is_refused_before_it_is_decoded(kind, decode_one):
    decode_one(encode())
    before = peak_memory()
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"at most 80000000 pixels; .*width and height:\] \[20000 20000\]",
    ):
        decode_one(HUGE[kind])
    # 400 million pixels of three bytes are 1.2 GB.
    assert peak_memory() - before < 200e6


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_as_many_pixels_as_are_allowed_are_decoded(format, monkeypatch):
    monkeypatch.setattr(photo_kinds, "MAX_PIXELS", 40 * 60)
    assert decode_image(encode(format=format), 8).shape == (8, 8, 3)
    monkeypatch.setattr(photo_kinds, "MAX_PIXELS", 40 * 60 - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[60 40\]"):
        decode_image(encode(format=format), 8)


def smooth(width, height, **options):
    """Returns a JPEG file of slow waves, which any scale shows alike."""
    x, y = np.arange(width) / width, np.arange(height)[:, None] / height
    waves = [np.sin(5 * x + 3 * y + phase) for phase in (0, 1, 2)]
    pixels = 127 + 100 * np.stack(waves, axis=2)
    return encode(format="JPEG", pixels=pixels, quality=95, **options)


@pytest.mark.parametrize(
    ("sides", "decoded"),
    [
        # The shorter side of 8 pixels that are asked for, times 8, times 2.
        ((127, 200), (127, 200)),
        ((128, 200), (64, 100)),
        ((600, 250), (300, 125)),
        ((600, 257), (150, 65)),
        ((304, 256), (76, 64)),
        ((512, 600), (64, 75)),
        ((1104, 1104), (138, 138)),
    ],
)
def test_a_large_jpeg_is_decoded_at_a_part_of_its_size(sides, decoded):
    content = smooth(*sides)
    assert decode_photo(content, 8).shape == (decoded[1], decoded[0], 3)
    assert decode_photo(content).shape == (sides[1], sides[0], 3)
    if any(side % 8 for side in sides):
        return  # The last column of pixels is a part of one.
    whole = tf.image.resize(decode_photo(content), [8, 8], antialias=True)
    np.testing.assert_allclose(decode_image(content, 8), whole, atol=4)


def test_a_large_png_and_a_turned_jpeg():
    pixels = np.zeros([140, 150, 3])
    assert decode_photo(encode(pixels=pixels), 8).shape == (140, 150, 3)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # Turned by a quarter.
    content = smooth(130, 200, exif=exif)
    assert decode_photo(content, 8).shape == (65, 100, 3)


@pytest.mark.parametrize("sides", [(2**32 - 1, 2**32 - 1), (2**31, 1)])
def test_sides_beyond_31_bits_are_refused(sides):
    content = encode()
    content = content[:16] + struct.pack(">II", *sides) + content[24:]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{sides[0]}"):
        decode_image(content, 8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no photo at all",
        encode("P", "GIF"),
        encode(format="BMP"),
        encode(format="WEBP"),
        encode(format="TIFF"),
        encode()[:8],
        encode()[:8] + b"\x00\x00\x00\x01tEXt." + encode()[8:],
    ],
    ids="empty text gif bmp webp tiff start late_head".split(),
)
def test_other_kinds_of_files_are_refused(content, decode_one):
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"JPEG or PNG file; .*so many bytes:\] \[{len(content)}\]",
    ):
        decode_one(content)


@pytest.mark.parametrize("size", range(3, 30, 3))
@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_a_cut_head_is_an_error_of_the_argument(format, size):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_image(encode(format=format)[:size], 8)


def test_read_photo_tells_the_size_of_one_too_large(tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(HUGE["png"])
    for read in (read_photo, lambda path: read_photo_sizes([path])):
        with pytest.raises(ValueError, match="has 20000 x 20000 pixels, more"):
            read(path)


@pytest.mark.real_data
def test_read_photo_real_photo(data_root):
    path = sorted((data_root / "flickr8k" / "images").glob("*.jpg"))[0]
    with PIL.Image.open(path) as photo:
        expected = np.asarray(photo, np.float32)
    # JPEG decoders may differ by rounding.
    assert np.abs(read_photo(path) - expected).mean() < 1.0
