"""Tests of photos inside tar archives."""

import tarfile

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data import archives, images
from tbnets.errors import InputError
from tests.archives import write_tar
from tests.photo_files import encode

LONG = "folder/" * 30 + "Bücher ✓.jpg"
CONTENTS = {
    "dog.jpg": encode(),
    "dog.txt": b"A dog.",
    "./more//cat.png": encode(format="PNG", seed=1),
    LONG: encode(format="WEBP", seed=2),
    ".hidden.jpg": b"",
}
PHOTOS = ["dog.jpg", "more/cat.png", LONG]


@pytest.fixture
def shard(tmp_path):
    return write_tar(tmp_path / "shard.tar", CONTENTS)


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_photos_in_an_archive_are_read_like_files(tmp_path, format):
    shard = write_tar(tmp_path / "shard.tar", CONTENTS, format=format)
    assert [*archives.open_archive(shard).places] == [
        *("dog.jpg", "dog.txt", "more/cat.png", LONG)
    ]
    for name in PHOTOS:
        path = shard / name
        content = CONTENTS.get(name, CONTENTS["./more//cat.png"])
        assert archives.is_file(path) and not path.is_file()
        assert archives.read_bytes(path) == content
        assert archives.stamp(path) == archives.stamp(shard)
        expected = images.read_photo(content)
        np.testing.assert_array_equal(images.read_photo(path), expected)


def test_links_are_not_followed(tmp_path):
    path = tmp_path / "shard.tar"
    (tmp_path / "secret.jpg").write_bytes(encode())
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo(f"{kind[0]}.jpg")
            member.type, member.linkname = kind, "secret.jpg"
            archive.addfile(member)
    assert archives.open_archive(path).places == {}


@pytest.mark.parametrize(
    "contents",
    [
        [("../a.jpg", b"")],
        [("/a.jpg", b"")],
        [("a.jpg", b"1"), ("a.jpg", b"2")],
        [("a.jpg", b"1"), ("./a.jpg", b"2")],
    ],
)
def test_names_that_are_outside_or_not_unique(tmp_path, contents):
    path = write_tar(tmp_path / "shard.tar", contents)
    with pytest.raises(InputError, match="shard.tar: byte"):
        archives.open_archive(path)


def _damaged(content):
    """Yields damaged archives, given one with a first file of 6 bytes."""
    yield b""
    yield b"PK\3\4" + bytes(2000)
    for size in (100, 512, 515, 1024, 2000):
        yield content[:size]
    for field, value in {
        100: b"9",  # A digit that is not octal.
        148: b"0000000",  # The checksum.
        1024: b"?",  # The name of the second file.
    }.items():
        yield content[:field] + value + content[field + len(value) :]
    header = bytearray(content[:512])
    for size in (b"77777777777\0", b"\xff" * 12):  # 8 GB, and -1.
        header[124:136] = size
        yield _with_checksum(header) + content[512:]
    header[156:157] = b"x"  # A description of the next file.
    header[124:136] = b"00004000000\0"
    yield _with_checksum(header) + bytes(2**20)


def _with_checksum(header):
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def test_damaged_archives_are_rejected(tmp_path):
    contents = {"a.txt": b"A dog.", "a.jpg": encode()}
    path = tmp_path / "shard.tar"
    write_tar(path, contents, format=tarfile.GNU_FORMAT)
    for number, content in enumerate(_damaged(path.read_bytes())):
        damaged = tmp_path / f"{number}.tar"
        damaged.write_bytes(content)
        with pytest.raises(InputError, match=f"{number}.tar: byte"):
            archives.open_archive(damaged)


def test_only_zeros_may_follow_an_archive(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"a.jpg": encode(), "a.txt": b"A"})
    content = path.read_bytes()
    path.write_bytes(content + bytes(2**21))
    assert [*archives.open_archive(path).places] == ["a.jpg", "a.txt"]
    for rest in (b"x", b"x" * 512, content):
        path.write_bytes(content + bytes(2**20) + rest)
        with pytest.raises(InputError, match=r"a\.tar: byte"):
            archives.open_archive(path)


def test_a_batch_has_photos_in_archives_and_in_folders(tmp_path, shard):
    contents = [*CONTENTS.values()][:1] * 2 + [encode(format="BMP")]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.jpg").write_bytes(content)
    folder = [str(tmp_path / f"{number}.jpg") for number in range(3)]
    inside = [str(shard / name) for name in PHOTOS]
    signature = [tf.TensorSpec([None], tf.string)]
    read = tf.function(images.read_files, input_signature=signature)
    for paths in (folder, inside, folder + inside, []):
        found = read(tf.constant(paths, tf.string)).numpy().tolist()
        assert found == [images.read_content(path) for path in paths]
