"""`.npy` and `.npz` files that may lie, or be a stranger's.

What the header of an array says of it is compared with the file before
memory is taken for it. An `.npz` is stored, not compressed, and beside its
arrays has a JSON text, its header.
"""

import dataclasses
import functools
import itertools
import json
import math
import operator
import os
import struct
import sys
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError
from tbnets.files import CheckedFile, parse_json, require_file, write_atomically

# Rows of arrays in files that are open only while they are read.
#
# A file that is mapped keeps a descriptor for as long as it is mapped. A
# process has few of them, 1024 by custom, and 120,000 photos fill hundreds of
# shards. So a shard is opened, read and closed each time, which a batch does
# not feel: a row costs a few microseconds.

COPY_AGAIN = "Copy the store again, or extract it into a new folder."


@dataclasses.dataclass(frozen=True)
class RowFile:
    """The array that a `.npy` file holds, row by row.

    Args:
        path: the file.
        shape: of the array, rows first.
        dtype: `numpy.dtype` of the numbers in the file.
        start: the byte at which the first row begins.
    """

    path: str
    shape: tuple
    dtype: np.dtype
    start: int

    @functools.cached_property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, first, count) -> np.ndarray:
        """Returns rows that follow each other, as they are stored.

        Args:
            first: int, the first of them.
            count: how many.

        Raises:
            ValueError: the file has become shorter since it was opened.
        """
        rows = np.empty((count, *self.shape[1:]), self.dtype)
        with open(self.path, "rb") as file:
            self.fill(file, first, rows)
        return rows

    def map(self) -> np.ndarray:
        """Returns all rows, read where they are used; holds the file open."""
        mapped = np.memmap(self.path, np.uint8, "r")[self.start :]
        return mapped.view(np.ndarray).view(self.dtype).reshape(self.shape)

    def fill(self, file, first, out):
        """Reads rows that follow each other into an array in memory.

        Args:
            file: this one, opened to read bytes.
            first: int, the first of them.
            out: `[n, dim]` in C order, of any type of number.

        Raises:
            ValueError: the file has become shorter since it was opened.
        """
        stored = out
        if out.dtype != self.dtype:
            stored = np.empty(out.shape, self.dtype)
        offset = self.start + first * self.row_bytes
        file.seek(offset)
        count = file.readinto(stored.reshape(-1).view(np.uint8))
        if count < stored.nbytes:
            CheckedFile(self.path).report(
                f"expected {stored.nbytes} bytes from byte {offset} on; found "
                f"{count}. It was changed since it was opened. {COPY_AGAIN}"
            )
        if stored is not out:
            out[...] = stored


def copy_rows(files, starts, rows, out):
    """Copies rows of an array that several files hold, one after the other.

    Rows that follow each other are read at once.

    Args:
        files: list of `RowFile` of one `dim`.
        starts: int `[len(files) + 1]`, the row that each begins with; at the
            end, how many rows there are.
        rows: int `[n]`, each in [0, starts[-1]), in any order.
        out: `[n, dim]` in C order, of any type of number: gets the rows in
            the order asked for.

    Raises:
        ValueError: a file has become shorter since it was opened.
    """
    places = np.argsort(rows, kind="stable")
    rows = rows[places]
    numbers = np.searchsorted(starts, rows, side="right") - 1
    runs = np.stack([numbers, rows - starts[numbers], places])
    follows = (np.diff(runs) == [[0], [1], [1]]).all(axis=0)
    begins = np.flatnonzero(np.append(True, ~follows)[: len(rows)])
    counts = np.diff(np.append(begins, len(rows))).tolist()
    runs = zip(*runs[:, begins].tolist(), counts)
    for number, some in itertools.groupby(runs, operator.itemgetter(0)):
        with open(files[number].path, "rb") as file:
            for _, first, place, count in some:
                files[number].fill(file, first, out[place : place + count])


MOST_HEADER_BYTES = 10_000
"""NumPy reads longer headers only from files it is told to trust."""
ERRORS = (
    *(LookupError, TypeError, ValueError, OverflowError, AttributeError),
    RecursionError,
)
"""What understanding the arrays of such a file may raise."""
_DAMAGES = (
    *(*ERRORS, EOFError, struct.error, zipfile.BadZipFile, zlib.error),
    OSError,  # A place before the beginning of the file.
    RuntimeError,  # Encrypted, or of a kind that nobody reads.
)
_ZIP = b"PK"
_READERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
    (3, 0): (4, np.lib.format.read_array_header_2_0),
}
"""Version of the format -> bytes that tell a header's length, what reads it."""


class Header(NamedTuple):
    """What a `.npy` file says of itself, which may be a lie.

    Args:
        shape: tuple of int from 0.
        dtype: `numpy.dtype`.
        size: the bytes that such a file takes.
        by_columns: whether the first index runs fastest (Fortran's order).
    """

    shape: tuple
    dtype: np.dtype
    size: int
    by_columns: bool


def parse_header(stream):
    """Reads the header of an array from an open file, at its start.

    Returns:
        A `Header`.

    Raises:
        ValueError: there is no such header; the message tells what is.
    """
    is_archive = stream.read(len(_ZIP)) == _ZIP
    stream.seek(0)
    if is_archive:
        raise InputError("an archive of several arrays (.npz)")
    version = np.lib.format.read_magic(stream)
    if version not in _READERS:
        raise InputError(f"the unknown version {version} of its format")
    width, read = _READERS[version]
    start = stream.tell()
    length = int.from_bytes(stream.read(width), "little")
    if length > MOST_HEADER_BYTES:
        raise InputError(f"a header of {length} bytes")
    stream.seek(start)
    try:
        shape, by_columns, dtype = read(stream)
    except Exception as error:  # It is parsed as Python, and may be any.
        raise InputError(f"a broken header ({error})") from error
    if not all(0 <= length <= sys.maxsize for length in shape):
        raise InputError(f"the shape {shape}")
    size = stream.tell() + math.prod(shape) * dtype.itemsize
    return Header(shape, dtype, size, by_columns)


def check_numbers(path, expected, advice, fits) -> Header:
    """Refuses a file that is no array of numbers, or not as long as it says.

    Args:
        path: the file.
        expected: what it must be, for the message.
        advice: what to do where it is something else.
        fits: function that tells whether a `Header` is of what is expected.

    Returns:
        Its `Header`.

    Raises:
        ValueError: names the file, what was expected and found.
        FileNotFoundError, IsADirectoryError: there is no such file.
    """
    expected = f"{path}: expected {expected}; found"
    require_file(path)
    try:
        with open(path, "rb") as stream:
            header = parse_header(stream)
    except ValueError as error:
        raise InputError(f"{expected} {error}. {advice}") from error
    found = f"shape {header.shape} and dtype {header.dtype}"
    found += ", column by column (Fortran's order)" * header.by_columns
    if header.dtype.kind not in "fiu" or not fits(header):
        raise InputError(f"{expected} {found}. {advice}")
    size = os.path.getsize(path)
    if size != header.size:
        damage = "truncated" if size < header.size else "longer than it says"
        raise InputError(
            f"{expected} {found}, which takes {header.size} bytes, in a file "
            f"of {size}. The file is {damage}: copy or make it again."
        )
    return header


def write_npz(path, header, arrays):
    """Writes what `read_npz` reads, complete or not at all.

    Raises:
        OSError: the disk is full or read-only; an older file at `path`
            survives.
    """
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, header=text, **arrays))


def read_npz(path, only=None):
    """Reads the arrays of an `.npz` and its header, without pickle.

    Args:
        path: the file.
        only: key of the one array to read; None for all of them.

    Returns:
        (header, arrays): a JSON value, and key -> array.

    Raises:
        OSError: it can not be opened.
        ValueError: it is no plain `.npz`, or one of its arrays says of
            itself that it is larger than what is there.
    """
    with open(path, "rb") as file:
        try:
            arrays = _read(file, os.fstat(file.fileno()).st_size, only)
            return parse_json(arrays.pop("header").tobytes()), arrays
        except _DAMAGES as error:
            raise InputError(str(error) or type(error).__name__) from error


def _read(file, size, only):
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            key = entry.filename.removesuffix(".npy")
            if only not in (None, key):
                continue
            if entry.compress_type != zipfile.ZIP_STORED:
                raise InputError(f"{entry.filename} is compressed")
            with archive.open(entry) as stream:
                shape, dtype, needed, _ = parse_header(stream)
                if not needed == entry.file_size <= size:
                    raise InputError(
                        f"{entry.filename} says that it holds {shape} numbers "
                        f"of {dtype}, in {entry.file_size} bytes"
                    )
                stream.seek(0)
                arrays[key] = np.lib.format.read_array(
                    stream, allow_pickle=False
                )
    return arrays
