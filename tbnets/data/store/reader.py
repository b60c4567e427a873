"""Opens feature stores and other feature files.

::

    STORE/manifest.json
          features.npy  ids.txt        one row and one line per image
          boxes.npy  counts.npy        only for regions
          scores.npy  sizes.npy        only for regions, optional

The arrays are memory-mapped. The files only grow. The manifest contains the
numbers of valid images and rows. Rows after these are from a killed writer, and
will be overwritten. Keys are sorted and there are no timestamps, so repeating
an extraction writes identical bytes. docs/feature_stores.md shows an example.

`open_features` does not read the features. To compute with them, use
`load_features`, which also checks that the files are unchanged and that all
values are finite.
"""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
from typing import NamedTuple

import numpy as np

from tbnets import files
from tbnets.checks import Path, checked_rows, first_twice
from tbnets.data.store.features import (
    FeatureArray,
    Features,
    SideBySide,
    check_finite,
    open_array,
)
from tbnets.data.store.npy import COPY_AGAIN, open_numbers
from tbnets.data.store.vectors import SUFFIX, read_vectors
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, is_kind, shown

FORMAT = "tbnets-features-3"
MANIFEST = "manifest.json"
DTYPES = {"float32": "<f4", "float16": "<f2"}
_HASH_CHUNK = 2**20


class ArrayKind(NamedTuple):
    """One of the arrays that a store may contain.

    Args:
        shape: the shape of the array.
        dtype: the dtype of the file.
        minimum: the smallest allowed integer in an array that contains integers
            for each image; None if it contains finite numbers for each row.
        is_required: whether every store with images contains the array.
    """

    shape: tuple
    dtype: np.dtype
    minimum: int | None = None
    is_required: bool = True

    @property
    def num_bytes(self):
        """Size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def of_images(self):
        """Whether the array contains integers for each image."""
        return self.minimum is not None


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
        least_dim = {"images": 1, "regions": 0}.get(self.kind, math.inf)
        if self.dim < least_dim or self.dtype not in DTYPES:
            raise InputError(
                "kind, dim or dtype",
                "be images or regions, an integer >= 1 (or 0 for only boxes), "
                f"and {' or '.join(DTYPES)}",
                f"{self.kind!r}, {self.dim} and {self.dtype!r}",
            )

    @property
    def made_by(self):
        """A dict of the extraction's settings and the array format."""
        store = {"dim": self.dim, "dtype": self.dtype, "kind": self.kind}
        return {**self.extraction, "store": store}

    @property
    def files(self):
        """A dict that maps "ids" and the names of arrays to file names."""
        version = f"-{self.version}" if self.version else ""
        return {
            part: f"{part}{version}{'.txt' if part == 'ids' else '.npy'}"
            for part in self.sha256
        }

    def arrays(self, images, rows):
        """Returns a dict from the name of each array to its `ArrayKind`."""
        floats, integers = np.dtype("<f4"), np.dtype("<i8")
        stored, kinds = np.dtype(DTYPES[self.dtype]), {}
        if self.dim:
            kinds["features"] = ArrayKind((rows, self.dim), stored)
        if self.kind == "regions":
            kinds["boxes"] = ArrayKind((rows, 4), floats)
            kinds["counts"] = ArrayKind((images,), integers, 0)
            kinds["scores"] = ArrayKind((rows,), floats, None, not self.dim)
            kinds["sizes"] = ArrayKind((images, 2), integers, 1, False)
        return kinds

    def required(self):
        """Returns the names of the arrays that a store with images contains."""
        kinds = self.arrays(0, 0).items()
        return {name for name, kind in kinds if kind.is_required}


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
    for name in dict.fromkeys([*kinds, *value]):
        if not is_kind(value.get(name), kinds.get(name)):
            file.refuse(f"{name} ({kinds.get(name)})", value.get(name))
    try:
        manifest = Manifest(**value)
    except InputError as error:
        file.report(str(error))
    images, found = manifest.images, set(manifest.sha256)
    expected = {"ids", *manifest.required()} if images else set()
    possible = {"ids", *manifest.arrays(0, 0)} if images else set()
    if not expected <= found <= possible:
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


def extraction_differences(a, b, name_a, name_b, place="") -> list[str]:
    """Lists the differences between two JSON values that describe extractions.

    `name_a` and `name_b` are the names of `a` and `b` in the result. Returns
    lines such as "layers.0: fire9_concat in A, conv1 in B", or [] if the values
    are equal. `place` is the place of both values.
    """
    if isinstance(a, list) and isinstance(b, list):
        a, b = dict(enumerate(a)), dict(enumerate(b))
    if isinstance(a, dict) and isinstance(b, dict):
        lines = []
        for key in sorted({**a, **b}):
            values = a.get(key, "nothing"), b.get(key, "nothing")
            inner = f"{place}.{key}".removeprefix(".")
            lines += extraction_differences(*values, name_a, name_b, inner)
        return lines
    if a == b:
        return []
    texts = [x if isinstance(x, str) else json.dumps(x) for x in (a, b)]
    return [f"{place}: {texts[0]} in {name_a}, {texts[1]} in {name_b}"]


def check_same(path, stored, requested):
    """Raises a ValueError that lists how two extractions differ, if they do.

    `stored` and `requested` are the JSON values of the extractions.
    """
    lines = extraction_differences(stored, requested, path, "this extraction")
    if lines:
        raise InputError(
            "path",
            "be a new folder, or features extracted with identical settings",
            f"path={path}, which differs: {'; '.join(lines)}",
        )


def open_store(path, incomplete=False) -> "FeatureStore":
    """Opens a feature store. Reads only its manifest, ids and headers.

    If `incomplete` is True, the extraction may be unfinished. Rows that a
    writer adds later are not in the open store.
    """
    manifest = read_manifest(path)
    if not (manifest.complete or incomplete):
        raise InputError(
            "path",
            "be a complete feature store",
            f"{path}, whose extraction stopped after {manifest.images} images",
            "Run the extraction again: it resumes.",
        )
    store = FeatureStore(path, manifest)
    twice = first_twice([*store.ids, *manifest.failed])
    if twice is not None:
        file = CheckedFile(os.path.join(path, MANIFEST))
        file.refuse("each id once, in ids.txt or in 'failed'", twice)
    return store


class FeatureStore(FeatureArray):
    """A feature store that is open for reading. Use `open_store` to open it."""

    def __init__(self, path, manifest):
        path, images = os.fspath(path), manifest.images
        self.manifest = manifest
        self.file_of = {
            part: os.path.join(path, name)
            for part, name in manifest.files.items()
        }
        """Maps "ids" and the names of arrays to the paths of their files."""
        kinds = manifest.arrays(images, manifest.rows)
        self.arrays = {
            part: _open_rows(file, kinds[part])
            for part, file in self.file_of.items()
            if part != "ids"
        }
        """Maps names to memory-mapped arrays."""
        ids = read_ids(self.file_of["ids"], images) if images else []
        nothing = np.empty((0, manifest.dim), np.float32)
        super().__init__(ids, self.arrays.get("features", nothing), path)
        self.kind = manifest.kind
        self.extraction = manifest.extraction
        self.complete = manifest.complete
        self.failed = manifest.failed
        self.made_by = manifest.made_by
        self.counts = self.arrays.get("counts", np.ones(images, np.int64))
        """The number of regions per image, int64 `[n]`."""
        no_sizes = None if images else np.zeros((0, 2), np.int64)
        self.sizes = self.arrays.get("sizes", no_sizes)
        """Width and height of each photo in pixels, int64 `[n, 2]`, or None."""
        total = sum(self.counts.tolist())  # Python's integers do not overflow.
        if total != manifest.rows:
            file = CheckedFile(self.file_of["counts"])
            file.refuse(f"the sum {manifest.rows}", total, None, COPY_AGAIN)
        self.first_regions = np.cumsum(np.concatenate([[0], self.counts]))
        """Row of each image's first region, then the number of all regions.

        int64 `[n + 1]`. Regions are in the order of the images.
        """

    def take(self, rows) -> np.ndarray:
        """Returns the features of images, float32 `[len(rows), dim]`."""
        if self.kind == "regions":
            self._refuse("whole images")
        return super().take(rows)

    def row_name(self, row):
        """Describes a row of `chunks` for error messages."""
        if self.kind == "images":
            return super().row_name(row)
        image = int(np.searchsorted(self.first_regions, row, side="right")) - 1
        region = row - int(self.first_regions[image])
        return f"region {region} of id {shown(self.ids[image])}"

    def regions(self, row):
        """Returns (features, boxes) for the image at index `row`.

        Features are float32 `[k, dim]`. Boxes are float32 `[k, 4]`: (x_min,
        y_min, x_max, y_max) in pixels of the photo. k is `counts[row]` and may
        be 0.
        """
        return self._of_image(row, "features"), self._of_image(row, "boxes")

    def boxes(self, row):
        """Returns (boxes, scores) for the image at index `row`.

        Boxes are float32 `[k, 4]`, as in `regions`. Scores are float32 `[k]`,
        or None if the store contains no scores.
        """
        boxes, scores = self._of_image(row, "boxes"), None
        if "scores" in self.arrays:
            scores = self._of_image(row, "scores")
        return boxes, scores

    def take_regions(self, rows) -> np.ndarray:
        """Returns the features of regions, float32 `[len(rows), dim]`.

        Region j of the image in row i is row `first_regions[i] + j`.
        """
        if self.kind == "images" or not self.dim:
            self._refuse("regions with features")
        count = int(self.first_regions[-1])
        return self._read(checked_rows("rows", rows, count))

    def _of_image(self, row, name):
        [row] = checked_rows("row", [row], len(self))
        if self.kind == "images" or name not in self.arrays:
            self._refuse(f"regions with {name}")
        first, end = self.first_regions[row : row + 2]
        return self.arrays[name][first:end].astype(np.float32)

    def _refuse(self, expected):
        received = f"{self.path}, with {', '.join(self.arrays)} of {self.kind}"
        raise InputError("path", f"be a feature store of {expected}", received)

    @property
    def files(self) -> list:
        """The paths of the manifest and the files that it lists."""
        return [os.path.join(self.path, MANIFEST), *self.file_of.values()]

    def checksums(self):
        """Computes the SHA-256 digests of the ids and the arrays."""
        contents = {"ids": "".join(f"{key}\n" for key in self.ids).encode()}
        for part, array in self.arrays.items():
            contents[part] = array.reshape(-1).view(np.uint8)
        return {
            part: hashlib.sha256(contents[part]).hexdigest()
            for part in self.manifest.sha256
        }

    def verify(self):
        """Raises an error if a file of a complete store has changed."""
        if not self.complete:
            return
        for part, digest in self.checksums().items():
            expected = self.manifest.sha256[part]
            if digest != expected:
                expected = f"rows with the sha256 {expected}"
                file = CheckedFile(self.file_of[part])
                file.refuse(expected, digest, None, COPY_AGAIN)


def _open_rows(path, kind):
    """Opens the first rows of an array, and checks its integers."""
    fixed = kind.dtype, kind.shape[1:], False
    rows = open_numbers(
        path,
        f"shape {kind.shape} and dtype {kind.dtype}",
        COPY_AGAIN,
        lambda x: (x.dtype, x.shape[1:], x.by_columns) == fixed,
        kind.shape[0],
    ).view(np.ndarray)
    if kind.of_images and rows.min() < kind.minimum:
        expected = f"integers >= {kind.minimum}"
        CheckedFile(path).refuse(expected, rows.min(), None, COPY_AGAIN)
    return rows


def read_ids(path, count):
    """Returns the first `count` lines of a file of ids."""
    file = CheckedFile(path)
    ids, ends_well = file.lines()
    complete_lines = len(ids) - (not ends_well)
    if complete_lines < count:
        expected = f"{count} ids, each on a line of its own"
        file.refuse(expected, complete_lines, len(ids), COPY_AGAIN)
    return ids[:count]


class ParquetFeatures(FeatureArray):
    """The vectors in all Parquet files that a path names, in memory."""

    files: list = []

    def __init__(self, path):
        self.files, made_by, ids, rows, failed = zip(*read_vectors(path))
        for file, other in zip(self.files, made_by):
            check_same(file, other, made_by[0])
        super().__init__(sum(ids, []), np.concatenate(rows), path)
        self.failed = {key: why for part in failed for key, why in part.items()}
        store = {"dim": self.dim, "dtype": "float32", "kind": "images"}
        self.made_by = {**made_by[0], "store": store}
        self.check_repeated_rows()


_checked = set()
"""(path, inode, size, time) of each file that `load_features` accepted."""


def open_features(*paths: Path) -> Features:
    """Opens features in any format without reading them.

    Args:
        *paths: folders of feature stores; `.npy` files with `*_ids.txt`; or
            Parquet files of `tbnets embed`, such as "features/*.parquet". If
            several paths are given, rows with equal ids are concatenated.

    Returns:
        `Features`: a `FeatureStore`, a `FeatureArray` or, for several paths, a
        `SideBySide`.

    Raises:
        FileNotFoundError: a path does not exist, or is a folder without a
            manifest.
        ValueError: the features are damaged, the store is incomplete, or the
            paths share no id.

    Example:
        features = tbnets.open_features("features/vgg19")
        features.take(features.rows(["1000268201.jpg"])).shape  # (1, 4096)
    """
    parts = []
    for path in paths:
        if isinstance(path, Features):
            parts.append(path)
            continue
        open_one = open_store if os.path.isdir(path) else open_array
        if os.fspath(path).endswith(SUFFIX):
            open_one = ParquetFeatures
        parts.append(open_one(path))
    return parts[0] if len(parts) == 1 else SideBySide(parts)


def load_features(*paths):
    """Opens features, and checks that they are unchanged and finite.

    Each process checks a file only once unless the file changes. `paths` are
    those of `open_features`, or open features.
    """
    features = open_features(*paths)
    for part in features.parts:
        states = [(os.path.realpath(x), os.stat(x)) for x in part.files]
        key = tuple(
            (path, state.st_ino, state.st_size, state.st_mtime_ns)
            for path, state in states
        )
        if key not in _checked:
            part.verify()
            check_finite(part)
            _checked.add(key)
    return features
