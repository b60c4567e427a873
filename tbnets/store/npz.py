"""Reading `.npz` files that may be damaged, or a stranger's."""

import os
import zipfile
import zlib

import numpy as np

from tbnets.errors import InputError
from tbnets.store.npy import parse_header

ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading and understanding such a file may raise."""


def read_npz(path):
    """Returns the arrays of an `.npz`, without pickle: key -> array.

    Raises:
        Some of ERRORS: it is no plain `.npz`, or one of its arrays says of
            itself that it is larger than what is there.
    """
    arrays, size = {}, os.path.getsize(path)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as stream:
                shape, dtype, needed, _ = parse_header(stream)
                if not needed == entry.file_size <= size:
                    raise InputError(
                        f"{entry.filename} says that it holds {shape} numbers "
                        f"of {dtype}, in {entry.file_size} bytes"
                    )
                stream.seek(0)
                array = np.lib.format.read_array(stream, allow_pickle=False)
            arrays[entry.filename.removesuffix(".npy")] = array
    return arrays
