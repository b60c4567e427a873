"""Reads and writes manifests, which list a feature store's files and settings.

::

    STORE/manifest.json
          features.npy  ids.txt        one row and one line per image
          boxes.npy  counts.npy        only for regions
          scores.npy  sizes.npy        only for regions, optional

The files only grow. The manifest contains the numbers of valid images and rows.
Rows after these are from a killed writer, and will be overwritten. Keys
are sorted and there are no timestamps, so repeating an extraction writes
identical bytes. docs/feature_stores.md shows an example.
"""

import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from tbnets import files
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, is_kind

FORMAT = "tbnets-features-3"
MANIFEST = "manifest.json"
KINDS = ("images", "regions")
DTYPES = {"float32": "<f4", "float16": "<f2"}
PARTS = ("features", "boxes", "counts", "scores", "sizes")
_PARTS = {
    ("images", True): (("features",), ()),
    ("regions", True): (("features", "boxes", "counts"), ("scores", "sizes")),
    ("regions", False): (("boxes", "counts", "scores"), ("sizes",)),
}
"""Maps (kind, whether `dim` is above 0) to two tuples: the arrays that every
store contains, and the arrays that it may contain."""
_HASH_CHUNK = 2**20


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The checked content of `manifest.json`.

    Args:
        kind: "images" (one row per image) or "regions" (any number per image).
        extraction: dict of JSON values, the settings that affect the features.
        dim: number of features per row; 0 for boxes without features.
        dtype: key of DTYPES.
        complete: whether the extraction finished.
        images: number of images.
        rows: number of feature rows, or of boxes without features.
        sha256: maps "ids" and the names of arrays to the SHA-256 digests of
            their valid rows, or to "" until the extraction is complete.
        failed: maps the id of each failed image to the reason.
        version: number of times that rows were removed. It is part of the file
            names, because rows are removed by writing new files.
    """

    kind: str
    extraction: dict
    dim: int
    dtype: str
    complete: bool = False
    images: int = 0
    rows: int = 0
    sha256: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    version: int = 0

    def __post_init__(self):
        """Raises ValueError if there is no such store."""
        kind = self.kind, self.dim > 0
        if self.dim < 0 or self.dtype not in DTYPES or kind not in _PARTS:
            raise InputError(
                "kind, dim or dtype",
                f"be {' or '.join(KINDS)}, an integer >= 1 (or 0 for only "
                f"boxes), and {' or '.join(DTYPES)}",
                f"{self.kind!r}, {self.dim} and {self.dtype!r}",
                "Change these arguments.",
            )

    @property
    def made_by(self):
        """A dict of the extraction's settings and the array format."""
        store = {"dim": self.dim, "dtype": self.dtype, "kind": self.kind}
        return {**self.extraction, "store": store}

    @property
    def parts(self):
        """Names of the store's arrays: (required, optional), two tuples."""
        return _PARTS[self.kind, self.dim > 0]

    @property
    def files(self):
        """A dict that maps "ids" and the names of arrays to file names."""
        version = f"-{self.version}" if self.version else ""
        return {
            part: f"{part}{version}{'.txt' if part == 'ids' else '.npy'}"
            for part in self.sha256
        }

    def arrays(self, images, rows):
        """Returns a dict from the name of each array to its (shape, dtype)."""
        return {
            "features": ((rows, self.dim), np.dtype(DTYPES[self.dtype])),
            "boxes": ((rows, 4), np.dtype("<f4")),
            "counts": ((images,), np.dtype("<i8")),
            "scores": ((rows,), np.dtype("<f4")),
            "sizes": ((images, 2), np.dtype("<i8")),
        }


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
    kinds = Manifest.__annotations__
    bad = {
        name: value.get(name)
        for name in dict.fromkeys([*kinds, *value])
        if not is_kind(value.get(name), kinds.get(name))
    }
    if bad:
        expected = [f"{name} ({kind})" for name, kind in kinds.items()]
        file.refuse(f"{', '.join(expected)}, with numbers >= 0", bad)
    try:
        manifest = Manifest(**value)
    except InputError as error:
        file.report(str(error))
    (required, optional), images = manifest.parts, manifest.images
    expected, found = {"ids", *required}, set(manifest.sha256)
    if not images:
        expected, optional = set(), ()
    if not expected <= found <= expected | set(optional):
        file.refuse(f"the keys {sorted(expected)}", sorted(found), "'sha256'")
    rows = images if manifest.kind == "images" else manifest.rows
    if manifest.rows != rows or manifest.rows and not images:
        file.refuse(f"{rows}, one per image", manifest.rows, "'rows'")
    return manifest


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
