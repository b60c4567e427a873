"""Looks up features by id, and reads them from `.npy` files.

`Features` is the interface to all feature files. `FeatureArray` reads the array
`X_ims.npy` or `X.npy`. The ids of its rows are in `X_ids.txt`, one per line.
"""

import copy
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tbnets.checks import Integers, Path, checked_rows, short_repr
from tbnets.data.store.npy import open_numbers
from tbnets.errors import InputError
from tbnets.files import CheckedFile, listed, shown

CHUNK_BYTES = 16 * 2**20
ROUNDING = 1e-3
"""Maximum relative difference between rows that share an id."""


class Features:
    """Features of images, one row per id.

    Args:
        ids: n strings. A repeated id refers to its first row.
        dim: number of features per row.
        path: the file or folder, for error messages.
        has_ids: False if the ids are only row numbers.
    """

    failed: dict[str, str] = {}
    """Maps the id of each image whose extraction failed to the reason."""

    made_by: dict[str, Any] = {}
    """Settings of the extraction; {} if unknown."""

    def __init__(
        self,
        ids: Sequence[str],
        dim: int,
        path: Path = "",
        has_ids: bool = True,
    ) -> None:
        self.ids: tuple[str, ...] = tuple(ids)
        self.dim = dim
        self.path: str = os.fspath(path)
        self.has_ids = has_ids

    __repr__ = short_repr("path", "dim", rows=len)

    @property
    def parts(self) -> tuple["Features", ...]:
        """A tuple of the sources that were concatenated, or `(self,)`."""
        return (self,)

    @property
    def files(self) -> list[str]:
        """The files that contain the features."""
        return [self.path]

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """The row of each id."""
        rows = range(len(self.ids) - 1, -1, -1)
        return dict(zip(reversed(self.ids), rows))

    def under(self, keys: dict[str, str]) -> "Features":
        """Returns these features under other ids.

        `keys` maps new ids to ids of these features. New ids without a row are
        missing, or failed for the same reason.
        """
        view, row_of = copy.copy(self), self.row_of_id
        pairs = keys.items()
        view.row_of_id = {x: row_of[key] for x, key in pairs if key in row_of}
        failed = self.failed
        view.failed = {x: failed[key] for x, key in pairs if key in failed}
        return view

    def missing(self, image_ids: Sequence[str]) -> list[str]:
        """Returns the ids that have no row."""
        return [key for key in image_ids if key not in self.row_of_id]

    def rows(self, image_ids: Sequence[str]) -> np.ndarray:
        """Returns the row for each image id, int64 `[n]`.

        Missing ids raise a ValueError that lists the first missing ids.
        """
        if missing := self.missing(image_ids):
            raise InputError(
                "image_ids",
                f"all have features in {self.path}",
                f"{len(missing)} of {len(image_ids)} without features, "
                f"{listed([*map(repr, missing)])}; {self.looks()}",
                self._advice(missing),
            )
        return np.array([self.row_of_id[key] for key in image_ids], np.int64)

    def looks(self) -> str:
        """Returns text with an example id, for errors about missing ids."""
        if not self.ids:
            return "the file has no features"
        return f"the ids of the file look like {self.ids[0]!r}"

    def _advice(self, missing):
        if not self.has_ids:
            return f"Write one id per line to {ids_file(self.path)}."
        failed = [key for key in missing if key in self.failed]
        if not failed:
            return "Extract the missing features, or use matching ids."
        return (
            f"The feature extraction of {len(failed)} failed, first "
            f"{failed[0]!r}: {self.failed[failed[0]]}. Repair these photos."
        )

    def take(self, rows: Integers) -> np.ndarray:
        """Returns the features in the given rows, float32 `[n, dim]`."""
        return self._read(checked_rows("rows", rows, len(self)))

    def _read(self, rows):
        raise NotImplementedError

    def verify(self) -> None:
        """Compares the files with their checksums, if there are any."""


class FeatureArray(Features):
    """Features of images in one memory-mapped array.

    An id may have several rows, for example one row per caption of the image.
    These rows must be equal up to rounding. The first row is used.
    """

    def __init__(self, ids, array, path="", has_ids=True):
        super().__init__(ids, array.shape[1], path, has_ids)
        self._array = array

    def _read(self, rows):
        return np.asarray(self._array[rows], dtype=np.float32)

    def chunks(self):
        """Yields all rows in order, in `(slice, array)` pairs of about 16 MiB.

        The arrays have the stored dtype.
        """
        row_bytes = self.dim * self._array.itemsize
        for rows in slices(len(self._array), row_bytes):
            yield rows, self._array[rows]

    def row_name(self, row):
        """Describes a row of `chunks` for error messages."""
        return f"row {row} (id {shown(self.ids[row])})"

    def check_repeated_rows(self):
        """Raises ValueError if rows with the same id differ beyond rounding."""
        first = self.rows(self.ids)
        twice = np.flatnonzero(first != np.arange(len(self)))
        for part in slices(len(twice), 4 * self.dim):
            rows = twice[part]
            values, first_values = self._read(rows), self._read(first[rows])
            most = ROUNDING * np.abs(first_values).max(axis=1)
            far = np.abs(values - first_values).max(axis=1) > most
            for row in rows[far]:
                CheckedFile(self.path).report(
                    f"expected equal rows for one id; found different rows "
                    f"{first[row]} and {row} of {self.ids[row]!r}."
                )


def ids_file(path) -> str:
    """Returns the path of a feature file's list of ids. It need not exist."""
    base = os.fspath(path).removesuffix(".npy")
    return base.removesuffix("_ims") + "_ids.txt"


def open_array(path) -> FeatureArray:
    """Opens a `.npy` file of features `[n, dim]` as a memory-mapped array.

    `X_ids.txt` next to `X_ims.npy` or `X.npy` contains one id per line. If it
    does not exist, the ids are the row numbers "0", "1", ...

    Example:
        >>> features = open_array("train_ims.npy")
        >>> features.take(features.rows(["1000268201.jpg"])).shape
    """
    path = os.fspath(path)
    array = open_numbers(
        path,
        "an array [n, dim] of numbers (.npy)",
        "Save it with numpy.save, each image pooled or reshaped to one row.",
        lambda header: len(header.shape) == 2 and 0 not in header.shape,
    )
    ids, has_ids = map(str, range(len(array))), os.path.exists(ids_file(path))
    if has_ids:
        ids = _read_ids(CheckedFile(ids_file(path)), array, path)
    features = FeatureArray(ids, array, path, has_ids)
    features.check_repeated_rows()
    return features


def _read_ids(file, array, path):
    ids = [row.strip() for row in file.lines()[0]]
    if "" in ids:
        file.report("expected an id; found an empty line.", ids.index("") + 1)
    if len(ids) != len(array):
        expected = f"one id for each of the {len(array)} rows of {path}"
        file.refuse(expected, len(ids), len(ids), "Write both files again.")
    return ids


def slices(num_rows, row_bytes):
    """Yields slices of rows of about `CHUNK_BYTES` each."""
    step = max(1, CHUNK_BYTES // max(1, row_bytes))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def first_equal_rows(features: Features) -> np.ndarray:
    """Returns the index of the first row in each row's run of identical rows.

    A run of three rows followed by a run of two gives [0, 0, 0, 3, 3].
    """
    starts, last = [], None
    for _, array in features.chunks():
        for row in array:
            content = row.tobytes()
            starts.append(starts[-1] if content == last else len(starts))
            last = content
    return np.array(starts, np.int64)


def check_finite(features: Features) -> None:
    """Raises ValueError for the first value that is not finite as float32."""
    for part in features.parts:
        for rows, array in part.chunks():
            with np.errstate(over="ignore"):
                bad = ~np.isfinite(np.asarray(array, dtype=np.float32))
            for offset in np.flatnonzero(bad.any(axis=1))[:1]:
                column = int(np.argmax(bad[offset]))
                CheckedFile(part.path).report(
                    f"{part.row_name(rows.start + int(offset))}: expected "
                    f"finite features; found {array[offset, column]} in column "
                    f"{column}. Extract the features of this image again."
                )


SIDE_BY_SIDE = "side_by_side"
"""Key in `made_by` of the list that contains the `made_by` of each source."""


class SideBySide(Features):
    """Features from several sources, concatenated by id.

    Contains only the ids common to all sources, in the first source's order.
    """

    parts: tuple = ()

    def __init__(self, parts):
        for part in parts:
            if not part.has_ids:
                CheckedFile(part.path).report(
                    "expected ids, by which features are concatenated; found "
                    f"no file {ids_file(part.path)}. Write one id per line."
                )
        row_of_id = parts[0].row_of_id
        common = sorted(row_of_id, key=row_of_id.get)
        for part in parts:
            missing = set(part.missing(common))
            common = [key for key in common if key not in missing]
        if not common:
            looks = "; ".join(f"in {p.path} {p.looks()}" for p in parts)
            raise InputError("parts", "be features with common ids", looks)
        path = ", ".join(part.path for part in parts)
        super().__init__(common, sum(part.dim for part in parts), path)
        self.parts = tuple(parts)
        self._part_rows = [part.rows(self.ids) for part in parts]
        self.failed = {k: v for part in parts for k, v in part.failed.items()}
        self.made_by = joined_made_by([part.made_by for part in parts])

    def rows(self, image_ids) -> np.ndarray:
        """Returns the rows of images. Errors name the source without an id."""
        for part in self.parts:
            part.rows(image_ids)
        return super().rows(image_ids)

    def _read(self, rows):
        pairs = zip(self.parts, self._part_rows)
        arrays = [part.take(own_rows[rows]) for part, own_rows in pairs]
        return np.concatenate(arrays, axis=1)

    def verify(self):
        """Compares the files with their checksums, if there are any."""
        for part in self.parts:
            part.verify()


def joined_made_by(parts) -> dict:
    """Returns the `made_by` of features concatenated from several parts."""
    if len(parts) == 1:
        return parts[0]
    return {SIDE_BY_SIDE: list(parts)} if any(parts) else {}
