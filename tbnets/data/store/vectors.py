"""Reads and writes vectors of photos in Parquet files.

`tbnets embed` writes these files. A row has the columns `id`, `embedding` (a
fixed-size list of float32), `status` ("", or the fault of a photo whose
embedding is 0) and `sha256`, the digest of the photo's content. The metadata of
a file has the key `tbnets`: a JSON value that describes the network.
"""

import contextlib
import json

import numpy as np

from tbnets.data.archives import list_archives
from tbnets.data.parquet import ParquetFile
from tbnets.data.store.features import FeatureArray
from tbnets.errors import InputError, import_extra
from tbnets.files import CheckedFile, parse_json

SUFFIX = ".parquet"
COLUMNS = ("id", "embedding", "status")
_KEY = b"tbnets"


def table_of(rows, dim, made_by):
    """Returns a `pyarrow.Table` of rows, a list of dicts.

    `dim` is the size of an embedding. `made_by` describes the network.
    """
    arrow = import_extra("data", "pyarrow")
    fields = [(name, arrow.string()) for name in ("id", "status", "sha256")]
    fields.insert(1, ("embedding", arrow.list_(arrow.float32(), dim)))
    metadata = {_KEY: json.dumps(made_by, sort_keys=True)}
    schema = arrow.schema(fields, metadata=metadata)
    return arrow.Table.from_pylist(rows, schema)


def made_by_of(schema):
    """Returns the description of the network in a file's schema, or {}."""
    with contextlib.suppress(ValueError):
        made_by = parse_json((schema.metadata or {}).get(_KEY, b"{}"))
        return made_by if isinstance(made_by, dict) else {}
    return {}


def read_vectors(path):
    """Yields (file, made_by, ids, vectors, failed) for each Parquet file.

    `path` is a file or a pattern, as in `archives.list_archives`. `vectors` is
    float32 `[n, dim]`, and `failed` maps the ids of photos without an embedding
    to reasons. Raises ValueError if a file has other columns.
    """
    for name in list_archives(path, (SUFFIX,))[1]:
        yield name, *_read_file(name)


def _read_file(path):
    arrow = import_extra("data", "pyarrow")
    table, file = ParquetFile(path).table(COLUMNS), CheckedFile(path)
    kinds = {field.name: field.type for field in table.schema}
    are_texts = [kinds.get(x) == arrow.string() for x in ("id", "status")]
    kind = kinds.get("embedding", arrow.null())
    is_list = arrow.types.is_fixed_size_list(kind)
    if not (all(are_texts) and is_list and kind.value_type == arrow.float32()):
        expected = "columns id, embedding (fixed-size list of float32), status"
        advice = "Write the file with tbnets embed."
        file.refuse(expected, str(kinds), advice=advice)
    ids, statuses = (table[name].to_pylist() for name in ("id", "status"))
    if any(table[name].null_count for name in COLUMNS):
        file.refuse("a value in each row and column", None)
    vectors = matrix_of(table)
    valid = np.array([not status for status in statuses], bool)
    failed = {key: why for key, why in zip(ids, statuses) if why}
    ids = [key for key, is_valid in zip(ids, valid) if is_valid]
    return made_by_of(table.schema), ids, vectors[valid], failed


def matrix_of(table):
    """Returns the embeddings of all rows, float32 `[n, dim]`."""
    column = table["embedding"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


class ParquetFeatures(FeatureArray):
    """The vectors in all Parquet files that a path names, in memory."""

    def __init__(self, path):
        parts = [*read_vectors(path)]
        kinds = {part[0]: (part[3].shape[1], part[1]) for part in parts}
        for name, kind in kinds.items():
            if kind != kinds[parts[0][0]]:
                expected = f"vectors of the network of {parts[0][0]}"
                advice = "Use one folder for each network."
                CheckedFile(name).refuse(expected, kind, advice=advice)
        ids = [key for part in parts for key in part[2]]
        if not ids:
            raise InputError(
                "path",
                "match Parquet files with embeddings",
                f"path={path}, without embeddings",
                "Write the files with tbnets embed.",
            )
        vectors = np.concatenate([part[3] for part in parts])
        super().__init__(ids, vectors, path)
        self._files = [*kinds]
        self.failed = {k: why for part in parts for k, why in part[4].items()}
        self.made_by = _in_store(parts[0])
        self.check_repeated_rows()

    @property
    def files(self):
        """The paths of the Parquet files."""
        return self._files


def read_made_by(path):
    """Returns `ParquetFeatures.made_by`, but reads only the first file."""
    return _in_store(next(read_vectors(path)))


def _in_store(part):
    _, made_by, _, vectors, _ = part
    store = {"dim": vectors.shape[1], "dtype": "float32", "kind": "images"}
    return {**made_by, "store": store}
