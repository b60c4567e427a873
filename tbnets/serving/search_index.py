"""A search index: embeddings on disk, with exact and approximate search.

::

    INDEX/manifest.json
          features.npy  ids.txt
          cells-4a09c1....faiss       only for approximate search

An index is a feature store (`data.store.reader`) whose `extraction` names the
model that embedded the rows, and the file of cells. `index_writer.IndexWriter`
replaces the manifest last, so the old index is valid until then.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from tbnets import files
from tbnets.checks import (
    Array,
    Path,
    as_numbers,
    check_finite,
    checked_number,
    short_repr,
)
from tbnets.data.images import require
from tbnets.data.store.reader import MANIFEST, FeatureStore, open_store
from tbnets.errors import InputError, MissingFileError, UserError, import_extra
from tbnets.evaluation.score_tiles import PAIRS_AT_ONCE
from tbnets.files import CheckedFile, is_kind, shown
from tbnets.serving.checksums import identity_of
from tbnets.serving.endpoints import traced

# Exact search among any number of rows. Rows are compared tile by tile, so
# memory is needed only for the results and two tiles of similarities. `top_k`
# takes arrays, such as memory-mapped files, and variables in a graph.

QUERIES_AT_ONCE = 64
"""Number of queries in a tile. With `ROWS_AT_ONCE`, it limits the memory."""
ROWS_AT_ONCE = 32768
CAST_AT_ONCE = 8192
"""Number of rows in a tile if the rows must be cast to float32, so that the
tile fits the CPU cache."""
TILES_AT_ONCE = 2
"""Number of parallel tiles. One is computed while another is read."""


def cosines(queries, rows):
    """Returns the dot products of queries `[m, dim]` and rows `[n, dim]`."""
    # Unlike `tf.matmul`, these raw ops do not copy their input.
    if rows.dtype != "float32":
        rows = tf.raw_ops.Cast(x=rows, DstT=tf.float32)
    return tf.raw_ops.MatMul(a=queries, b=rows, transpose_b=True)


def top_k(queries, blocks, k, similarities=cosines, rows_at_once=ROWS_AT_ONCE):
    """Finds the best rows for each query.

    Args:
        queries: float32 `[m, dim]`.
        blocks: list of arrays or variables `[n_i, dim]`, with `n` rows in
            total.
        k: number of results for each query, int or int32 `[]`, at least 1.
        similarities: function that takes queries and rows, and returns `[m,
            n]`.
        rows_at_once: maximum number of rows compared at once.

    Returns:
        `(rows, similarities)`: row indices, int32, and similarities, float32,
        both `[m, min(k, n)]`, best first. Ties are sorted by row.
    """
    tiles, first = [], 0
    for block in blocks:
        is_cast = block.dtype != "float32" and similarities is cosines
        step = CAST_AT_ONCE if is_cast else rows_at_once
        for start in range(0, block.shape[0], step):
            tiles.append((block, slice(start, start + step), first + start))
        first += block.shape[0]
    if not tiles:
        nothing = tf.zeros([len(queries), 0])
        return tf.cast(nothing, tf.int32), nothing

    def best_of(tile):
        block, tile_rows, first_row = tile
        rows = block[tile_rows]
        values = similarities(queries, rows)
        best = tf.math.top_k(values, tf.minimum(k, rows.shape[0]))
        return best.indices + first_row, best.values

    if tf.executing_eagerly():
        with ThreadPoolExecutor(TILES_AT_ONCE) as pool:
            results = list(pool.map(best_of, tiles))
    else:
        results = []
        for tile in tiles:
            earlier = results[-TILES_AT_ONCE : 1 - TILES_AT_ONCE]
            with tf.control_dependencies([values for _, values in earlier]):
                results.append(best_of(tile))
    rows, values = zip(*results)
    rows, values = tf.concat(rows, 1), tf.concat(values, 1)
    best = tf.math.top_k(values, tf.minimum(k, first))
    return tf.gather(rows, best.indices, batch_dims=1), best.values


EMBEDDED_BY = "embedded_by"
"""Key of `extraction` for the identity of the model."""
NOTES = "notes"
"""Key of `extraction` for notes, such as the name of the model."""
CELLS = "cells"
"""Key of `extraction` for the SHA-256 digest of the cells; "" without cells."""


class SearchIndex:
    """An open index, returned by `open_index`.

    Attributes:
        ids: tuple of n strings.
        dim: size of an embedding.
        dtype: "float32" or "float16".
        embeddings: memory-mapped array `[n, dim]`.
        embedded_by: JSON value that identifies the model.
        notes: dict of strings, only for display.
    """

    def __init__(self, store: FeatureStore) -> None:
        self.store, self.path = store, store.path
        self.ids, self.dim = store.ids, store.dim
        self.dtype = store.manifest.dtype
        self.embedded_by = store.extraction[EMBEDDED_BY]
        self.notes = store.extraction[NOTES]
        empty = np.empty((0, store.dim), np.float32)
        self.embeddings: np.ndarray = store.arrays.get("features", empty)

    __repr__ = short_repr("path", "dim", "dtype", rows=len)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def photos(self) -> pathlib.Path | None:
        """The folder of the indexed photos, or None if there is none."""
        name = self.notes.get("photos", "")
        folder = pathlib.Path(os.path.normpath(os.path.join(self.path, name)))
        return folder if name and folder.is_dir() else None

    def check_embedded_by(self, model: Any) -> None:
        """Raises a ValueError if another model computed the embeddings."""
        # As JSON, tuples become lists, and keys become strings.
        identity = json.loads(json.dumps(model, default=str))
        if identity != self.embedded_by:
            raise InputError(
                "index",
                f"have embeddings from the model {shown(model)}",
                f"index={self.path}, from {self.notes.get('model', '')} "
                f"{shown(self.embedded_by)}",
                "Use that model, or create another index.",
            )

    def checked(self, queries: Array, k: int) -> tuple[np.ndarray, int]:
        """Checks the arguments of a search.

        Returns the queries as float32, and `k`, limited to the number of rows.
        """
        k = checked_number("k", k, 1, whole=True)
        queries = as_numbers("queries", queries, (None, self.dim))
        check_finite("queries", queries)
        return queries, min(k, len(self))

    def search(
        self,
        queries: Array,
        k: int,
        similarities: Callable[[np.ndarray, np.ndarray], np.ndarray]
        | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the rows closest to each query by exact search.

        Args:
            queries: float array `[m, dim]`; m may be 0.
            k: number of results for each query, at least 1.
            similarities: function that takes rows `[n, dim]` and queries `[m,
                dim]` and returns `[n, m]`, such as `Served.compare`; None for
                the dot product, which is the cosine of unit vectors.

        Returns:
            `(rows, similarities)`: row indices, int64, and similarities,
            float32, both `[m, min(k, n)]`, best first. Ties are sorted by row.

        Raises:
            ValueError: the queries are not embeddings, or the index is damaged.
        """
        queries, k = self.checked(queries, k)

        def learned(part, rows):
            return similarities(np.float32(rows), part).T

        compare = cosines if similarities is None else learned
        size = QUERIES_AT_ONCE
        try:
            results = [
                top_k(queries[at : at + size], [self.embeddings], k, compare)
                for at in range(0, max(len(queries), 1), size)
            ]
        except InputError:  # The model rejected damaged rows.
            self.store.verify()
            raise
        rows, values = (np.concatenate(part) for part in zip(*results))
        if not np.isfinite(values).all():
            self.store.verify()
            check_finite(f"similarities in {self.path}", values)
        return rows.astype(np.int64), values


def open_index(path: Path, model: Any = None) -> SearchIndex:
    """Opens a search index, without reading its embeddings.

    Later changes to the files do not affect the open index.

    Args:
        path: folder of the index.
        model: JSON value that identifies the model of the queries; None to
            accept an index of any model.

    Raises:
        FileNotFoundError: there is no index.
        ValueError: the index is damaged or belongs to a different model.

    Example:
        index = tbnets.open_index("photos.index")
        rows, similarities = index.search(model.embed_text(["a dog"]), 5)
    """
    index = _open_unchanged(path, SearchIndex)
    if model is not None:
        index.check_embedded_by(model)
    return index


_EXPECTED = "be a folder that tbnets index wrote"


def _open_unchanged(path, open_one):
    """Opens an index, again if it changes while it is read."""
    manifest = pathlib.Path(path, MANIFEST)
    if not manifest.is_file():
        raise MissingFileError("index", _EXPECTED, path)
    while True:
        before = manifest.read_bytes()
        try:
            store = open_store(path)
            check_is_index(store)
            return open_one(store)
        except (UserError, FileNotFoundError):
            if manifest.read_bytes() == before:
                raise


def check_is_index(store):
    """Raises an error if a feature store is not a search index."""
    notes = store.extraction.get(NOTES)
    is_index = EMBEDDED_BY in store.extraction and store.kind == "images"
    is_index = is_index and is_kind(notes, dict[str, str])
    if not is_index or type(store.extraction.get(CELLS)) is not str:
        raise InputError("index", _EXPECTED, store.path)


# Approximate search takes a fraction of the time of exact search. FAISS
# clusters the rows into cells and stores one byte per number. A query is
# compared with the rows in the cells closest to it. The best rows of these
# cells are compared again with the original embeddings, so their similarities
# and order are exact. Only rows in other cells are missed.

CELLS_LOOKED_INTO = 64
CANDIDATES = 4
"""Number of rows per result that are compared with the original embeddings."""
_ROWS_A_CELL = 1000
_LEARNED_FROM = 64
"""Number of rows per cell from which the cells are learned."""


def cells_file(path, digest):
    """Returns the path of the FAISS cells whose SHA-256 is `digest`."""
    return pathlib.Path(path, f"cells-{digest[:16]}.faiss")


def write_cells(store):
    """Writes the FAISS cells of a `FeatureStore`. Returns their SHA-256 digest.

    Returns "" if the store has no rows.
    """
    faiss = import_extra("faiss", "faiss")
    if not len(store):
        return ""
    rows = store.arrays["features"]
    cells = max(1, len(rows) // _ROWS_A_CELL)
    clusters = faiss.index_factory(
        store.dim, f"IVF{cells},SQ8", faiss.METRIC_INNER_PRODUCT
    )
    clusters.cp.min_points_per_centroid = 1  # Avoids a warning.
    rng = np.random.default_rng(0)
    count = min(len(rows), cells * _LEARNED_FROM)
    sample = np.sort(rng.choice(len(rows), count, replace=False))
    clusters.train(np.float32(rows[sample]))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        chunk = rows[start : start + ROWS_AT_ONCE]
        clusters.add(np.ascontiguousarray(chunk, np.float32))
    content = faiss.serialize_index(clusters)
    digest = hashlib.sha256(content).hexdigest()
    files.write_atomically(
        cells_file(store.path, digest), lambda file: file.write(content)
    )
    return digest


def remove_cells(path, digest=""):
    """Removes the cells of an index, except those with this digest."""
    for file in pathlib.Path(path).glob("cells-*.faiss"):
        if file != cells_file(path, digest):
            file.unlink()


class ApproximateIndex(SearchIndex):
    """A `SearchIndex` that may miss a few of the best rows."""

    def __init__(self, store, cells):
        super().__init__(store)
        self._cells = cells

    def search(self, queries, k, similarities=None):
        """Finds the closest rows, like `SearchIndex.search`.

        A query whose cells contain fewer than `k` rows is compared with all
        rows.

        Raises:
            ValueError: `similarities` is given.
        """
        if similarities is not None:
            expected = "be used only with a network that compares by cosine"
            raise InputError("--approximate", expected, self.path)
        queries, k = self.checked(queries, k)
        num_candidates = min(CANDIDATES * k, len(self))
        _, candidates = self._cells.search(queries, num_candidates)
        rows = np.empty([len(queries), k], np.int64)
        values = np.empty(rows.shape, np.float32)
        for i, (query, near) in enumerate(zip(queries, candidates)):
            near = np.sort(near[near >= 0])
            if len(near) < k:
                [rows[i]], [values[i]] = super().search([query], k)
                continue
            products = np.float32(self.embeddings[near]) @ query
            order = np.argsort(-products, kind="stable")[:k]
            rows[i], values[i] = near[order], products[order]
        return rows, values


def open_approximate(path: Path) -> ApproximateIndex:
    """Opens an index and its FAISS cells."""
    faiss = import_extra("faiss", "faiss")
    return _open_unchanged(path, lambda store: _with_cells(store, faiss))


def _with_cells(store, faiss):
    if not store.extraction[CELLS]:
        expected = "be used with an index created with it"
        raise InputError("--approximate", expected, store.path)
    file = CheckedFile(cells_file(store.path, store.extraction[CELLS]))
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != store.extraction[CELLS]:
        file.refuse(f"the SHA-256 {store.extraction[CELLS]}", digest)
    cells = faiss.deserialize_index(np.frombuffer(content, np.uint8))
    if (cells.ntotal, cells.d) != (len(store), store.dim):
        expected = f"{len(store)} rows of {store.dim}"
        file.refuse(expected, (cells.ntotal, cells.d))
    cells.nprobe = min(CELLS_LOOKED_INTO, cells.nlist)
    return ApproximateIndex(store, cells)


# The `search` endpoint searches an index in the graph. The embeddings are
# variables of `ROWS_AT_ONCE` rows, and the ids are a variable. The endpoint
# embeds the queries and compares them with the rows tile by tile. It returns
# the same results as `SearchIndex.search`.


def add_search(index):
    """Returns a function for `reexport(add=...)` that adds a search endpoint.

    The `search` endpoint takes `m` texts, as `embed_text` does, and `k`, int32
    `[]`. It returns `ids` (string) and `similarities` (float32), both `[m,
    min(k, len(index))]`, best first. Ties are sorted by row.
    """
    if not len(index):
        raise InputError("index", "contain embeddings", index.path)
    index.store.verify()

    def add(served):
        index.check_embedded_by(identity_of(served))
        [spec] = served.inputs("embed_text").values()
        blocks = [tf.Variable(x, trainable=False) for x in _blocks(index)]
        ids = tf.Variable(tf.constant(index.ids), trainable=False)
        embed = served.signatures["embed_text"]
        compare = served.signatures.get("compare")

        @traced(spec, tf.TensorSpec([], tf.int32, "k"))
        def search(texts, k):
            k = require(k, k > 0, "`k` must be at least 1. Received:", k)
            queries = embed(**{spec.name: texts})["embeddings"]
            rows, similarities = _find(blocks, compare, queries, k)
            return {"ids": ids.sparse_read(rows), "similarities": similarities}

        return {"search": search}

    return add


def _blocks(index):
    # A tile that is a whole variable is not copied.
    size = ROWS_AT_ONCE
    starts = range(0, len(index), size)
    return [index.embeddings[start : start + size] for start in starts]


def _find(blocks, compare, queries, k):
    """Finds the best `k` rows for each query, a few queries at a time."""
    size, options = QUERIES_AT_ONCE, {}
    if compare is not None:

        def similarities(queries, rows):
            rows = tf.cast(rows, tf.float32)
            pairs = {"image_embeddings": rows, "text_embeddings": queries}
            return tf.transpose(compare(**pairs)["similarities"])

        size = 1
        options["similarities"] = similarities
        options["rows_at_once"] = PAIRS_AT_ONCE
    # At least one part: `map_fn` cannot stack an empty list of results.
    count, dim = tf.shape(queries)[0], queries.shape[1]
    parts = tf.maximum(-(-count // size), 1)
    size = -(-count // parts)
    padded = tf.pad(queries, [[0, parts * size - count], [0, 0]])
    results = tf.map_fn(
        lambda part: top_k(part, blocks, k, **options),
        tf.reshape(padded, [parts, size, dim]),
        parallel_iterations=1,
        fn_output_signature=(tf.int32, tf.float32),
    )
    width = tf.minimum(k, sum(block.shape[0] for block in blocks))
    return [
        tf.ensure_shape(tf.reshape(x, [-1, width])[:count], [None, None])
        for x in results
    ]
