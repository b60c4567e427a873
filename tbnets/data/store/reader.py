"""Reads feature stores: arrays, ids and a manifest in a folder.

A store contains one vector per image, or any number of regions per image with
their boxes. The arrays are memory-mapped.
"""

import hashlib
import math
import os

import numpy as np

from tbnets.checks import first_twice
from tbnets.data.store.features import FeatureArray, check_rows
from tbnets.data.store.manifest import MANIFEST, read_manifest
from tbnets.data.store.npy import COPY_AGAIN, read_header
from tbnets.errors import InputError
from tbnets.files import CheckedFile, shown


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
            f"path={os.fspath(path)}, whose extraction stopped after "
            f"{manifest.images} images",
            "Run the extraction again with its flags: it resumes.",
        )
    store = FeatureStore(path, manifest)
    twice = first_twice([*store.ids, *manifest.failed])
    if twice is not None:
        CheckedFile(os.path.join(path, MANIFEST)).report(
            "expected each id once, in ids.txt or in 'failed'; found "
            f"{twice!r} twice."
        )
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
            part: open_rows(file, *kinds[part])
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
        self.counts = np.ones(images, np.int64)
        """The number of regions per image, int64 `[n]`."""
        self.sizes = None
        """Width and height of each photo in pixels, int64 `[n, 2]`, or None."""
        if self.kind == "regions":
            self.counts = self._integers("counts", 0)
            if not images or "sizes" in self.arrays:
                self.sizes = self._integers("sizes", 1)
        self.first_regions = np.cumsum(np.concatenate([[0], self.counts]))
        """Row of each image's first region, then the number of all regions.

        int64 `[n + 1]`. Regions are in the order of the images.
        """

    def _integers(self, part, least):
        empty = np.zeros(*self.manifest.arrays(0, 0)[part])
        values = self.arrays.get(part, empty)
        # Python's integers do not overflow.
        total = sum(values.ravel().tolist())
        expected_total = self.manifest.rows if part == "counts" else total
        if total != expected_total or values.min(initial=least) < least:
            CheckedFile(self.file_of[part]).report(
                f"expected {part} >= {least} with the sum {expected_total}; "
                f"found the minimum {values.min(initial=least)} and the sum "
                f"{total}. {COPY_AGAIN}"
            )
        return values

    def take(self, rows) -> np.ndarray:
        """Returns the features of images, float32 `[len(rows), dim]`."""
        self._check_holds("whole images")
        return super().take(rows)

    def row_name(self, row) -> str:
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
        self._check_holds("regions")
        return self._of_image(row, "features"), self._of_image(row, "boxes")

    def boxes(self, row):
        """Returns (boxes, scores) for the image at index `row`.

        Boxes are float32 `[k, 4]`, as in `regions`. Scores are float32 `[k]`,
        or None if the store contains no scores.
        """
        if self.kind == "images":
            self._check_holds("regions")
        return self._of_image(row, "boxes"), self._of_image(row, "scores")

    def take_regions(self, rows) -> np.ndarray:
        """Returns the features of regions, float32 `[len(rows), dim]`.

        Region j of the image in row i is row `first_regions[i] + j`.
        """
        self._check_holds("regions")
        return self._read(check_rows(rows, int(self.first_regions[-1])))

    def _of_image(self, row, part):
        row = int(check_rows(row, len(self)))
        if part not in self.arrays:
            return None
        first, end = self.first_regions[row : row + 2]
        return self.arrays[part][first:end].astype(np.float32)

    def _check_holds(self, expected):
        holds = "regions" if self.dim else "only boxes"
        if self.kind == "images":
            holds = "whole images"
        if holds != expected:
            raise InputError(
                "path",
                f"be a feature store of {expected}",
                f"path={self.path}, which has {holds}",
                f"Use a store with {expected}.",
            )

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
                CheckedFile(self.file_of[part]).refuse(
                    f"rows with the sha256 {expected}",
                    digest,
                    advice=COPY_AGAIN,
                )


def read_ids(path, count):
    """Returns the first `count` lines of a file of ids."""
    file = CheckedFile(path)
    ids, ends_well = file.lines()
    complete_lines = len(ids) if ends_well else len(ids) - 1
    if complete_lines < count:
        file.report(
            f"expected {count} ids, each on a line of its own; found "
            f"{max(complete_lines, 0)} complete lines. {COPY_AGAIN}",
            len(ids),
        )
    return ids[:count]


def open_rows(path, shape, dtype):
    """Returns the first rows of a `.npy` file as a memory-mapped array.

    `shape` and `dtype` are those that the manifest requires. The file may
    contain more rows, which a writer has not finished.
    """
    size = math.prod(shape) * dtype.itemsize
    header = read_header(path, f"shape {shape} and dtype {dtype}", COPY_AGAIN)
    start = header.size - math.prod(header.shape) * header.dtype.itemsize
    fits = (header.dtype, header.shape[1:]) == (dtype, shape[1:])
    if not fits or header.by_columns or os.path.getsize(path) < start + size:
        CheckedFile(path).report(
            f"expected shape {shape} and dtype {dtype}; found shape "
            f"{header.shape} and dtype {header.dtype}, in a file of "
            f"{os.path.getsize(path)} bytes. {COPY_AGAIN}"
        )
    if not size:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", start, shape).view(np.ndarray)
