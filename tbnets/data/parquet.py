"""Reads photos and captions in parquet files.

A row group can only be decoded from its start. Photos that are read in the
order of the rows are decoded one by one. Before any other photo is read, the
photos of its row group are copied to a temporary file. Equal photos are copied
once.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import tempfile
import threading
from typing import Any

import numpy as np

from tbnets.data.layouts import COLUMN_NAMES, column_key, named_columns
from tbnets.errors import import_extra
from tbnets.files import CheckedFile, listed

_PHOTO_NAMES = [
    *COLUMN_NAMES["image"],
    *"picture image_byte byte content jpg jpeg png webp".split(),
]
"""The usual names of a column of photos (`layouts.named_columns`)."""
_BUFFER_BYTES = 1 << 20
_SMALL_BYTES, _MOST_TIMES = 1 << 26, 100
"""A row group may decompress to the first number of bytes, or to the second
times the size of the file. Repeated texts may take the same memory."""
_LARGE_BYTES = 1 << 30
"""Like `_SMALL_BYTES`, for repeated photos, which are not kept in memory."""
_SMALL_ROWS, _ROWS_PER_BYTE = 1 << 17, 8
"""A row group may have the first number of rows, or the second number for each
byte of the file."""
_LOCK = threading.Lock()


_NEXT: list[Any] = [None, iter(())]
"""The file and the row of the photo after the last that was decoded, and the
photos from this row on. Only one file remains open."""
atexit.register(_NEXT.clear)


class ParquetFile:
    """A parquet file.

    `columns` are the columns that may contain captions, names or splits.
    `names` contains the name of each row's photo; it is empty if there are no
    photos. `places` maps each name to its first row, and `photos` has its keys.
    `stream` is the open file, if `path` is not a path on this machine.
    """

    def __init__(self, path, stream=None):
        self.path, self._source = path, stream or path
        self._metadata = None
        with self._open() as file:
            self._metadata, schema = file.metadata, file.schema_arrow
            self.columns = [x.name for x in schema if _is_read(x)]
            is_nested = import_extra("data", "pyarrow").types.is_nested
            self._flat = {x.name for x in schema if not is_nested(x.type)}
            self._photo, self._names = self._photo_columns(schema)
        end = stream.seek(0, os.SEEK_END) if stream else os.path.getsize(path)
        self._size = end
        self._check_sizes()
        groups = range(self._metadata.num_row_groups)
        sizes = [self._metadata.row_group(group).num_rows for group in groups]
        self._starts = np.cumsum([0, *sizes])
        self._copies, self._copy_of_digest = {}, {}
        self.names = self._find_names() if self._photo else []
        self.places = {}
        for row, name in enumerate(self.names):
            self.places.setdefault(name, row)
        self.photos = self.places.keys()

    @contextlib.contextmanager
    def _open(self, dictionaries=()):
        arrow = import_extra("data", "pyarrow")
        parquet = import_extra("data", "pyarrow.parquet")
        try:
            with parquet.ParquetFile(
                self._source,
                metadata=self._metadata,
                read_dictionary=dictionaries,
                buffer_size=_BUFFER_BYTES,
            ) as file:
                yield file
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            text = f"expected a parquet file; found: {error}. Copy it again."
            CheckedFile(self.path).report(text)

    def _photo_columns(self, schema):
        """Returns (column of photos, column of their names); "" if none.

        A column with the name of photos is preferred. Otherwise, the column is
        the only one of bytes or of `{bytes, path}`; a column of bytes is not
        used if there is a column of names of photos.
        """
        flat = {x.name: x.type for x in schema.empty_table().flatten().schema}
        columns = {}
        for name, kind in flat.items():
            is_whole = name in schema.names
            column = name if is_whole else name.removesuffix(".bytes")
            if column in schema.names and _is_kind(kind, "binary"):
                path = "" if is_whole else f"{column}.path"
                has_path = path in flat and _is_kind(flat[path], "string")
                columns[column] = name, path * has_path
        if names := named_columns([*columns], _PHOTO_NAMES):
            return columns[names[0]]
        if self._column_of_names():
            columns = {x: pair for x, pair in columns.items() if x != pair[0]}
        if len(columns) > 1:
            expected = "one column of photos, or one named image"
            CheckedFile(self.path).refuse(expected, listed([*columns]))
        return next(iter(columns.values()), ("", ""))

    def _column_of_names(self):
        names = (
            x for x in self.columns if column_key(x) in COLUMN_NAMES["image"]
        )
        return next(names, "")

    def _check_sizes(self):
        """Reports row groups that would take too much memory."""
        # Reading the metadata of a column can end the process if the file is
        # damaged; reading those of a row group cannot.
        file, size = CheckedFile(self.path), self._size
        for group in range(self._metadata.num_row_groups):
            row_group = self._metadata.row_group(group)
            for what, value, small, most in (
                ("bytes", row_group.total_byte_size, _SMALL_BYTES, _MOST_TIMES),
                ("rows", row_group.num_rows, _SMALL_ROWS, _ROWS_PER_BYTE),
            ):
                most = max(small, most * size)
                if not 0 <= value <= most:
                    expected = f"at most {most} {what} in row group {group}"
                    file.refuse(expected, value)

    def _batches(self, columns, groups=None):
        """Yields record batches; limits the bytes of repeated values."""
        # A repeated value takes memory once in a dictionary, which pyarrow
        # supports only outside structs and lists. Small batches of dictionaries
        # would be slow, and photos are read one by one.
        is_flat = {*columns} <= self._flat
        rows_at_once = 1 if groups else 1024 if is_flat else 16
        num_bytes, size = 0, self._size
        least = _LARGE_BYTES if groups else _SMALL_BYTES
        most = max(least, _MOST_TIMES * size)
        with self._open(columns if rows_at_once == 1024 else ()) as file:
            for batch in file.iter_batches(rows_at_once, groups, columns):
                num_bytes += 0 if is_flat else batch.nbytes
                if num_bytes > most:
                    expected = f"at most {most} bytes in {', '.join(columns)}"
                    CheckedFile(self.path).refuse(expected, num_bytes)
                yield batch

    def rows(self, columns):
        """Yields a dict for each row, from the given columns to its values."""
        for batch in self._batches(columns):
            values = {name: _list(batch.column(name)) for name in columns}
            for row in range(batch.num_rows):
                yield {name: values[name][row] for name in columns}

    def table(self):
        """Returns the content as a `pyarrow.Table`."""
        with self._open() as file:
            return file.read()

    def _find_names(self):
        """Returns the name of each row's photo.

        A row without a valid name is named by its number, and so are rows with
        one name and different photos.
        """
        file, names = CheckedFile(self.path, []), []
        if column := self._names or self._column_of_names():
            values = self._values(column)
            names = [file.file_name(_relative(value)) for value in values]
        differ = {None}
        if len({*names}) < len(names):
            groups, digests = range(self._metadata.num_row_groups), {}
            for name, content in zip(names, self._contents(groups)):
                digest = hashlib.sha256(content).digest()
                if digests.setdefault(name, digest) != digest:
                    differ.add(name)
        stem = os.path.splitext(os.path.basename(self.path))[0]
        names = names or [None] * int(self._starts[-1])
        return [
            f"{stem}-{row}" if name in differ else name
            for row, name in enumerate(names)
        ]

    def read(self, name):
        """Returns the content of a photo."""
        row = self.places[name]
        group = int(np.searchsorted(self._starts, row, "right")) - 1
        with _LOCK:
            if row not in self._copies:
                if row == self._starts[group]:
                    _NEXT[:] = None, None  # Frees memory.
                    _NEXT[:] = (self, row), self._contents([group])
                if _NEXT[0] == (self, row):
                    _NEXT[0] = self, row + 1
                    # An iterator ends where its file is damaged.
                    if (content := next(_NEXT[1], None)) is not None:
                        return content
                self._copy_group(group)
            file, offset, size = self._copies[row]
            return os.pread(file.fileno(), size, offset)

    def _copy_group(self, group):
        _NEXT[:] = None, None
        # Forked processes would write at the same place in one file.
        file, row = _temporary_file(os.getpid()), int(self._starts[group])
        for content in self._contents([group]):
            digest = hashlib.sha256(content).digest()
            if digest not in self._copy_of_digest:
                offset = file.seek(0, os.SEEK_END)
                file.write(content)
                self._copy_of_digest[digest] = file, offset, len(content)
            self._copies[row] = self._copy_of_digest[digest]
            row += 1

    def _contents(self, groups):
        """Yields the content of each photo; b"" if it is null."""
        return (x or b"" for x in self._values(self._photo, groups))

    def _values(self, column, groups=None):
        """Yields the values of a column, or of a field in a column."""
        outer, _, inner = column.partition(".")
        for batch in self._batches([column], groups):
            array = batch.column(outer)
            if inner:  # With the null values of the struct itself.
                place = array.type.get_field_index(inner)
                array = array.flatten()[place]
            yield from _list(array)


def _list(array):
    """Returns the values of an array; equal values are one object."""
    types = import_extra("data", "pyarrow").types
    if not types.is_dictionary(array.type):
        return array.to_pylist()
    places = array.indices.to_pylist()
    used = sorted({*places} - {None})
    values = dict(zip(used, array.dictionary.take(used).to_pylist()))
    return [values.get(place) for place in places]


@functools.cache
def _temporary_file(process):
    file = tempfile.TemporaryFile(buffering=0)
    atexit.register(file.close)
    return file


def _relative(name):
    is_absolute = isinstance(name, str) and os.path.isabs(name)
    return os.path.basename(name) if is_absolute else name


def _is_kind(kind, name):
    """Returns whether an Arrow type is, for example, one of `binary` types."""
    types = import_extra("data", "pyarrow").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = f"is_{name}", f"is_large_{name}", f"is_{name}_view"
    return any(getattr(types, test)(kind) for test in tests)


def _is_read(field):
    """Returns whether a column may contain captions, names or splits."""
    types = import_extra("data", "pyarrow").types
    kind = field.type
    if types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
        # Equal values of a dictionary in a list would not be one object.
        return _is_kind(kind, "string") and not types.is_dictionary(kind)
    if types.is_integer(kind):
        return column_key(field.name) in COLUMN_NAMES["image"]
    return _is_kind(kind, "string")
