"""Reading `.npz` files that may be damaged, or a stranger's."""

import os
import struct
import zipfile
import zlib

import numpy as np

from tbnets.errors import InputError
from tbnets.store.npy import parse_header

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


def read_npz(path, only=None):
    """Returns the arrays of an `.npz`, without pickle: key -> array.

    Args:
        path: the file.
        only: key of the one array to read; None for all of them.

    Raises:
        OSError: it can not be opened.
        ValueError: it is no plain `.npz`, or one of its arrays says of
            itself that it is larger than what is there.
    """
    with open(path, "rb") as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size, only)
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
