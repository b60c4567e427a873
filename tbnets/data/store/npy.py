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
from tbnets.files import (
    CheckedFile,
    parse_json,
    require_file,
    write_atomically,
)

COPY_AGAIN = "Copy the store again, or extract it into a new folder."

ERRORS = (
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors that invalid content of an `.npz` may raise."""
DAMAGES = (
    *ERRORS,
    EOFError,
    OSError,  # An offset before the start of the file.
    RuntimeError,  # Encrypted, or an unsupported kind.
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors that reading a damaged file or archive may raise."""
_HEAD_BYTES = 2**14
"""More bytes than the longest header that NumPy accepts by default."""


class Header(NamedTuple):
    """The unverified header of a `.npy` file.

    The numbers begin at byte `start`. `by_columns` is true for Fortran order.
    """

    shape: tuple
    dtype: np.dtype
    start: int
    by_columns: bool

    def end(self, shape):
        """Returns the byte after the last number of an array of a shape."""
        return self.start + math.prod(shape) * self.dtype.itemsize


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
    return Header(shape, dtype, head.tell(), by_columns)


def open_numbers(path, expected, advice, fits, num_rows=None):
    """Opens the array in a `.npy` file, memory-mapped and read-only.

    Raises a ValueError that contains `expected` and `advice` if the file is
    damaged or does not contain numbers, or if `fits(header)` is false.

    If `num_rows` is set, these first rows are returned. The file may then
    contain more rows, which a writer has not finished.
    """
    require_file(path)
    file, expected = CheckedFile(path), f"expected {expected}; found"
    try:
        with open(path, "rb") as stream:
            header = parse_header(stream)
    except ValueError as error:
        file.report(f"{expected} {error}. {advice}")
    shape, size = header.shape, os.path.getsize(path)
    is_whole = size == header.end(shape)
    if num_rows is not None:
        shape = (num_rows, *shape[1:])
        is_whole = size >= header.end(shape)
    order = "F" if header.by_columns else "C"
    if header.dtype.kind not in "fiu" or not fits(header) or not is_whole:
        file.report(
            f"{expected} shape {header.shape}, dtype {header.dtype} and order "
            f"{order} in a file of {size} bytes. {advice}"
        )
    if 0 in shape:
        return np.empty(shape, header.dtype)
    return np.memmap(path, header.dtype, "r", header.start, shape, order)


def header_bytes(shape, dtype) -> bytes:
    """Returns the start of a `.npy` file that contains an array of 1 or 2 axes.

    Its length does not depend on the shape, so a file can grow.
    """
    file = io.BytesIO()
    fields = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


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
                header = parse_header(stream)
                is_whole = header.end(header.shape) == entry.file_size <= size
                if not is_whole or header.dtype.kind not in "biuf":
                    raise InputError(
                        f"{entry.filename}, whose header has {header}, in "
                        f"{entry.file_size} bytes"
                    )
                stream.seek(0)
                arrays[key] = np.lib.format.read_array(
                    stream, allow_pickle=False
                )
    return arrays
