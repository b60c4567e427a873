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
from tbnets.errors import import_extra
from tbnets.files import CheckedFile, parse_json

SUFFIX = ".parquet"
_KEY = b"tbnets"


def _schema(dim, made_by):
    arrow = import_extra("data", "pyarrow")
    text, number = arrow.string(), arrow.field("item", arrow.float32(), False)
    kinds = {"id": text, "embedding": arrow.list_(number, dim)}
    kinds |= {"status": text, "sha256": text}
    fields = [arrow.field(*pair, nullable=False) for pair in kinds.items()]
    return arrow.schema(fields, {_KEY: json.dumps(made_by, sort_keys=True)})


def write_rows(file, rows, dim, made_by):
    """Writes rows, a list of dicts, to a path or an open file.

    `dim` is the size of an embedding. `made_by` describes the network.
    """
    arrow = import_extra("data", "pyarrow")
    table = arrow.Table.from_pylist(rows, _schema(dim, made_by))
    parquet = import_extra("data", "pyarrow.parquet")
    # A dictionary of floats would add half of their size.
    parquet.write_table(table, file, use_dictionary=False)


def read_vectors(path):
    """Yields the path and the results of `read_file` for each Parquet file.

    `path` is a file or a pattern, as in `archives.list_archives`.
    """
    for file in list_archives(path, (SUFFIX,)):
        yield file, *read_file(file)


def read_file(path, stream=None, key="id"):
    """Reads a Parquet file.

    Args:
        path: path of the file.
        stream: the open file, if it is not on this machine.
        key: a column that identifies photos, "id" or "sha256".

    Returns:
        (made_by, keys, vectors, failed): `keys` and `vectors`, float32 `[n,
        dim]`, are those of photos with an embedding. `failed` maps the keys of
        the other photos to reasons.

    Raises:
        ValueError: the file is damaged, or has other columns or null values.
    """
    table = ParquetFile(path, stream).table()
    sizes = [getattr(kind, "list_size", 1) for kind in table.schema.types]
    dim = max(sizes, default=1)
    if not table.schema.equals(_schema(dim, {})):
        CheckedFile(path).refuse("a file of tbnets embed", table.schema)
    reasons = table["status"].to_pylist()
    pairs = zip(table[key].to_pylist(), reasons)
    failed = {x: reason for x, reason in pairs if reason}
    made_by = parse_json((table.schema.metadata or {}).get(_KEY, b"{}"))
    table = table.filter(np.array([not reason for reason in reasons], bool))
    vectors = table["embedding"].combine_chunks().flatten().to_numpy()
    keys = table[key].to_pylist()
    return made_by, keys, vectors.reshape(-1, dim), failed
