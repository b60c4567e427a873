"""Writes feature stores row by row.

Rows are appended to the files, and become valid when the manifest is replaced.
If a writer is killed, the next writer overwrites the rows that the manifest
does not contain.
"""

import dataclasses
import json
import os
import pathlib
import re
import weakref

import numpy as np

from tbnets import files
from tbnets.data.store.features import slices
from tbnets.data.store.npy import header_bytes
from tbnets.data.store.reader import (
    MANIFEST,
    FeatureStore,
    Manifest,
    check_same,
    open_store,
    write_manifest,
)
from tbnets.errors import ExistingFileError, InputError
from tbnets.evaluation.boxes import check_boxes
from tbnets.files import listed, shown

_OURS = re.compile(
    r"(ids|features|boxes|counts|scores|sizes)(-\d+)?\.(txt|npy)"
)
"""The files of a store, besides its manifest."""
_ID = re.compile(r"(?!\ufeff)[^\r\n\ud800-\udfff]+")
"""A line of Unicode text without a byte order mark."""
CACHE = "cache"
"""Folder in a search index for the embeddings of an unfinished update."""


class FeatureWriter:
    """Writes a new feature store, or continues an existing store.

    Rows can be added to a store at any time, also after `finish`. Only one
    process at a time can write a store. Meanwhile, others can read it: an open
    `FeatureStore` does not change, and `open_store` returns all rows that were
    added before the call.

    The store is locked until `finish` or `close` is called, the writer is
    deleted, or the `with` block ends.

    Args:
        path: the folder. It is created if it does not exist.
        extraction: dict of JSON values, the settings that affect the features.
        dim: number of features per row; 0 for only boxes and scores.
        dtype: "float32" or "float16".
        kind: "images" (one row per image) or "regions" (any number per image).

    Raises:
        FileExistsError: another process is writing the store.
        ValueError: the store was written with other settings.

    Example:
        >>> with FeatureWriter("features", {"model": "VGG19"}, 4096) as writer:
        ...     writer.add(["a.jpg"], np.ones((1, 4096)))
        ...     writer.finish()
    """

    def __init__(self, path, extraction, dim, dtype="float32", kind="images"):
        self.path = pathlib.Path(path)
        extraction = json.loads(json.dumps(extraction, allow_nan=False))
        new = Manifest(kind, {**extraction}, int(dim), dtype)
        if not (self.path / MANIFEST).exists():
            make_folder(self.path)
        folder = os.open(self.path, os.O_RDONLY)
        self._unlock = weakref.finalize(self, os.close, folder)
        if files.try_lock(folder) is False:
            self.close()
            expected = "be a folder that no other process writes"
            raise ExistingFileError("path", expected, f"path={path}")
        self.is_new: bool = not (self.path / MANIFEST).exists()
        if self.is_new:
            write_manifest(self.path, new)
        self.store: FeatureStore = open_store(self.path, incomplete=True)
        """The store before the changes."""
        self.manifest: Manifest = self.store.manifest
        """The manifest that the next `commit` writes."""
        check_same(self.path, self.manifest.made_by, new.made_by)
        self.done: set = set(self.store.ids)
        """The ids whose features are stored."""
        self._ids_bytes = sum(len(key.encode()) + 1 for key in self.store.ids)
        self._written = self.manifest

    def __enter__(self):
        """Returns the writer."""
        return self

    def __exit__(self, *error):
        """Lets other processes write the store."""
        self.close()

    def close(self):
        """Lets other processes write the store. It can be continued later."""
        self._unlock()

    @property
    def failed(self) -> dict:
        """Maps the id of each image whose extraction failed to the reason."""
        return dict(self.manifest.failed)

    @property
    def dtype(self) -> str:
        """The dtype of the stored features."""
        return self.manifest.dtype

    def add(
        self,
        ids,
        features=None,
        boxes=None,
        counts=None,
        scores=None,
        sizes=None,
        failed=(),
    ):
        """Stores the features of some images, and records failed images.

        If an id is stored, its earlier failure is removed. Invalid arguments
        leave the store unchanged. All arrays except `features` are only for
        regions. `scores` must be passed in all calls or in none, and so must
        `sizes`.

        Args:
            ids: n strings, which must not be stored yet. May be empty.
            features: numbers `[n, dim]`, or `[rows, dim]` for regions.
            boxes: `[rows, 4]`, x_min, y_min, x_max, y_max in pixels of the
                photo.
            counts: int `[n]`, number of consecutive rows per image.
            scores: `[rows]`; required if `dim` is 0.
            sizes: int `[n, 2]`, width and height of each photo in pixels.
            failed: pairs (id, reason), or a dict.
        """
        ids, failed = list(ids), dict(failed)
        check_ids([*ids, *failed], self.done, self.path)
        noted = {k: v for k, v in self.failed.items() if k not in set(ids)}
        if ids:
            arrays = {"features": features, "boxes": boxes, "counts": counts}
            arrays |= {"scores": scores, "sizes": sizes}
            self.append(ids, checked_arrays(self.manifest, ids, arrays))
        self.commit(complete=False, failed={**noted, **failed})

    def finish(self):
        """Marks the store as complete, and lets other processes write it."""
        self.commit(complete=True)
        self.close()

    # A search index adds, replaces and removes rows, and commits once. The next
    # writer overwrites rows that were not committed.

    def append(self, ids, arrays):
        """Appends images, which become valid when `commit` is called.

        `arrays` is the result of `checked_arrays`.
        """
        old = self.manifest
        rows = len(arrays["features" if old.dim else "boxes"])
        new = dataclasses.replace(
            old,
            complete=False,
            images=old.images + len(ids),
            rows=old.rows + rows,
            sha256=dict.fromkeys(["ids", *arrays], ""),
        )
        lines = "".join(f"{key}\n" for key in ids).encode()
        self._write(new.files["ids"], b"", self._ids_bytes, lines)
        before = old.arrays(old.images, old.rows)
        for name, kind in new.arrays(new.images, new.rows).items():
            if name in arrays:
                header = header_bytes(kind.shape, kind.dtype)
                start = len(header) + before[name].num_bytes
                self._write(new.files[name], header, start, arrays[name])
        self.manifest, self._ids_bytes = new, self._ids_bytes + len(lines)
        self.done.update(ids)

    def _write(self, name, header, start, content):
        if not self._unlock.alive:
            expected = "not be closed"
            raise InputError("writer", expected, f"the writer of {self.path}")
        path = self.path / name
        with open(path, "r+b" if path.exists() else "w+b") as file:
            file.truncate(start)  # Removes what a killed writer left.
            file.seek(start)
            file.write(content)
            file.seek(0)
            file.write(header)

    def rewrite(self, rows):
        """Copies some rows of a store of images into new files, in order.

        `rows` also contains the rows that were appended since the last commit.
        """
        store, self._ids_bytes = FeatureStore(self.path, self.manifest), 0
        self.manifest = dataclasses.replace(
            self.manifest,
            version=self.manifest.version + 1,
            images=0,
            rows=0,
            sha256={},
        )
        for part in slices(len(rows), 4 * store.dim):
            chunk = {"features": store.arrays["features"][rows[part]]}
            self.append([store.ids[row] for row in rows[part]], chunk)

    def commit(self, **changes):
        """Replaces the manifest, with changed fields, and removes old files."""
        manifest = dataclasses.replace(self.manifest, **changes)
        if manifest != self._written:
            for name in manifest.files.values():
                with open(self.path / name, "rb") as file:
                    os.fsync(file.fileno())
            if manifest.complete and not all(manifest.sha256.values()):
                sums = FeatureStore(self.path, manifest).checksums()
                manifest = dataclasses.replace(manifest, sha256=sums)
            write_manifest(self.path, manifest)
        self.manifest = self._written = manifest
        if manifest.complete:
            self.remove_files(manifest.files.values())

    def remove_files(self, used=()):
        """Removes the files of the store that are not in `used`."""
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name) and name not in used:
                (self.path / name).unlink()


def fault_of_name(name):
    """Returns why a name cannot be an id, or "" if it can be an id."""
    if _ID.fullmatch(name):
        return ""
    return "has a name that is not a line of Unicode text: rename it"


def check_ids(ids, done, path):
    """Raises ValueError if new ids are not text or not unique.

    `done` contains the ids that are already stored in `path`.
    """
    seen = set()
    for key in ids:
        is_line = isinstance(key, str) and _ID.fullmatch(key)
        if not is_line or key in seen or key in done:
            expected = f"be lines of Unicode text, each once in {path}"
            raise InputError("ids", expected, shown(key))
        seen.add(key)


def make_folder(path):
    """Creates the folder of a store.

    Raises an error if it contains other files than a folder `CACHE`.
    """
    found = path.iterdir() if path.is_dir() else [path] * path.exists()
    names = {x.name for x in found if not files.is_partial(x.name)}
    if names := names - {CACHE}:
        raise InputError(
            "path",
            "be a new folder, an empty folder or a feature store",
            f"path={path}, with {listed(sorted(names))}",
        )
    path.mkdir(parents=True, exist_ok=True)


def checked_arrays(manifest, ids, arrays):
    """Checks the arrays of images, and converts them to the store's dtypes."""
    arrays = {k: np.asarray(x) for k, x in arrays.items() if x is not None}
    required, possible = manifest.required(), manifest.arrays(0, 0).keys()
    if manifest.images:
        required = possible = manifest.sha256.keys() - {"ids"}
    if wrong := (required - arrays.keys()) | (arrays.keys() - possible):
        raise InputError(
            ", ".join(sorted(wrong)),
            f"be arrays only if they are in {sorted(required)}, the arrays of "
            "this store and of its earlier rows",
            ", ".join(sorted(arrays)),
        )
    counts = np.ones(len(ids), np.int64)
    if "counts" in arrays:
        kind = manifest.arrays(len(ids), 0)["counts"]
        counts = _converted("counts", arrays["counts"], kind, ids)
    owners = np.repeat(ids, counts)
    converted = {
        name: _converted(
            name, arrays[name], kind, ids if kind.of_images else owners
        )
        for name, kind in manifest.arrays(len(ids), len(owners)).items()
        if name in arrays
    }
    if "boxes" in converted:
        check_boxes(converted["boxes"])
    return converted


def _converted(name, array, kind, owners):
    expected, allowed = "finite numbers", "fiu"
    if kind.of_images:
        expected, allowed = f"integers >= {kind.minimum}", "iu"
    if array.shape != kind.shape or array.dtype.kind not in allowed:
        raise InputError(
            name,
            f"be {expected} of shape {kind.shape}",
            f"shape {array.shape} and dtype {array.dtype}",
        )
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(array, kind.dtype)
    good = stored >= kind.minimum if kind.of_images else np.isfinite(stored)
    for place in map(tuple, np.argwhere(~good)):
        raise InputError(
            name,
            f"be {expected} as {kind.dtype.name}",
            f"{array[place]} for the image {str(owners[place[0]])!r}",
        )
    return stored
