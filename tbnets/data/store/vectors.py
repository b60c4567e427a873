"""Reads and writes vectors of photos in Parquet files.

`tbnets embed` writes these files. A row has the columns `id`, `embedding` (a
fixed-size list of float32), `status` ("", or the fault of a photo whose
embedding is 0) and `sha256`, the digest of the photo's content. The metadata of
a file has the key `tbnets`: a JSON value that describes the network.
"""

import json

import numpy as np

from tbnets.data.archives import list_archives
from tbnets.data.parquet import ParquetFile
from tbnets.data.store.features import FeatureArray
from tbnets.errors import import_extra
from tbnets.files import CheckedFile, parse_json

SUFFIX = ".parquet"
_KEY = b"tbnets"


def _schema(dim, made_by):
    arrow = import_extra("data", "pyarrow")
    text, vector = arrow.string(), arrow.list_(arrow.float32(), dim)
    kinds = {"id": text, "embedding": vector, "status": text, "sha256": text}
    metadata = {_KEY: json.dumps(made_by, sort_keys=True)}
    return arrow.schema(kinds.items(), metadata=metadata)


def write_rows(file, rows, dim, made_by):
    """Writes rows, a list of dicts, to a path or an open file.

    `dim` is the size of an embedding. `made_by` describes the network.
    """
    arrow = import_extra("data", "pyarrow")
    table = arrow.Table.from_pylist(rows, _schema(dim, made_by))
    parquet = import_extra("data", "pyarrow.parquet")
    # A dictionary of floats would add half of their size.
    parquet.write_table(table, file, use_dictionary=False)


def made_by_of(schema):
    """Returns the description of the network in a file's schema, or {}."""
    return parse_json((schema.metadata or {}).get(_KEY, b"{}"))


def read_vectors(path):
    """Yields (file, made_by, ids, vectors, failed) for each Parquet file.

    `path` is a file or a pattern, as in `archives.list_archives`. `vectors` is
    float32 `[n, dim]`, and `failed` maps the ids of photos without an embedding
    to reasons. Raises ValueError if a file has other columns or null values.
    """
    for file in list_archives(path, (SUFFIX,))[1]:
        table = ParquetFile(file).table()
        dim = getattr(table.schema.field("embedding").type, "list_size", 1)
        if not table.schema.equals(_schema(dim, {})) or any(
            column.null_count for column in table.columns
        ):
            expected = f"columns without null values, {_schema(dim, {})}"
            advice = "Write the file with tbnets embed."
            CheckedFile(file).refuse(expected, table.schema, advice=advice)
        is_valid = np.array([not x for x in table["status"].to_pylist()], bool)
        pairs = zip(*(table[name].to_pylist() for name in ("id", "status")))
        failed = {key: status for key, status in pairs if status}
        ids = [key for key in table["id"].to_pylist() if key not in failed]
        made_by = made_by_of(table.schema)
        yield file, made_by, ids, matrix_of(table)[is_valid], failed


def matrix_of(table):
    """Returns the embeddings of all rows, float32 `[n, dim]`."""
    column = table["embedding"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)


class ParquetFeatures(FeatureArray):
    """The vectors in all Parquet files that a path names, in memory."""

    files: list = []

    def __init__(self, path):
        self.files, made_by, ids, vectors, failed = zip(*read_vectors(path))
        for file, other in zip(self.files, made_by):
            if other != made_by[0]:
                expected = f"vectors of the network of {self.files[0]}"
                advice = "Use one folder for each network."
                CheckedFile(file).refuse(expected, other, advice=advice)
        ids, vectors = sum(ids, []), np.concatenate(vectors)
        super().__init__(ids, vectors, path)
        self.failed = {key: why for part in failed for key, why in part.items()}
        store = {"dim": self.dim, "dtype": "float32", "kind": "images"}
        self.made_by = {**made_by[0], "store": store}
        self.check_repeated_rows()
