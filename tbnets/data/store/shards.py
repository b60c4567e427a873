"""Reads feature stores: folders of shards, each with a part of the images.

A store contains one vector per image, or any number of regions per image with
their boxes.
"""

import math
import os

import numpy as np

from tbnets.checks import first_twice
from tbnets.data.store.features import Features, check_rows, slices
from tbnets.data.store.manifest import (
    MANIFEST,
    file_sha256,
    in_file,
    read_manifest,
)
from tbnets.data.store.npy import COPY_AGAIN, RowFile, check_numbers, copy_rows
from tbnets.errors import InputError
from tbnets.files import CheckedFile, shown


def open_store(path, incomplete=False) -> "FeatureStore":
    """Opens a feature store. Reads only its manifest, ids and headers.

    If `incomplete` is True, the extraction may be unfinished.
    """
    manifest = read_manifest(path)
    if not (manifest.complete or incomplete):
        count = sum(shard.images for shard in manifest.shards)
        raise InputError(
            "path",
            "be a complete feature store",
            f"path={os.fspath(path)}, whose extraction stopped after {count} "
            "images",
            "Run the extraction again with its flags: it resumes.",
        )
    return FeatureStore(path, manifest)


class FeatureStore(Features):
    """A feature store that is open for reading. Use `open_store` to open it."""

    def __init__(self, path, manifest):
        path, ids, self._row_files = os.fspath(path), [], []
        for shard in manifest.shards:
            paths = {k: os.path.join(path, v) for k, v in shard.files.items()}
            ids += read_ids(paths.pop("ids"), shard)
            kinds = manifest.array_kinds(shard.images, shard.rows)
            self._row_files.append(
                {part: open_rows(paths[part], *kinds[part]) for part in paths}
            )
        super().__init__(ids, manifest.dim, path)
        self.row_files = [files.get("features") for files in self._row_files]
        """The `RowFile` of each shard's features."""
        self.manifest = manifest
        self.kind = manifest.kind
        self.extraction = manifest.extraction
        self.complete = manifest.complete
        self.failed = manifest.failed
        self.made_by = manifest.made_by
        twice = first_twice([*ids, *manifest.failed])
        if twice is not None:
            CheckedFile(os.path.join(path, MANIFEST)).report(
                "expected each id once, in a shard or in 'failed'; found "
                f"{twice!r} twice."
            )
        self.counts = np.ones(len(ids), np.int64)
        """The number of regions per image, int64 `[n]`."""
        self.sizes = None
        """Width and height of each photo in pixels, int64 `[n, 2]`, or None."""
        if self.kind == "regions":
            self.counts = self._numbers("counts", 0)
            self.sizes = self._numbers("sizes", 1)
        sizes = [(shard.images, shard.rows) for shard in manifest.shards]
        starts = np.cumsum([(0, 0), *sizes], axis=0)
        self._image_starts, self._row_starts = starts.T
        self.first_regions = np.cumsum(np.concatenate([[0], self.counts]))
        """Row of each image's first region, then the number of all regions.

        int64 `[n + 1]`. Regions are in the order of the images.
        """

    def _numbers(self, part, least):
        # Counts or sizes may be missing.
        parts = [np.zeros(*self.manifest.array_kinds(0, 0)[part])]
        for shard, files in zip(self.manifest.shards, self._row_files):
            if part not in files:
                return None
            values = files[part].read(0, shard.images)
            # Python's integers do not overflow.
            total = sum(values.ravel().tolist())
            expected_total = shard.rows if part == "counts" else total
            if total != expected_total or values.min(initial=least) < least:
                CheckedFile(files[part].path).report(
                    f"expected {part} >= {least} with the sum "
                    f"{expected_total}; found the minimum "
                    f"{values.min(initial=least)} and the sum {total}. "
                    f"{COPY_AGAIN}"
                )
            parts.append(values)
        return np.concatenate(parts)

    def take(self, rows) -> np.ndarray:
        """Returns the features of images, float32 `[len(rows), dim]`."""
        self._check_holds("whole images")
        return super().take(rows)

    def _read(self, rows):
        features = np.empty((len(rows), self.dim), np.float32)
        copy_rows(self.row_files, self._row_starts, rows, features)
        return features

    def chunks(self):
        """Yields all rows, of images or regions, as `(slice, array)`."""
        starts = self._row_starts[:-1].tolist() if self.dim else ()
        for file, start in zip(self.row_files, starts):
            for rows in slices(file.shape[0], file.row_bytes):
                shifted = slice(rows.start + start, rows.stop + start)
                yield shifted, file.read(rows.start, rows.stop - rows.start)

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
        return self._of_image(row, "features", "boxes")

    def boxes(self, row):
        """Returns (boxes, scores) for the image at index `row`.

        Boxes are float32 `[k, 4]`, as in `regions`. Scores are float32 `[k]`,
        or None if the store contains no scores.
        """
        if self.kind == "images":
            self._check_holds("regions")
        return self._of_image(row, "boxes", "scores")

    def take_regions(self, rows) -> np.ndarray:
        """Returns the features of regions, float32 `[len(rows), dim]`.

        Region j of the image in row i is row `first_regions[i] + j`.
        """
        self._check_holds("regions")
        return self._read(check_rows(rows, int(self.first_regions[-1])))

    def _of_image(self, row, *parts):
        # The result is None for a missing array.
        row = int(check_rows(row, len(self)))
        place = int(np.searchsorted(self._image_starts, row, "right")) - 1
        files = self._row_files[place]
        start = int(self.first_regions[row] - self._row_starts[place])
        count = int(self.counts[row])
        chosen = [files.get(part) for part in parts]
        return tuple(f and f.read(start, count).astype("f4") for f in chosen)

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
        """The paths of the manifest and of all files with a checksum."""
        names = [name for s in self.manifest.shards for name in s.sha256]
        return [os.path.join(self.path, n) for n in (MANIFEST, *names)]

    def verify(self):
        """Raises an error if a file does not match its checksum."""
        for shard in self.manifest.shards:
            for name, expected in sorted(shard.sha256.items()):
                path = os.path.join(self.path, name)
                digest = file_sha256(path)
                if digest != expected:
                    requirement = f"the sha256 {expected} of shard {shard.name}"
                    CheckedFile(path).refuse(
                        requirement, digest, advice=COPY_AGAIN
                    )


def read_ids(path, shard):
    """Returns the ids of a shard, after checking their number."""
    file = CheckedFile(path)
    ids, ends_well = file.lines()
    if len(ids) != shard.images or (ids and not ends_well):
        file.report(
            f"expected {shard.images} ids, one line per image of the shard; "
            f"found {len(ids)} ids, the last one "
            f"{'complete' if ends_well else 'truncated'}. {COPY_AGAIN}",
            len(ids),
        )
    return ids


def open_rows(path, shape, dtype):
    """Checks the shape and dtype of a file's array; returns its `RowFile`."""
    expected = shape, in_file(dtype)
    header = check_numbers(
        path,
        f"shape {shape} and dtype {expected[1]}",
        COPY_AGAIN,
        lambda array_header: (
            array_header[:2] == expected and not array_header.by_columns
        ),
    )
    start = header.size - math.prod(shape) * dtype.itemsize
    return RowFile(path, shape, dtype, start)
