"""Reads `.npy` and `.npz` files that may be damaged or untrusted.

The size that an array's header claims is compared with the size of the file
before memory is allocated.
"""

import io
import json
import math
import os
import struct
import sys
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError
from tbnets.files import parse_json, require_file, write_atomically

COPY_AGAIN = "Copy the store again, or extract it into a new folder."

ERRORS = (
    *(LookupError, TypeError, ValueError, OverflowError, AttributeError),
    RecursionError,
)
"""Errors that invalid content of an `.npz` may raise."""
DAMAGES = (
    *(*ERRORS, EOFError, struct.error, zipfile.BadZipFile, zlib.error),
    OSError,  # An offset before the start of the file.
    RuntimeError,  # Encrypted, or an unsupported kind.
)
"""Errors that reading a damaged file or archive may raise."""
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


def read_header(path, expected, advice) -> Header:
    """Reads the `Header` of the array in a file.

    Raises a ValueError that contains `expected` and `advice` if it is damaged.
    """
    require_file(path)
    try:
        with open(path, "rb") as stream:
            return parse_header(stream)
    except ValueError as error:
        message = f"expected {expected}; found {error}. {advice}"
        raise InputError(f"{path}: {message}") from error


def check_numbers(path, expected, advice, fits) -> Header:
    """Checks that a file contains a complete numeric array; returns its header.

    Raises a ValueError that contains `expected` if the file is damaged, or if
    `fits(header)` is false.
    """
    header = read_header(path, expected, advice)
    expected = f"{path}: expected {expected}; found"
    description = f"shape {header.shape} and dtype {header.dtype}"
    description += ", column by column (Fortran's order)" * header.by_columns
    if header.dtype.kind not in "fiu" or not fits(header):
        raise InputError(f"{expected} {description}. {advice}")
    size = os.path.getsize(path)
    if size != header.size:
        raise InputError(
            f"{expected} {description}, which takes {header.size} bytes, in a "
            f"file of {size}. Copy or write it again."
        )
    return header


HEADER_BYTES = 128
"""Size of the result of `header_bytes`, for any number of rows."""


def header_bytes(shape, dtype) -> bytes:
    """Returns the start of a `.npy` file that contains an array of 1 or 2 axes.

    Its length does not depend on the shape, so a file can grow.
    """
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, "
    text += f"'shape': {tuple(shape)}, }}"
    magic = np.lib.format.magic(1, 0)
    length = HEADER_BYTES - len(magic) - 2
    line = text.ljust(length - 1).encode() + b"\n"
    return magic + length.to_bytes(2, "little") + line


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
        except DAMAGES as error:
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
                is_whole = num_bytes == entry.file_size <= size
                if not is_whole or dtype.kind not in "biuf":
                    raise InputError(
                        f"{entry.filename}, whose header has an array {shape} "
                        f"of {dtype}, in {entry.file_size} bytes"
                    )
                stream.seek(0)
                arrays[key] = np.lib.format.read_array(
                    stream, allow_pickle=False
                )
    return arrays
