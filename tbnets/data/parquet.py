"""Reads photos and captions in parquet files.

A row group can only be decoded as a whole, so its photos are copied to a
temporary file.
"""

import atexit
import collections
import contextlib
import errno
import functools
import hashlib
import os
import tempfile
import threading

import numpy as np

from tbnets.data.layouts import COLUMN_NAMES, bare
from tbnets.errors import FileError, import_extra
from tbnets.files import CheckedFile

_PHOTOS_AT_ONCE, _ROWS_AT_ONCE = 16, 1024
_BUFFER_BYTES = 1 << 20
_LOCK = threading.Lock()


class ParquetFile:
    """A parquet file.

    `columns` are the columns that may contain captions, names or splits.
    `names` contains the name of each row's photo; it is empty if there are no
    photos. `places` maps each name to its first row.
    """

    def __init__(self, path):
        self.path = path
        with self._open() as file:
            schema, metadata = file.schema_arrow, file.metadata
            groups = range(metadata.num_row_groups)
            sizes = [metadata.row_group(group).num_rows for group in groups]
            self.columns = [x.name for x in schema if _is_read(x)]
            self._photo, self._names = _photo_columns(schema)
        self._starts, self._copies = np.cumsum([0, *sizes]), {}
        self.names = self._find_names() if self._photo else []
        self.places = {}
        for row, name in enumerate(self.names):
            self.places.setdefault(name, row)

    @contextlib.contextmanager
    def _open(self):
        arrow = import_extra("data", "pyarrow")
        parquet = import_extra("data", "pyarrow.parquet")
        try:
            yield parquet.ParquetFile(self.path, buffer_size=_BUFFER_BYTES)
        except FileError:
            raise
        except (arrow.ArrowException, OSError) as error:
            text = f"expected a parquet file; found: {error}. Copy it again."
            CheckedFile(self.path).report(text)

    def rows(self, columns):
        """Yields a dict for each row, from the given columns to its values."""
        with self._open() as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                yield from batch.to_pylist()

    def _find_names(self):
        """Returns the name of each row's photo.

        These are the names in the file if each refers to a single photo.
        Otherwise, they contain the row number.
        """
        column = self._names or next(
            (x for x in self.columns if bare(x) in COLUMN_NAMES["image"]), ""
        )
        count, file = int(self._starts[-1]), CheckedFile(self.path, [])
        names = [None]
        if column:
            outer, _, inner = column.partition(".")
            values = [row[outer] for row in self.rows([column])]
            values = [(x or {}).get(inner) for x in values] if inner else values
            names = [file.file_name(_relative(value)) for value in values]
        if None in names or not self._have_one_photo_each(names):
            stem = os.path.splitext(os.path.basename(self.path))[0]
            names = [f"{stem}-{row}" for row in range(count)]
        return names

    def _have_one_photo_each(self, names):
        counts, sums = collections.Counter(names), {}
        for row, name in enumerate(names):
            if counts[name] > 1:
                digest = hashlib.sha256(self._read_row(row)).digest()
                if sums.setdefault(name, digest) != digest:
                    return False
        return True

    @property
    def photos(self):
        """The names of the photos."""
        return iter(self.places)

    def read(self, name):
        """Returns the content of a photo."""
        return self._read_row(self.places[name])

    def _read_row(self, row):
        # Forked processes would share the position in one file.
        process = os.getpid()
        copies = _temporary_file(process)
        with _LOCK:
            if (process, row) not in self._copies:
                group = int(np.searchsorted(self._starts, row, "right")) - 1
                self._copy_group(group, copies, process)
            offset, size = self._copies[process, row]
            copies.seek(offset)
            return copies.read(size)

    def _copy_group(self, group, copies, process):
        offset, row = copies.seek(0, os.SEEK_END), int(self._starts[group])
        outer, _, inner = self._photo.partition(".")
        options = {"row_groups": [group], "columns": [self._photo]}
        with self._open() as file:
            for batch in file.iter_batches(_PHOTOS_AT_ONCE, **options):
                for value in batch.column(outer).to_pylist():
                    value = (value or {}).get(inner) if inner else value
                    content = value or b""
                    _write(copies, content)
                    self._copies[process, row] = offset, len(content)
                    offset, row = offset + len(content), row + 1


@functools.cache
def _temporary_file(process):
    file = tempfile.TemporaryFile()
    atexit.register(file.close)
    return file


def _write(file, content):
    try:
        file.write(content)
    except OSError as error:
        raise FileError(
            errno.ENOSPC,
            "The photos of parquet files are copied to a temporary file. "
            f"Received: {error.strerror} in {tempfile.gettempdir()}. Set "
            "TMPDIR to a folder with more space.",
        ) from error


def _relative(name):
    is_absolute = isinstance(name, str) and os.path.isabs(name)
    return os.path.basename(name) if is_absolute else name


def _is_read(field):
    """Returns whether a column may contain captions, names or splits."""
    types = import_extra("data", "pyarrow").types
    kind = field.type
    if types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
    elif types.is_integer(kind):
        return bare(field.name) in COLUMN_NAMES["image"]
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind)


def _photo_columns(schema):
    types = import_extra("data", "pyarrow").types
    for field in schema:
        if types.is_binary(field.type) or types.is_large_binary(field.type):
            return field.name, ""
        if types.is_struct(field.type):
            parts = {part.name: part.type for part in field.type}
            if "bytes" in parts and types.is_binary(parts["bytes"]):
                has_path = "path" in parts and types.is_string(parts["path"])
                return f"{field.name}.bytes", f"{field.name}.path" * has_path
    return "", ""
