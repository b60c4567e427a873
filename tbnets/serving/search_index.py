"""A search index: embeddings on disk, found by what they are most like.

::

    INDEX/manifest.json
          4a09c1....npy  4a09c1....ids.txt       a shard of embeddings

It is a feature store (`data.store.manifest`), so that whatever reads one reads
an index. Its `extraction` says which model embedded all of it. A shard is
called by what is in it and never changed: `index_writer.IndexWriter` puts other
shards in its place, and who has it open still has what was there.
"""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tbnets.annotations import Array, Path
from tbnets.checked_files import is_kind, shown
from tbnets.checked_numbers import as_numbers, check_finite, checked_number
from tbnets.data.store.manifest import MANIFEST
from tbnets.data.store.shards import FeatureStore, open_store
from tbnets.errors import (
    InputError,
    MissingFileError,
    UserError,
    check_kind,
)
from tbnets.serving import exact_search
from tbnets.short_repr import short_repr

EMBEDDED_BY = "embedded_by"
"""What the extraction calls the model, its digest and what else tells it."""
NOTES = "notes"
"""What it calls the rest: the name of the model, the folder of photos."""


class SearchIndex:
    """An index that is open; use `open_index`.

    Args:
        store: the `data.store.shards.FeatureStore`.
        shards: the attribute, where they are open; None to open them.

    Attributes:
        ids: tuple of n strings.
        dim: numbers in an embedding.
        dtype: "float32", or "bfloat16".
        shards: list of arrays `[n_i, dim]`, mapped.
        embedded_by: JSON value that tells the model.
        notes: dict of strings, for people.
    """

    def __init__(
        self, store: FeatureStore, shards: list[np.ndarray] | None = None
    ) -> None:
        self.store, self.path = store, store.path
        self.ids, self.dim = store.ids, store.dim
        self.dtype = store.manifest.dtype
        self.embedded_by = store.extraction[EMBEDDED_BY]
        self.notes = store.extraction[NOTES]
        # Once: who writes the index takes files away that are not open.
        shards = shards or [file.map() for file in store.row_files]
        self.shards: list[np.ndarray] = shards

    __repr__ = short_repr("path", "dim", "dtype", rows=len)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def photos(self) -> pathlib.Path | None:
        """The folder of the photos; None where there is none."""
        name = self.notes.get("photos", "")
        folder = pathlib.Path(os.path.normpath(os.path.join(self.path, name)))
        return folder if name and folder.is_dir() else None

    def check_embedded_by(self, model: Any) -> None:
        """Refuses another model's question.

        Args:
            model: JSON value that tells it.

        Raises:
            ValueError: another one made the embeddings.
        """
        # As it was kept: a tuple is a list there, a key a string.
        if _as_json(model) != self.embedded_by:
            name = self.notes.get("model")
            raise InputError(
                "`index` must hold embeddings of the model that is asked. "
                f"Received: index={self.path}, which holds those of "
                f"{name or 'another'}, {shown(self.embedded_by)}, for "
                f"{shown(model)}. Ask that model, or make another index."
            )

    def checked(self, queries: Array, k: int) -> tuple[np.ndarray, int]:
        """Returns what is searched by; refuses what nothing can be.

        Args:
            queries: float array `[m, dim]`.
            k: answers for each, from 1.

        Returns:
            `(queries, k)`: float32, and an int of at most n.
        """
        k = checked_number("k", k, 1, whole=True)
        shape, advice = (None, self.dim), "Ask the model that made the index."
        queries = as_numbers("queries", queries, "embeddings", shape, advice)
        check_finite("queries", queries)
        return queries, min(k, len(self))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Returns some rows: of int `[n]`, ascending, float32 `[n, dim]`."""
        firsts = np.cumsum([0, *(len(one) for one in self.shards)])
        parts = np.split(rows, np.searchsorted(rows, firsts[1:-1]))
        taken = [
            np.float32(shard[part - first])
            for shard, part, first in zip(self.shards, parts, firsts)
        ]
        return np.concatenate(taken)

    def search(
        self,
        queries: Array,
        k: int,
        similarities: Callable[[np.ndarray, np.ndarray], np.ndarray]
        | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the rows that are closest to each query, exactly.

        Args:
            queries: float array `[m, dim]`, m from 0.
            k: answers for each query, from 1.
            similarities: of a model that learned to compare, function of rows
                `[n, dim]` and queries `[m, dim]` -> `[n, m]`; None for the
                dot product, of unit vectors the cosine.

        Returns:
            `(rows, similarities)`: int64 and float32 `[m, min(k, n)]`, best
            first; of rows as similar the first one comes first.

        Raises:
            ValueError: the queries are no embeddings, or the index is damaged.
        """
        queries, k = self.checked(queries, k)

        def learned(some, rows):
            return similarities(np.float32(rows), some).T

        compare = exact_search.cosines if similarities is None else learned
        size = exact_search.QUERIES_AT_ONCE
        try:
            found = [
                exact_search.top_k(
                    queries[at : at + size], self.shards, k, compare
                )
                for at in range(0, max(len(queries), 1), size)
            ]
        except InputError:  # Of what a model will not compare.
            self.store.verify()
            raise
        rows, values = (np.concatenate(part) for part in zip(*found))
        if not np.isfinite(values).all():
            self.store.verify()
            check_finite(f"similarities in {self.path}", values)
        return rows.astype(np.int64), values


def _as_json(value):
    """Returns what JSON keeps of a value; what it can not keep as it is."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return value


def open_index(path: Path, model: Any = None) -> SearchIndex:
    """Opens a search index, without reading its embeddings.

    It is there as it was at this moment, whatever is written to it then.

    Args:
        path: its folder.
        model: JSON value that tells the model that will ask; None for any.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or not of this model.

    Example:
        index = tbnets.open_index("photos.index")
        rows, similarities = index.search(model.embed_text(["a dog"]), 5)
    """
    check_kind("path", path, (str, os.PathLike), "Give an index's folder.")
    place = pathlib.Path(path, MANIFEST)
    if not place.is_file():
        raise MissingFileError(
            "`index` must be the folder of a search index. Received: index="
            f"{path}, without {MANIFEST}. Make one by tbnets index."
        )
    index = _open_unchanged(place)
    if model is not None:
        index.check_embedded_by(model)
    return index


def _open_unchanged(place):
    """Opens the index as it is; once more where it was changed meanwhile."""
    while True:
        before = place.read_bytes()
        try:
            store = open_store(place.parent)
            check_is_index(store)
            return SearchIndex(store)
        except (UserError, FileNotFoundError):
            if place.read_bytes() == before:
                raise


def check_is_index(store):
    """Refuses a feature store of something else."""
    notes = store.extraction.get(NOTES)
    is_index = EMBEDDED_BY in store.extraction and store.kind == "images"
    if not is_index or not is_kind(notes, dict[str, str]):
        raise InputError(
            "`index` must be the folder of a search index. Received: index="
            f"{store.path}, a feature store of something else. Make one by "
            "tbnets index."
        )
