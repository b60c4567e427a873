"""The manifest of a feature store: what it holds and what made it.

::

    STORE/manifest.json
          00000.npy  00000.ids.txt                       a shard of images
          00000.boxes.npy  00000.counts.npy              and for regions
          00000.scores.npy  00000.sizes.npy              if they are known

Keys are sorted and nothing tells the time, so the same extraction gives the
same bytes. docs/feature_stores.md shows an example.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re

import numpy as np

from tbnets import files
from tbnets.checked_files import CheckedFile, shown
from tbnets.errors import MissingFileError

FORMAT = "tbnets-features-1"
MANIFEST = "manifest.json"
KINDS = ("images", "regions")
DTYPES = ("float32", "float16")
_HASH_CHUNK = 2**20


@dataclasses.dataclass(frozen=True)
class Shard:
    """One group of files of a store.

    Args:
        name: what its files begin with.
        images: how many images it holds.
        rows: how many rows of features, or boxes.
        sha256: file name -> checksum.
    """

    name: str
    images: int
    rows: int
    sha256: dict


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says, checked.

    Args:
        kind: one of KINDS: a row an image, or any number of regions.
        extraction: JSON value of all that made the features.
        dim: features in a row; 0 for boxes alone.
        dtype: one of DTYPES.
        complete: whether the extraction came to its end.
        shards: tuple of `Shard`.
        failed: id -> reason.
    """

    kind: str
    extraction: dict
    dim: int
    dtype: str
    complete: bool = False
    shards: tuple = ()
    failed: dict = dataclasses.field(default_factory=dict)

    @property
    def made_by(self):
        """What the features were made with, as a dict to compare."""
        store = {"dim": self.dim, "dtype": self.dtype, "kind": self.kind}
        return {**self.extraction, "store": store}


def shard_files(kind, dim, name):
    """Returns the files that each shard has: part -> file name.

    Parts are `ids`, `features` unless `dim` is 0, and for regions `boxes`
    and `counts`, with `scores` where there are boxes alone.
    """
    parts = ["features"] * bool(dim)
    if kind == "regions":
        parts += ["boxes", "counts", *["scores"] * (not dim)]
    return {"ids": f"{name}.ids.txt", **_array_files(parts, name)}


def optional_files(kind, dim, name):
    """Returns the files that a shard may have besides: part -> file name.

    For regions these are `sizes`, of the photos, and `scores`, of boxes that
    come with features.
    """
    if kind != "regions":
        return {}
    return _array_files(["scores", "sizes"] if dim else ["sizes"], name)


def _array_files(parts, name):
    return {
        part: f"{name}.npy" if part == "features" else f"{name}.{part}.npy"
        for part in parts
    }


def array_kinds(manifest, images, rows):
    """Returns what the arrays of a shard must be: part -> (shape, dtype).

    Args:
        manifest: of the store.
        images: how many images the shard has.
        rows: how many rows of features, or boxes.
    """
    kinds = {
        "features": ((rows, manifest.dim), manifest.dtype),
        "boxes": ((rows, 4), "float32"),
        "counts": ((images,), "int64"),
        "scores": ((rows,), "float32"),
        "sizes": ((images, 2), "int64"),
    }
    return {
        part: (shape, np.dtype(dtype).newbyteorder("<"))
        for part, (shape, dtype) in kinds.items()
    }


def files_of(manifest, shard):
    """Returns all files of a shard: part -> file name."""
    more = optional_files(manifest.kind, manifest.dim, shard.name)
    return {
        **shard_files(manifest.kind, manifest.dim, shard.name),
        **{part: name for part, name in more.items() if name in shard.sha256},
    }


def write_manifest(folder, manifest):
    """Writes `manifest.json` atomically."""
    value = dataclasses.asdict(manifest)
    value["format"] = FORMAT
    value["failed"] = [
        {"id": key, "reason": reason}
        for key, reason in sorted(manifest.failed.items())
    ]
    files.write_json(pathlib.Path(folder) / MANIFEST, value)


def read_manifest(folder) -> Manifest:
    """Reads and checks `manifest.json`.

    Args:
        folder: a feature store.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: it is not what `write_manifest` writes; the message names
            the place in it.
    """
    path = os.path.join(folder, MANIFEST)
    if not os.path.isfile(path):
        raise MissingFileError(
            f"`path` must be a feature store or a .npy file. Received: "
            f"path={folder}, a folder without {MANIFEST}. Name the folder "
            "that the extraction wrote."
        )
    file = CheckedFile(path)
    value = file.json()
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        found = value.get("format") if isinstance(value, dict) else value
        file.report(f"expected 'format' {FORMAT!r}; found {shown(found)}.")
    del value["format"]
    _check_fields(file, "", value, _MANIFEST)
    for name, known in (("kind", KINDS), ("dtype", DTYPES)):
        if value[name] not in known:
            file.report(
                f"'{name}': expected {' or '.join(map(repr, known))}; found "
                f"{shown(value[name])}."
            )
    if value["kind"] == "images" and not value["dim"]:
        file.report("'dim': expected at least 1; found 0.")
    for place, entry in enumerate(value["failed"]):
        _check_fields(file, f"failed[{place}]", entry, _FAILED)
    failed = {entry["id"]: entry["reason"] for entry in value["failed"]}
    shards = _read_shards(file, value)
    return Manifest(**{**value, "shards": shards, "failed": failed})


_MANIFEST = {
    "complete": bool,
    "dim": int,
    "dtype": str,
    "extraction": dict,
    "failed": list,
    "kind": str,
    "shards": list,
}
_SHARD = {"images": int, "name": str, "rows": int, "sha256": dict}
_FAILED = {"id": str, "reason": str}
_KIND_NAMES = {
    bool: "true or false",
    dict: "an object",
    int: "a whole number from 0",
    list: "a list",
    str: "a string",
}


def _check_fields(file, where, value, kinds):
    """Reports keys of an object that are missing, too many or of other type."""
    if not isinstance(value, dict) or set(value) != set(kinds):
        found = sorted(value) if isinstance(value, dict) else value
        file.report(
            f"{where or 'the manifest'!r}: expected an object with the keys "
            f"{', '.join(kinds)}; found {shown(found)}."
        )
    prefix = f"{where}." if where else ""
    for name, kind in kinds.items():
        found = value[name]
        if type(found) is not kind or (kind is int and found < 0):
            file.report(
                f"'{prefix}{name}': expected {_KIND_NAMES[kind]}; found "
                f"{shown(found)}."
            )


def _read_shards(file, value):
    shards = []
    for place, entry in enumerate(value["shards"]):
        where = f"shards[{place}]"
        _check_fields(file, where, entry, _SHARD)
        shard = Shard(**entry)
        if not re.fullmatch(r"[A-Za-z0-9_-]+", shard.name):
            file.report(
                f"'{where}.name': expected a plain name inside the folder; "
                f"found {shown(shard.name)}."
            )
        expected = shard_files(value["kind"], value["dim"], shard.name)
        more = optional_files(value["kind"], value["dim"], shard.name)
        names = set(shard.sha256) - set(more.values())
        if names != set(expected.values()):
            file.report(
                f"'{where}.sha256': expected checksums of "
                f"{', '.join(sorted(expected.values()))}; found "
                f"{shown(shard.sha256)}."
            )
        if value["kind"] == "images" and shard.rows != shard.images:
            file.report(
                f"'{where}.rows': expected {shard.images}, a row an image; "
                f"found {shard.rows}."
            )
        shards.append(shard)
    if len({shard.name for shard in shards}) < len(shards):
        file.report("'shards': expected each name once.")
    return tuple(shards)


def file_sha256(path) -> str:
    """Returns the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def extraction_differences(a, b, name_a, name_b) -> list[str]:
    """Returns what differs between two descriptions of an extraction.

    Args:
        a: JSON value, for instance `Features.made_by`.
        b: another.
        name_a: what to call `a`, for instance its path.
        name_b: what to call `b`.

    Returns:
        Lines such as "layers: fire9_concat in A, conv1 in B"; [] if they
        are equal.
    """
    return [
        f"{where}: {one} in {name_a}, {other} in {name_b}"
        for where, one, other in _differences(a, b, "")
    ]


_ABSENT = object()


def _differences(a, b, where):
    """Yields (place, shown value, shown value) of what differs."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            place = f"{where}.{key}" if where else str(key)
            yield from _differences(
                a.get(key, _ABSENT), b.get(key, _ABSENT), place
            )
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for place, (one, other) in enumerate(zip(a, b)):
            yield from _differences(one, other, f"{where}[{place}]")
    elif a != b or isinstance(a, bool) != isinstance(b, bool):
        yield where or "all", _shown(a), _shown(b)


def _shown(value):
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        inner = ", ".join(map(_shown, value[:8]))
        return f"[{inner}{', ...' * (len(value) > 8)}] ({len(value)})"
    return json.dumps(value, sort_keys=True)
