"""Reads `.npy` and `.npz` files that may be damaged or untrusted.

The size that an array's header claims is compared with the size of the file
before memory is allocated.
"""

import dataclasses
import functools
import io
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

# A memory-mapped file occupies a descriptor. A process has 1024 by default, and
# 120,000 photos fill hundreds of shards. Therefore files are open only while
# rows are read, which costs a few microseconds per row.

COPY_AGAIN = "Copy the store again, or extract it into a new folder."


@dataclasses.dataclass(frozen=True)
class RowFile:
    """The array in a `.npy` file, whose rows are read on demand.

    `start` is the byte offset of the first row.
    """

    path: str
    shape: tuple
    dtype: np.dtype
    start: int

    @functools.cached_property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, first, count) -> np.ndarray:
        """Returns `count` consecutive rows, starting at `first`, as stored."""
        rows = np.empty((count, *self.shape[1:]), self.dtype)
        with open(self.path, "rb") as file:
            self.fill(file, first, rows)
        return rows

    def map(self) -> np.ndarray:
        """Returns a memory-mapped array of all rows. Keeps the file open."""
        mapped = np.memmap(self.path, np.uint8, "r")[self.start :]
        return mapped.view(np.ndarray).view(self.dtype).reshape(self.shape)

    def fill(self, file, first, out):
        """Reads consecutive rows, starting at `first`, into `out`.

        `file` is this file, opened in binary mode, and `out` is a C-contiguous
        array.
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
    """Copies rows of an array that is stored in several files.

    `starts`, int `[len(files) + 1]`, contains each file's first row and the
    total number of rows. Row `rows[i]`, in any order, is copied to `out[i]`;
    `out` is a C-contiguous numeric array `[n, dim]`.
    """
    places = np.argsort(rows, kind="stable")
    rows = rows[places]
    numbers = np.searchsorted(starts, rows, side="right") - 1
    runs = np.stack([numbers, rows - starts[numbers], places])
    follows = (np.diff(runs) == [[0], [1], [1]]).all(axis=0)
    begins = np.flatnonzero(np.append(True, ~follows)[: len(rows)])
    counts = np.diff(np.append(begins, len(rows))).tolist()
    runs = zip(*runs[:, begins].tolist(), counts)
    for number, file_runs in itertools.groupby(runs, operator.itemgetter(0)):
        with open(files[number].path, "rb") as file:
            for _, first, place, count in file_runs:
                files[number].fill(file, first, out[place : place + count])


ERRORS = (
    *(LookupError, TypeError, ValueError, OverflowError, AttributeError),
    RecursionError,
)
"""Errors that invalid content of an `.npz` may raise."""
_DAMAGES = (
    *(*ERRORS, EOFError, struct.error, zipfile.BadZipFile, zlib.error),
    OSError,  # An offset before the start of the file.
    RuntimeError,  # Encrypted, or an unsupported kind.
)
_HEAD_BYTES = 2**14
"""More bytes than the longest header that NumPy accepts by default."""


class Header(NamedTuple):
    """The unverified header of a `.npy` file.

    `size` is the size in bytes that the file should have. `by_columns` is true
    for Fortran order.
    """

    shape: tuple
    dtype: np.dtype
    size: int
    by_columns: bool


def parse_header(stream):
    """Reads the `Header` of an array at the start of an open file."""
    # NumPy would allocate the length that the file claims for its header.
    head = io.BytesIO(stream.read(_HEAD_BYTES))
    if head.getvalue().startswith(b"PK"):
        raise InputError("an archive of several arrays (.npz)")
    try:
        major, minor = np.lib.format.read_magic(head)
        name = f"read_array_header_{major}_{minor}"
        shape, by_columns, dtype = getattr(np.lib.format, name)(head)
    except Exception as error:  # NumPy evaluates the header as Python.
        raise InputError(f"a broken header ({error})") from error
    if not all(0 <= length <= sys.maxsize for length in shape):
        raise InputError(f"the shape {shape}")
    size = head.tell() + math.prod(shape) * dtype.itemsize
    return Header(shape, dtype, size, by_columns)


def check_numbers(path, expected, advice, fits) -> Header:
    """Checks that a file contains a complete numeric array; returns its header.

    Raises a ValueError that contains `expected` if the file is damaged, or if
    `fits(header)` is false.
    """
    expected = f"{path}: expected {expected}; found"
    require_file(path)
    try:
        with open(path, "rb") as stream:
            header = parse_header(stream)
    except ValueError as error:
        raise InputError(f"{expected} {error}. {advice}") from error
    description = f"shape {header.shape} and dtype {header.dtype}"
    description += ", column by column (Fortran's order)" * header.by_columns
    if header.dtype.kind not in "fiu" or not fits(header):
        raise InputError(f"{expected} {description}. {advice}")
    size = os.path.getsize(path)
    if size != header.size:
        damage = "truncated" if size < header.size else "too long"
        raise InputError(
            f"{expected} {description}, which takes {header.size} bytes, in a "
            f"file of {size}. The file is {damage}: copy or write it again."
        )
    return header


def write_npz(path, header, arrays):
    """Writes a JSON value and arrays atomically to a file for `read_npz`."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, header=text, **arrays))


def read_npz(path, only=None):
    """Reads a file of `write_npz` without pickle; returns (header, arrays).

    `only` is the key of a single array to read, or None to read all arrays.
    Raises ValueError if the file is damaged.
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
                shape, dtype, num_bytes, _ = parse_header(stream)
                if not num_bytes == entry.file_size <= size:
                    raise InputError(
                        f"{entry.filename}, whose header has {shape} numbers "
                        f"of {dtype}, in {entry.file_size} bytes"
                    )
                stream.seek(0)
                arrays[key] = np.lib.format.read_array(
                    stream, allow_pickle=False
                )
    return arrays
