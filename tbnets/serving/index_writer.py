"""Writes a search index atomically: readers get the old or the new index."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np

from tbnets.checks import Array, Path, refuse_single, short_repr, short_text
from tbnets.data.store.locks import FolderLock
from tbnets.data.store.manifest import MANIFEST, Shard, write_manifest
from tbnets.data.store.npy import RowFile
from tbnets.data.store.shards import open_rows, open_store
from tbnets.data.store.writer import (
    check_ids,
    checked_arrays,
    make_folder,
    new_manifest,
    write_shard,
)
from tbnets.errors import InputError, check_kind
from tbnets.files import is_kind
from tbnets.serving import search_index
from tbnets.serving.search_index import (
    EMBEDDED_BY,
    NOTES,
    SearchIndex,
    check_is_index,
)

SHARD_ROWS = 32768
"""Maximum number of rows in a shard. Removing a row rewrites its shard."""
_LOCK = ".writer"
_OURS = re.compile(r"[0-9a-f]{16}\.(ids\.txt|npy|faiss)")


@dataclasses.dataclass
class _Part:
    shard: Shard
    ids: list
    file: RowFile
    rows: np.ndarray


def _listed(ids):
    if not isinstance(ids, Iterator):
        refuse_single("ids", ids)
    return list(ids)


class IndexWriter:
    """Creates or changes a search index in a `with` block.

    The index is locked during the block. If the block fails, an existing index
    does not change, and a new index is removed.

    Args:
        path: folder of the index, created if it does not exist.
        model: JSON value that identifies the model, such as the result of
            `identity.identity_of`.
        dim: size of an embedding.
        dtype: "float32", or "bfloat16", which halves the size. With None, an
            existing index keeps its dtype, and a new index has "float32".
        notes: dict of strings that replaces the notes of the index.

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
    ) -> None:
        check_kind("path", path, (str, os.PathLike), "Pass an index folder.")
        self.path = pathlib.Path(path)
        extraction = {EMBEDDED_BY: model, NOTES: notes or {}}
        manifest = new_manifest(extraction, dim, dtype or "float32", "images")
        extraction = manifest.extraction
        if not is_kind(extraction[NOTES], dict[str, str]):
            raise InputError(
                "notes",
                "be a dict of strings",
                f"notes={short_text(notes)}",
                "Convert its values to strings.",
            )
        has_folder = self.path.exists()
        if not (self.path / MANIFEST).exists():
            make_folder(self.path, known=[_LOCK])
        self._lock = FolderLock(self.path, _LOCK, "path")
        self._is_new = not (self.path / MANIFEST).exists()
        self._makes_folder = self._is_new and not has_folder
        if self._is_new:
            write_manifest(self.path, manifest)
        self._store = store = open_store(self.path, incomplete=True)
        check_is_index(store)
        SearchIndex(store).check_embedded_by(model)
        arguments, old = {"dim": dim, "dtype": dtype}, store.manifest
        for name, value in arguments.items():
            if value not in (None, getattr(old, name)):
                raise InputError(
                    name,
                    f"equal the {name} of the index",
                    f"{name}={value!r} for {self.path}, which has "
                    f"{getattr(old, name)}",
                    "Choose another folder.",
                )
        self._manifest = dataclasses.replace(
            store.manifest, extraction=extraction, complete=True
        )
        self._row_of = {key: row for row, key in enumerate(store.ids)}
        self._gone = np.zeros(len(store), bool)
        self._seen, self._new = set(), []
        self._ids, self._rows = [], []
        self.added: int = 0
        """Number of rows that are new or changed."""

    __repr__ = short_repr("path", "dtype", "size")

    def __enter__(self) -> "IndexWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            if self._is_new:  # `finish` has failed.
                self._undo()
            self._lock = None

    @property
    def removed(self) -> int:
        """Number of old rows that were removed or replaced."""
        return int(self._gone.sum())

    @property
    def dtype(self) -> str:
        """Data type of the stored embeddings."""
        return self._manifest.dtype

    @property
    def size(self) -> int:
        """Number of rows in the index after `finish`."""
        return len(self._gone) - self.removed + self.added

    def put(self, ids: Sequence[str], rows: Array) -> None:
        """Adds rows, and replaces rows that have the same ids.

        Args:
            ids: `n` strings, none of them already added in this `with` block.
            rows: array `[n, dim]` of finite numbers.

        Raises:
            ValueError: an id is repeated or not a single line of text, or a
                number is not finite. No row is then added.
        """
        ids = _listed(ids)
        check_ids(ids, self._seen, f"the rows put into {self.path}")
        arrays = {"features": rows}
        rows = checked_arrays(self._manifest, ids, arrays)["features"]
        old = np.array([self._row_of.get(key, -1) for key in ids], np.int64)
        same = old >= 0
        same[same] &= ~self._gone[old[same]]
        known = np.flatnonzero(same)
        old_rows = self._store.take(old[known])
        same[known] = (old_rows == np.float32(rows[known])).all(axis=1)
        self._gone[old[known][~same[known]]] = True
        self._seen.update(ids)
        self._ids += [key for key, is_same in zip(ids, same) if not is_same]
        self._rows.append(rows[~same])
        self.added += int((~same).sum())
        if len(self._ids) >= SHARD_ROWS:
            self._flush(SHARD_ROWS)

    def remove(self, ids: Sequence[str]) -> None:
        """Removes rows that the index contained before the `with` block.

        Raises:
            ValueError: an id is unknown, or was added in this `with` block.
        """
        ids = _listed(list(ids) if isinstance(ids, Set) else ids)
        if put := self._seen.intersection(ids):
            raise InputError(
                "ids",
                "name rows that were not put in this block",
                f"{min(put)!r}",
                "Either put or remove this row.",
            )
        rows = self._store.rows(ids)
        self._gone[rows] = True

    def remove_others(self) -> None:
        """Removes all rows that were not added in this `with` block."""
        old_ids = self._store.ids
        self._gone |= np.array([key not in self._seen for key in old_ids], bool)

    def finish(self) -> None:
        """Writes all rows, and then replaces the manifest."""
        self._flush(1)
        groups, size = [], SHARD_ROWS
        for part in [*self._old(), *self._new]:
            size += len(part.rows)
            if size > SHARD_ROWS:  # Merges small neighbours.
                groups.append([])
                size = len(part.rows)
            groups[-1].append(part)
        shards = tuple(map(self._joined, groups))
        self._manifest = dataclasses.replace(self._manifest, shards=shards)
        write_manifest(self.path, self._manifest)
        self._is_new = False
        named = {name for shard in shards for name in shard.sha256}
        named.add(search_index.cells_file(self.path, shards).name)
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name) and name not in named:
                (self.path / name).unlink()

    def _undo(self):
        (self.path / MANIFEST).unlink(missing_ok=True)
        for name in filter(_OURS.fullmatch, os.listdir(self.path)):
            (self.path / name).unlink()
        with contextlib.suppress(OSError):  # The lock may be in use.
            (self.path / _LOCK).unlink()
            if self._makes_folder:
                self.path.rmdir()

    def _old(self):
        first = 0
        for shard, file in zip(
            self._store.manifest.shards, self._store.row_files
        ):
            rows = slice(first, first + shard.rows)
            kept_rows = np.flatnonzero(~self._gone[rows])
            if len(kept_rows):
                yield _Part(shard, self._store.ids[rows], file, kept_rows)
            first += shard.rows

    def _flush(self, size):
        rows = [np.concatenate(self._rows)] if self._rows else []
        ids, at = self._ids, 0
        while len(ids) - at >= size:
            part = slice(at, at + SHARD_ROWS)
            self._new.append(self._write(ids[part], rows[0][part]))
            at += len(ids[part])
        self._ids, self._rows = ids[at:], [array[at:] for array in rows]

    def _joined(self, parts):
        if len(parts) == 1 and len(parts[0].rows) == parts[0].shard.rows:
            return parts[0].shard
        ids = [part.ids[row] for part in parts for row in part.rows]
        rows = [part.file.map()[part.rows] for part in parts]
        return self._write(ids, np.concatenate(rows)).shard

    def _write(self, ids, rows):
        digest = hashlib.sha256(rows.view(np.uint8))
        digest.update("\n".join(ids).encode())
        name = digest.hexdigest()[:16]
        shard = write_shard(self.path, name, ids, {"features": rows})
        path = self.path / shard.files["features"]
        file = open_rows(path, rows.shape, rows.dtype)
        return _Part(shard, ids, file, np.arange(len(rows)))
