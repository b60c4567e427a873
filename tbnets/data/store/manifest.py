"""Reads and writes manifests, which list a feature store's files and settings.

::

    STORE/manifest.json
          00000.npy  00000.ids.txt               first shard: features, ids
          00000.boxes.npy  00000.counts.npy      only for regions
          00000.scores.npy  00000.sizes.npy      only for regions, optional

Keys are sorted and there are no timestamps, so repeating an extraction writes
identical bytes. docs/feature_stores.md shows an example.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re

import ml_dtypes  # noqa: F401 (Registers bfloat16 in NumPy.)
import numpy as np

from tbnets import files
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, is_kind

FORMAT = "tbnets-features-2"
MANIFEST = "manifest.json"
KINDS = ("images", "regions")
DTYPES = ("float32", "float16")
BFLOAT16 = "bfloat16"
"""An additional dtype for embeddings. Files store its bits as uint16."""
_DTYPES = {"float32": "<f4", "float16": "<f2", BFLOAT16: BFLOAT16}
"""Maps the name of a dtype to its NumPy name in memory."""
PARTS = ("features", "boxes", "counts", "scores", "sizes")
_PARTS = {
    ("images", True): (("features",), ()),
    ("regions", True): (("features", "boxes", "counts"), ("scores", "sizes")),
    ("regions", False): (("boxes", "counts", "scores"), ("sizes",)),
}
"""Maps (kind, whether `dim` is above 0) to two tuples: the arrays that every
shard contains, and the arrays that either all shards or no shards contain."""
_HASH_CHUNK = 2**20


@dataclasses.dataclass(frozen=True)
class Shard:
    """The files of one shard of a store.

    `rows` is the number of feature rows, or of boxes without features. `sha256`
    maps file names to digests.
    """

    name: str
    images: int
    rows: int
    sha256: dict

    @property
    def files(self):
        """A dict that maps "ids" and each array's name to a file name."""
        names = {part: file_of(self.name, part) for part in ("ids", *PARTS)}
        return {p: name for p, name in names.items() if name in self.sha256}


def file_of(name, part):
    """Returns the file name of a shard's ids, or of one of its arrays."""
    if part == "ids":
        return f"{name}.ids.txt"
    return f"{name}.npy" if part == "features" else f"{name}.{part}.npy"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The checked content of `manifest.json`.

    Args:
        kind: "images" (one row per image) or "regions" (any number per image).
        extraction: dict of JSON values, the settings that affect the features.
        dim: number of features per row; 0 for boxes without features.
        dtype: element of DTYPES, or BFLOAT16.
        complete: whether the extraction finished.
        failed: maps the id of each failed image to the reason.
    """

    kind: str
    extraction: dict
    dim: int
    dtype: str
    complete: bool = False
    shards: tuple = ()
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def made_by(self):
        """A dict of the extraction's settings and the array format."""
        store = {"dim": self.dim, "dtype": self.dtype, "kind": self.kind}
        return {**self.extraction, "store": store}

    @property
    def parts(self):
        """Names of the arrays in a shard: (required, optional), two tuples."""
        return _PARTS[self.kind, self.dim > 0]

    def array_kinds(self, images, rows):
        """Returns a dict from the name of each array to its (shape, dtype)."""
        return {
            "features": ((rows, self.dim), np.dtype(_DTYPES[self.dtype])),
            "boxes": ((rows, 4), np.dtype("<f4")),
            "counts": ((images,), np.dtype("<i8")),
            "scores": ((rows,), np.dtype("<f4")),
            "sizes": ((images, 2), np.dtype("<i8")),
        }


def in_file(dtype):
    """Returns the `numpy.dtype` that files use for a dtype."""
    return np.dtype("<u2") if dtype.name == BFLOAT16 else dtype


def write_manifest(folder, manifest):
    """Writes `manifest.json` atomically."""
    value = dataclasses.asdict(manifest)
    value["format"] = FORMAT
    files.write_json(pathlib.Path(folder) / MANIFEST, value)


def read_manifest(folder) -> Manifest:
    """Reads and checks the `manifest.json` of a feature store."""
    path = os.path.join(folder, MANIFEST)
    if not os.path.isfile(path):
        raise MissingFileError(
            "`path` must be a feature store or a .npy file. Received: path="
            f"{folder}, a folder without {MANIFEST}. Check the path."
        )
    file = CheckedFile(path)
    value = file.json()
    label = value.pop("format", None) if isinstance(value, dict) else value
    if label != FORMAT:
        file.refuse(f"'format' {FORMAT!r}", label)
    _check_fields(file, "manifest", value, _MANIFEST)
    kind = value["kind"], value["dim"] > 0
    if value["dtype"] not in _DTYPES or kind not in _PARTS:
        file.report(
            f"expected 'kind' {' or '.join(KINDS)}, 'dtype' "
            f"{' or '.join(_DTYPES)} and 'dim' >= 1, or 0 for only boxes; "
            f"found {value['kind']!r}, {value['dtype']!r} and {value['dim']}."
        )
    for place, entry in enumerate(value["shards"]):
        _check_fields(file, f"shards[{place}]", entry, Shard.__annotations__)
    shards = tuple(Shard(**entry) for entry in value["shards"])
    manifest = Manifest(**{**value, "shards": shards})
    _check_shards(file, manifest)
    return manifest


_MANIFEST = Manifest.__annotations__ | {"shards": list}


def _check_fields(file, where, value, kinds):
    fields = value if isinstance(value, dict) else {"value": value}
    bad = {
        name: fields.get(name)
        for name in dict.fromkeys([*kinds, *fields])
        if not is_kind(fields.get(name), kinds.get(name))
    }
    if bad:
        expected = [f"{name} ({kind.__name__})" for name, kind in kinds.items()]
        expected = f"an object of {', '.join(expected)}, with numbers >= 0"
        file.refuse(expected, bad, f"'{where}'")


def _check_shards(file, manifest):
    required, optional = manifest.parts
    for place, shard in enumerate(manifest.shards):
        names = {file_of(shard.name, part) for part in ("ids", *required)}
        allowed = names | {file_of(shard.name, part) for part in optional}
        is_plain = re.fullmatch(r"[A-Za-z0-9_-]+", shard.name)
        if not is_plain or not names <= set(shard.sha256) <= allowed:
            expected = f"checksums of {', '.join(sorted(names))} in the folder"
            file.refuse(expected, shard.sha256, f"'shards[{place}].sha256'")
        if manifest.kind == "images" and shard.rows != shard.images:
            where = f"'shards[{place}].rows'"
            file.refuse(f"{shard.images}, one per image", shard.rows, where)
    if len({shard.name for shard in manifest.shards}) < len(manifest.shards):
        file.report("'shards': expected each name once.")


def file_sha256(path) -> str:
    """Returns the SHA-256 digest of a file in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def extraction_differences(a, b, name_a, name_b) -> list[str]:
    """Lists the differences between two JSON values that describe extractions.

    `name_a` and `name_b` are the names of `a` and `b` in the result. Returns
    lines such as "layers[0]: fire9_concat in A, conv1 in B", or [] if the
    values are equal.
    """
    values_a, values_b = dict(_values(a)), dict(_values(b))
    pairs = {
        place: (values_a.get(place, "nothing"), values_b.get(place, "nothing"))
        for place in {**values_a, **values_b}
    }
    return [
        f"{place}: {_text(value_a)} in {name_a}, {_text(value_b)} in {name_b}"
        for place, (value_a, value_b) in sorted(pairs.items())
        if value_a != value_b
    ]


def _values(value, place=""):
    """Yields (place, value) for each number, string and empty collection."""
    items = ()
    if isinstance(value, dict):
        items = [(f"{place}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{place}[{i}]", item) for i, item in enumerate(value)]
    for inner, item in items:
        yield from _values(item, inner.removeprefix("."))
    if not items:
        yield place, value


def _text(value):
    return value if isinstance(value, str) else json.dumps(value)


def check_same(path, stored, requested):
    """Raises a ValueError that lists how two extractions differ, if they do.

    `stored` and `requested` are the JSON values of the extractions.
    """
    lines = extraction_differences(stored, requested, path, "this extraction")
    if lines:
        raise InputError(
            "path",
            "be a new folder, or a store extracted with identical settings",
            f"path={path}, which differs: {'; '.join(lines)}",
            "Use the settings of the store, or another folder.",
        )
