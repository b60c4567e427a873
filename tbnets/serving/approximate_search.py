"""The best rows of an index in a fraction of the time, nearly all of them.

FAISS sorts the rows into cells and keeps each as a byte a number. A query
looks into the cells that are closest to it; what it finds there is compared
once more with the embeddings themselves, so that similarities and their order
are exact. What is lost are rows in other cells. The cells lie beside the
shards that they were made of and are named after them: of an index that was
changed since there are none.
"""

import hashlib
import pathlib

import numpy as np

from tbnets.checked_files import CheckedFile
from tbnets.errors import InputError, MissingFileError, import_extra
from tbnets.files import write_atomically
from tbnets.serving.search_index import SearchIndex, open_index

CELLS_LOOKED_INTO = 64
CANDIDATES = 4
"""So many times k rows of the cells are compared with the query again."""
_ROWS_A_CELL = 1000
_LEARNED_FROM = 64
"""Rows for each cell that the cells are learned from."""
_DIGEST_BYTES = 32
_CURE = "Run tbnets index with --approximate once more."


def file_of(path, shards):
    """Returns where the cells of shards lie in the folder of an index."""
    names = "\n".join(shard.name for shard in shards)
    digest = hashlib.sha256(names.encode()).hexdigest()
    return pathlib.Path(path, f"{digest[:16]}.faiss")


def build(path):
    """Makes the cells of an index, where they are not there.

    Args:
        path: folder of the index.

    Raises:
        ImportError: FAISS is not installed.
        ValueError: the index is damaged, or empty.
    """
    faiss = import_extra("faiss", "faiss")
    index = open_index(path)
    place = file_of(path, index.store.manifest.shards)
    if place.exists():
        return
    if not len(index):
        raise InputError(
            "`--approximate` must come with rows. Received: the empty index "
            f"{index.path}. Put photos into it."
        )
    cells = max(1, len(index) // _ROWS_A_CELL)
    made = faiss.index_factory(
        index.dim, f"IVF{cells},SQ8", faiss.METRIC_INNER_PRODUCT
    )
    made.cp.min_points_per_centroid = 1  # It warns of fewer.
    rng = np.random.default_rng(0)
    count = min(len(index), cells * _LEARNED_FROM)
    some = np.sort(rng.choice(len(index), count, replace=False))
    made.train(index.take(some))
    for shard in index.shards:
        made.add(np.ascontiguousarray(shard, np.float32))
    content = faiss.serialize_index(made).tobytes()
    digest = hashlib.sha256(content).digest()
    write_atomically(place, lambda file: file.writelines([digest, content]))


class ApproximateIndex(SearchIndex):
    """A `SearchIndex` that finds nearly all of the best; `open_approximate`.

    Args:
        index: the `SearchIndex`.
        cells: what FAISS made of it.
    """

    def __init__(self, index, cells):
        super().__init__(index.store, index.shards)
        self._cells = cells

    def search(self, queries, k, similarities=None):
        """Finds the rows that are closest to each query, as `SearchIndex`.

        A query whose cells have fewer than k is compared with all rows.

        Raises:
            ValueError: as there; or the model learned to compare, so that its
                embeddings have no cells.
        """
        if similarities is not None:
            raise InputError(
                "`--approximate` must be asked of a network whose embeddings "
                f"have cosines. Received: {self.path} of one that learned to "
                "compare. Leave it out."
            )
        queries, k = self.checked(queries, k)
        count = min(k, len(self))
        wanted = min(CANDIDATES * count, len(self))
        _, candidates = self._cells.search(queries, wanted)
        rows = np.empty([len(queries), count], np.int64)
        values = np.empty(rows.shape, np.float32)
        for place, (query, some) in enumerate(zip(queries, candidates)):
            some = np.sort(some[some >= 0])
            if len(some) < count:
                [rows[place]], [values[place]] = super().search([query], k)
                continue
            found = self.take(some) @ query
            order = np.argsort(-found, kind="stable")[:count]
            rows[place], values[place] = some[order], found[order]
        return rows, values


def open_approximate(path):
    """Opens an index whose cells are there, as `search_index.open_index`.

    Raises:
        FileNotFoundError, ValueError: as there; or its cells are missing, of
            other rows or damaged.
        ImportError: FAISS is not installed.
    """
    faiss = import_extra("faiss", "faiss")
    index = open_index(path)
    place = file_of(path, index.store.manifest.shards)
    if not place.is_file():
        raise MissingFileError(
            "`--approximate` must come with an index that was made so. "
            f"Received: {index.path}, whose rows have no {place.name}. {_CURE}"
        )
    file = CheckedFile(place)
    content = file.read_bytes()
    body = memoryview(content)[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != content[:_DIGEST_BYTES]:
        file.report(
            f"expected the sha256 it begins with; found another. {_CURE}"
        )
    cells = faiss.deserialize_index(np.frombuffer(body, np.uint8))
    if (cells.ntotal, cells.d) != (len(index), index.dim):
        wanted = f"{len(index)} rows of {index.dim}"
        file.refuse(wanted, (cells.ntotal, cells.d))
    cells.nprobe = min(CELLS_LOOKED_INTO, cells.nlist)
    return ApproximateIndex(index, cells)
