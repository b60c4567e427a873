"""Writes a feature store shard by shard.

The files of a shard are written atomically before the shard is added to the
manifest. If a writer is killed, at most one shard is lost.
"""

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re

import numpy as np

from tbnets import files
from tbnets.data.store import manifest as manifests
from tbnets.data.store.manifest import MANIFEST
from tbnets.data.store.shards import open_store
from tbnets.errors import InputError, check_choice
from tbnets.evaluation.boxes import check_boxes
from tbnets.files import shown

_OURS = re.compile(
    r"\d{5,}(\.ids\.txt|(\.boxes|\.counts|\.scores|\.sizes)?\.npy)"
)
_ID = re.compile(r"(?!\ufeff)[^\r\n\ud800-\udfff]+")
"""A line of Unicode text without a byte order mark."""
_LEAST = {"counts": 0, "sizes": 1}
"""Maps each integer array with one row per image to its minimum value."""


class FeatureWriter:
    """Writes a new feature store, or continues an existing store.

    Args:
        path: the folder. It is created if it does not exist.
        extraction: dict of JSON values, the settings that affect the features.
        dim: number of features per row; 0 for only boxes and scores.
        dtype: "float32" or "float16".
        kind: "images" (one row per image) or "regions" (any number per image).

    Example:
        >>> writer = FeatureWriter("features", {"model": "VGG19"}, dim=4096)
        >>> writer.add_shard(["a.jpg"], np.ones((1, 4096)))
        >>> writer.finish()
    """

    def __init__(self, path, extraction, dim, dtype="float32", kind="images"):
        self.path = pathlib.Path(path)
        manifest = new_manifest(extraction, dim, dtype, kind)
        self.done = set()
        """The ids whose features are stored."""
        self._written = None
        if (self.path / MANIFEST).exists():
            store = open_store(self.path, incomplete=True)
            manifests.check_same(self.path, store.made_by, manifest.made_by)
            self.done.update(store.ids)
            self._manifest = store.manifest
            self._written = (self.path / MANIFEST).read_bytes()
        else:
            make_folder(self.path)
            self._write(manifest)

    @property
    def failed(self) -> dict:
        """Maps the id of each image whose extraction failed to the reason."""
        return dict(self._manifest.failed)

    @property
    def dtype(self) -> str:
        """The dtype of the stored features."""
        return self._manifest.dtype

    def add_shard(
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
        regions. `scores` must be passed for all shards or for none, and so must
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
        manifest = dataclasses.replace(
            self._manifest, complete=False, failed={**noted, **failed}
        )
        if ids:
            arrays = features, boxes, counts, scores, sizes
            parts = dict(zip(manifests.PARTS, arrays))
            parts = checked_arrays(manifest, ids, parts)
            self._check_alone()
            name = f"{len(manifest.shards):05d}"
            shard = write_shard(self.path, name, ids, parts)
            shards = (*manifest.shards, shard)
            manifest = dataclasses.replace(manifest, shards=shards)
        self._write(manifest)
        self.done.update(ids)

    def finish(self):
        """Marks the store as complete. Removes files that killed runs left."""
        self._check_alone()
        shards = self._manifest.shards
        named = {name for shard in shards for name in shard.sha256}
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name) and name not in named:
                (self.path / name).unlink()
        self._write(dataclasses.replace(self._manifest, complete=True))

    def _check_alone(self):
        path = self.path / MANIFEST
        if self._written != (path.read_bytes() if path.exists() else None):
            raise InputError(
                "path",
                "be a folder that no other process writes",
                f"path={self.path}, whose {MANIFEST} has changed",
                "End the other extraction, then run this extraction again: it "
                "resumes.",
            )

    def _write(self, manifest):
        self._check_alone()
        manifests.write_manifest(self.path, manifest)
        self._written = (self.path / MANIFEST).read_bytes()
        self._manifest = manifest


def write_shard(folder, name, ids, arrays):
    """Writes the files of a shard, and returns its `manifest.Shard`.

    `arrays` maps names in `manifest.PARTS` to arrays with the store's dtypes.
    """
    parts = {"ids": "".join(f"{key}\n" for key in ids).encode(), **arrays}
    checksums = dict(_write_part(folder, name, *part) for part in parts.items())
    rows = arrays["features"] if "features" in arrays else arrays["boxes"]
    return manifests.Shard(name, len(ids), len(rows), checksums)


def _write_part(folder, name, part, content):
    if part != "ids":
        buffer = io.BytesIO()
        stored = content.view(manifests.in_file(content.dtype))
        np.save(buffer, stored, allow_pickle=False)
        content = buffer.getbuffer()
    name = manifests.file_of(name, part)
    files.write_atomically(folder / name, lambda file: file.write(content))
    return name, hashlib.sha256(content).hexdigest()


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
        reason = ""
        if not isinstance(key, str) or not _ID.fullmatch(key):
            reason = "is not a line of Unicode text"
        elif key in seen or key in done:
            reason = f"is repeated or already in {path}"
        if reason:
            raise InputError(
                "`ids` and `failed` must be new ids of one line. "
                f"Received: {shown(key)}, which {reason}. Leave it out, "
                "or rename the image."
            )
        seen.add(key)


def new_manifest(extraction, dim, dtype, kind):
    """Checks the arguments, and returns the manifest of an empty store."""
    check_choice("kind", kind, manifests.KINDS)
    check_choice("dtype", dtype, (*manifests.DTYPES, manifests.BFLOAT16))
    if dim < (kind == "images"):
        raise InputError(
            "dim",
            "be >= 1, or 0 for a store of only boxes",
            f"dim={dim}, kind={kind!r}",
            "Pass the number of features in a row.",
        )
    try:
        value = json.loads(json.dumps(extraction, allow_nan=False))
        if not isinstance(value, dict):
            raise TypeError(f"type {type(value).__name__}")
    except (TypeError, ValueError) as error:
        raise InputError(
            "extraction",
            "be a dict of JSON values",
            f"a value with {error}",
            "Use strings, finite numbers, lists and dicts.",
        ) from error
    return manifests.Manifest(kind, value, int(dim), dtype)


def make_folder(path, known=()):
    """Creates the folder of a store.

    If the folder exists and contains files other than `known`, raises an error.
    """
    holds = "is a file" if path.is_file() else ""
    if path.is_dir():
        names = {n for n in os.listdir(path) if not files.is_partial(n)}
        names -= set(known)
        if names:
            holds = f"has {', '.join(sorted(names)[:5])} but no {MANIFEST}"
    if holds:
        raise InputError(
            "path",
            "be a new folder, an empty folder or a feature store",
            f"path={path}, which {holds}",
            "Choose another folder.",
        )
    path.mkdir(parents=True, exist_ok=True)


def checked_arrays(manifest, ids, arrays):
    """Checks the arrays of a shard, and converts them to the store's dtypes."""
    arrays = {
        part: np.asarray(x) for part, x in arrays.items() if x is not None
    }
    required, optional = manifest.parts
    if manifest.shards:  # All shards have the same parts.
        required, optional = set(manifest.shards[-1].files) - {"ids"}, ()
    for part in sorted(set(required) ^ (set(arrays) - set(optional))):
        state = "given" if part in required else "None"
        raise InputError(
            part,
            f"be {state} for a store of {manifest.kind} with dim "
            f"{manifest.dim}",
            f"{part}={shown(arrays.get(part))}",
            "Pass the arrays of the earlier shards, or use another kind of "
            "store.",
        )
    counts = np.ones(len(ids), np.int64)
    if "counts" in arrays:
        kind = manifest.array_kinds(len(ids), 0)["counts"]
        counts = _converted("counts", arrays["counts"], *kind, ids)
    owners = np.repeat(ids, counts), ids  # Ids per region, and per image.
    kinds = manifest.array_kinds(len(ids), len(owners[0]))
    converted = {
        part: _converted(part, arrays[part], *kind, owners[part in _LEAST])
        for part, kind in kinds.items()
        if part in arrays
    }
    if "boxes" in converted:
        check_boxes(converted["boxes"])
    return converted


def _converted(part, array, shape, dtype, owners):
    expected, allowed = "finite numbers", "fiu"
    if part in _LEAST:
        expected, allowed = f"integers >= {_LEAST[part]}", "iu"
    if array.shape != shape or array.dtype.kind not in allowed:
        raise InputError(
            part,
            f"be {expected} of shape {shape}",
            f"shape {array.shape} and dtype {array.dtype}",
            "Pass one row per image, or per region in `counts`.",
        )
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(array, dtype)
    bad = stored < _LEAST[part] if part in _LEAST else ~np.isfinite(stored)
    for place in map(tuple, np.argwhere(bad)):
        raise InputError(
            part,
            f"be {expected} as {dtype.name}",
            f"{array[place]} for the image {str(owners[place[0]])!r}",
            "Check this image, record it as failed, or store float32.",
        )
    return stored
