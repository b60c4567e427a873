"""Feature arrays on disk whose rows are found by id, never by position.

`X_ims.npy` lies beside `X_ids.txt`, one id a line (`feats.npy` beside
`feats_ids.txt`). Arrays are memory-mapped: only the rows that are taken are
read.
"""

import dataclasses
import functools
import os

import numpy as np

from tbnets.data.sources import Source
from tbnets.data.sources import require_file
from tbnets.data.sources import shown

CHUNK_BYTES = 16 * 2**20
MOST_LISTED = 5


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureArray:
    """Features of images, one row for each id, memory-mapped.

    An id may stand on several rows, as in arrays that repeat an image for
    each of its captions; the rows are then equal and the first one is used.

    Args:
        ids: n strings.
        array: `[n, dim]` real numbers, usually a `numpy.memmap`.
        path: the file, for messages.
        has_ids: False if the ids are only row numbers.
    """

    ids: tuple[str, ...]
    array: np.ndarray
    path: str = ""
    has_ids: bool = True

    @functools.cached_property
    def _row_of_id(self):
        rows = range(len(self.ids) - 1, -1, -1)
        return dict(zip(reversed(self.ids), rows))

    @property
    def dim(self) -> int:
        """The number of features in a row."""
        return self.array.shape[1]

    def missing(self, image_ids) -> list[str]:
        """Returns those of some ids that have no row."""
        return [key for key in image_ids if key not in self._row_of_id]

    def rows(self, image_ids) -> np.ndarray:
        """Returns the rows of images.

        Args:
            image_ids: n strings.

        Returns:
            `[n]` int64.

        Raises:
            ValueError: ids without features; the first ones are listed.
        """
        missing = self.missing(image_ids)
        if missing:
            raise ValueError(
                f"`image_ids` must all have features in {self.path}. "
                f"Received: image_ids with {len(missing)} of "
                f"{len(image_ids)} missing there, first "
                f"{', '.join(map(repr, missing[:MOST_LISTED]))}; the ids of "
                f"the file look like {self.ids[0]!r}. "
                + (
                    "Extract features for these images too, or write the ids "
                    "alike in both files."
                    if self.has_ids
                    else "The file has no ids but row numbers: write one id "
                    f"a line to {ids_file(self.path)}."
                )
            )
        lookup = self._row_of_id
        return np.asarray([lookup[key] for key in image_ids], dtype=np.int64)

    def take(self, rows) -> np.ndarray:
        """Returns rows as float32.

        Args:
            rows: `[n]` int, each in [0, number of rows).

        Returns:
            `[n, dim]` float32 in memory.

        Raises:
            IndexError: a row is not in the array.
        """
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self.array):
            raise IndexError(
                f"`rows` must lie in [0, {len(self.array)}). Received: rows "
                f"from {rows.min()} to {rows.max()}. Look rows up by id."
            )
        return np.asarray(self.array[rows], dtype=np.float32)


def ids_file(path) -> str:
    """Returns where the ids of a feature file lie, if it has any."""
    base = os.fspath(path).removesuffix(".npy")
    return base.removesuffix("_ims") + "_ids.txt"


def open_features(path, ids_path=None) -> FeatureArray:
    """Opens an array of features without reading it.

    Args:
        path: a `.npy` file of shape `[n, dim]`.
        ids_path: a text file with one id a line; None for `X_ids.txt` beside
            `X_ims.npy` or `X.npy`. Where that does not exist, the ids are
            the row numbers "0", "1", ...

    Returns:
        The memory-mapped array with its ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no array of numbers with two dimensions, it is
            truncated, or its ids do not fit.

    Example:
        >>> features = open_features("train_ims.npy")
        >>> features.take(features.rows(["1000268201.jpg"])).shape
    """
    path = os.fspath(path)
    array = _open_array(path)
    if ids_path is None:
        ids_path = ids_file(path)
        if not os.path.exists(ids_path):
            ids = tuple(map(str, range(len(array))))
            return FeatureArray(ids, array, path, has_ids=False)
    ids = _read_ids(Source(ids_path), array, path)
    features = FeatureArray(ids, array, path)
    _check_repeated_rows(features)
    return features


def _open_array(path):
    """Returns a memory-mapped `[n, dim]` array of real numbers."""
    require_file(path)
    expected = f"{path}: expected an array [n, dim] of numbers (.npy); "
    advice = "Save it with numpy.save as float32."
    try:
        shape, dtype, offset = _read_header(path)
    except (ValueError, EOFError, OverflowError, TypeError) as error:
        raise ValueError(f"{expected}found {error}. {advice}") from error
    found = f"found shape {shape} and dtype {dtype}"
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"{expected}{found}. {advice}")
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"{expected}{found}. Pool or reshape each image to one row."
        )
    needed = offset + shape[0] * shape[1] * dtype.itemsize
    size = os.path.getsize(path)
    if size < needed:
        raise ValueError(
            f"{expected}{found}, which takes {needed} bytes, in a file of "
            f"{size}. The file is truncated: copy or extract it again."
        )
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _read_header(path):
    """Returns shape, dtype and the offset of the data of a `.npy` file."""
    with open(path, "rb") as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            read = np.lib.format.read_array_header_1_0
        else:
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        return shape, dtype, stream.tell()


def _read_ids(source, array, path):
    ids = [row.strip() for row in source.lines()[0]]
    for line, key in enumerate(ids, 1):
        if not key:
            source.report(line, "expected an id; found an empty line.")
    if len(ids) != len(array):
        source.report(
            len(ids),
            f"expected one id for each of the {len(array)} rows of {path}; "
            f"found {len(ids)}. Write both files in one go.",
        )
    return tuple(ids)


def _check_repeated_rows(features):
    """Raises ValueError if rows of one id differ."""
    if len(set(features.ids)) == len(features.ids):
        return
    first = features.rows(features.ids)
    for rows in _chunks(features.array):
        twice = np.arange(rows.start, rows.stop)
        twice = twice[first[rows] != twice]
        same = features.array[twice] == features.array[first[twice]]
        if not same.all():
            row = twice[~same.all(axis=1)][0]
            raise ValueError(
                f"{features.path}: expected equal rows where "
                f"{ids_file(features.path)} repeats an id; found rows "
                f"{first[row]} and {row} of {features.ids[row]!r} to differ. "
                "Give each image an id of its own."
            )


def _chunks(array):
    """Yields slices of rows that hold about CHUNK_BYTES each."""
    step = max(1, CHUNK_BYTES // max(1, array.shape[1] * array.itemsize))
    for start in range(0, len(array), step):
        yield slice(start, min(start + step, len(array)))


def first_equal_rows(array) -> np.ndarray:
    """Returns for each row the first of the run of equal rows it is in.

    Args:
        array: `[n, dim]`; rows are compared bit for bit, so NaN equals NaN.

    Returns:
        `[n]` int64, for instance [0, 0, 0, 3, 3] for two runs.
    """
    starts = np.zeros(len(array), dtype=np.int64)
    for rows in _chunks(array):
        low = max(rows.start, 1)
        now = np.ascontiguousarray(array[low : rows.stop]).view(np.uint8)
        then = np.ascontiguousarray(array[low - 1 : rows.stop - 1])
        new = (now != then.view(np.uint8)).any(axis=1)
        numbers = np.arange(low, rows.stop)
        starts[low : rows.stop] = np.where(new, numbers, 0)
    return np.maximum.accumulate(starts)


def check_finite(features: FeatureArray, problems: list | None = None) -> int:
    """Refuses features that are not finite numbers as float32.

    The array is read once, in chunks of 16 MiB.

    Args:
        features: the array.
        problems: None to raise at the first bad row; or a list that gets a
            `Problem` for each.

    Returns:
        The number of bad rows.

    Raises:
        ValueError: a row holds NaN or infinity, and `problems` is None.
    """
    source = Source(features.path, problems)
    count = 0
    for rows in _chunks(features.array):
        with np.errstate(over="ignore"):
            chunk = np.asarray(features.array[rows], dtype=np.float32)
        bad = ~np.isfinite(chunk)
        for offset in np.flatnonzero(bad.any(axis=1)):
            row = rows.start + int(offset)
            column = int(np.argmax(bad[offset]))
            value = features.array[row, column]
            source.report(
                None,
                f"row {row} (id {shown(features.ids[row])}): expected finite "
                f"features; found {value} in column {column}. Extract the "
                "features of this image again.",
            )
            count += 1
    return count
