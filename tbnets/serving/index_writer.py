"""Writes a search index atomically: readers get the old or the new index."""

import contextlib
import json
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tbnets.checks import Array, Path, refuse_single, short_repr, short_text
from tbnets.data.store.reader import MANIFEST, FeatureStore, open_store
from tbnets.data.store.writer import FeatureWriter, check_ids, checked_arrays
from tbnets.errors import InputError, import_extra
from tbnets.files import is_kind
from tbnets.serving import search_index
from tbnets.serving.search_index import (
    CELLS,
    EMBEDDED_BY,
    NOTES,
    SearchIndex,
    check_is_index,
)


class IndexWriter:
    """Creates or changes a search index in a `with` block.

    The index is locked during the block. If the block fails, an existing index
    keeps its rows, and a new index is removed.

    Args:
        path: folder of the index, created if it does not exist.
        model: JSON value that identifies the model, such as the result of
            `checksums.identity_of`.
        dim: size of an embedding.
        dtype: "float32", or "float16", which halves the size. With None, an
            existing index keeps its dtype, and a new index has "float32".
        notes: dict of strings that replaces the notes of the index.
        approximate: True adds cells for approximate search, which requires
            FAISS. An index that has cells keeps them: each change computes
            them again.

    Raises:
        FileExistsError: another process is writing the index.
        ValueError: the folder is not an index, or is an index of another model.

    Example:
        with tbnets.IndexWriter("photos.index", "my model", dim=32) as writer:
            writer.put(["a.jpg", "b.jpg"], images[:2])
        with tbnets.IndexWriter("photos.index", "my model", dim=32) as writer:
            writer.remove(["a.jpg"])
    """

    def __init__(
        self,
        path: Path,
        model: Any,
        dim: int,
        dtype: str | None = None,
        notes: dict[str, str] | None = None,
        approximate: bool = False,
    ) -> None:
        self.path = pathlib.Path(path)
        if not is_kind(notes or {}, dict[str, str]):
            raise InputError("notes", "be a dict of strings", short_text(notes))
        settings = {EMBEDDED_BY: model, NOTES: notes or {}, CELLS: ""}
        self._settings = json.loads(json.dumps(settings))
        self._makes_folder = not self.path.exists()
        old_settings = self._settings
        if (self.path / MANIFEST).exists():
            old = open_store(self.path, incomplete=True)
            check_is_index(old)
            SearchIndex(old).check_embedded_by(model)
            old_settings, dtype = old.extraction, dtype or old.manifest.dtype
            self._settings[CELLS] = old_settings[CELLS]
        self._approximate = approximate or bool(self._settings[CELLS])
        if self._approximate:
            import_extra("faiss", "faiss")
        self._files = FeatureWriter(path, old_settings, dim, dtype or "float32")
        self._store = store = self._files.store
        # The old rows that remain.
        self._kept = {key: row for row, key in enumerate(store.ids)}
        self._seen: set[str] = set()
        self.added: int = 0
        """Number of rows that are new or changed."""

    __repr__ = short_repr("path", "dtype", "size")

    def __enter__(self) -> "IndexWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with contextlib.closing(self._files), contextlib.ExitStack() as failed:
            failed.callback(self._remove_if_new)
            if kind is None:
                self.finish()
                failed.pop_all()

    @property
    def removed(self) -> int:
        """Number of old rows that were removed or replaced."""
        return len(self._store) - len(self._kept)

    @property
    def dtype(self) -> str:
        """Data type of the stored embeddings."""
        return self._store.manifest.dtype

    @property
    def size(self) -> int:
        """Number of rows in the index after `finish`."""
        return len(self._kept) + self.added

    def put(self, ids: Sequence[str], rows: Array) -> None:
        """Adds rows, and replaces rows that have the same ids.

        Args:
            ids: `n` strings, none of them already added in this `with` block.
            rows: array `[n, dim]` of finite numbers.

        Raises:
            ValueError: an id is repeated or not a single line of text, or a
                number is not finite. No row is then added.
        """
        refuse_single("ids", ids)
        check_ids(ids, self._seen, f"the rows put into {self.path}")
        arrays = {"features": rows}
        rows = checked_arrays(self._store.manifest, ids, arrays)["features"]
        known = [i for i, key in enumerate(ids) if key in self._kept]
        old = self._store.take([self._kept[ids[i]] for i in known])
        is_same = np.zeros(len(ids), bool)
        is_same[known] = (old == np.float32(rows[known])).all(axis=1)
        new = np.flatnonzero(~is_same)
        new_ids = [ids[i] for i in new]
        if new_ids:
            self._files.append(new_ids, {"features": rows[new]})
        for key in new_ids:
            self._kept.pop(key, None)
        self._seen.update(ids)
        self.added += len(new_ids)

    def remove(self, ids: Collection[str]) -> None:
        """Removes rows that the index contained before the `with` block.

        Raises:
            ValueError: an id is unknown, or was added in this `with` block.
        """
        if put := self._seen.intersection(ids):
            expected = "name rows that were not put in this block"
            raise InputError("ids", expected, repr(min(put)))
        self._store.rows(ids)  # Raises an error for unknown ids.
        for key in ids:
            self._kept.pop(key, None)

    def remove_others(self) -> None:
        """Removes all rows that were not added in this `with` block."""
        seen = self._seen
        self._kept = {k: row for k, row in self._kept.items() if k in seen}

    def finish(self) -> None:
        """Writes all rows, and then replaces the manifest."""
        if self.removed:
            old = len(self._store)
            new = range(old, old + self.added)
            self._files.rewrite([*self._kept.values(), *new])
        settings, is_changed = self._settings, self.added or self.removed
        if self._approximate and (is_changed or not settings[CELLS]):
            store = FeatureStore(self.path, self._files.manifest)
            cells = search_index.write_cells(store)
            settings = {**settings, CELLS: cells}
        self._files.commit(complete=True, extraction=settings)
        search_index.remove_cells(self.path, settings[CELLS])

    def _remove_if_new(self):
        if self._files.is_new:
            (self.path / MANIFEST).unlink(missing_ok=True)
            self._files.remove_files()
            search_index.remove_cells(self.path)
            if self._makes_folder:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
