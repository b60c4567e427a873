"""Rows of arrays in files that are open only while they are read.

A file that is mapped keeps a descriptor for as long as it is mapped. A
process has few of them, 1024 by custom, and 120,000 photos fill hundreds of
shards. So a shard is opened, read and closed each time, which a batch does
not feel: a row costs a few microseconds.
"""

import dataclasses
import functools
import itertools
import math
import operator

import numpy as np

from tbnets.checked_files import CheckedFile

COPY_AGAIN = "Copy the store again, or extract it into a new folder."


@dataclasses.dataclass(frozen=True)
class RowFile:
    """The array that a `.npy` file holds, row by row.

    Args:
        path: the file.
        shape: of the array, rows first.
        dtype: `numpy.dtype` of the numbers in the file.
        start: the byte at which the first row begins.
    """

    path: str
    shape: tuple
    dtype: np.dtype
    start: int

    @functools.cached_property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, first, count) -> np.ndarray:
        """Returns rows that follow each other, as they are stored.

        Args:
            first: int, the first of them.
            count: how many.

        Raises:
            ValueError: the file has become shorter since it was opened.
        """
        rows = np.empty((count, *self.shape[1:]), self.dtype)
        with open(self.path, "rb") as file:
            self.fill(file, first, rows)
        return rows

    def map(self) -> np.ndarray:
        """Returns all rows, read where they are used; holds the file open."""
        mapped = np.memmap(self.path, np.uint8, "r")[self.start :]
        return mapped.view(np.ndarray).view(self.dtype).reshape(self.shape)

    def fill(self, file, first, out):
        """Reads rows that follow each other into an array in memory.

        Args:
            file: this one, opened to read bytes.
            first: int, the first of them.
            out: `[n, dim]` in C order, of any type of number.

        Raises:
            ValueError: the file has become shorter since it was opened.
        """
        stored = out
        if out.dtype != self.dtype:
            stored = np.empty(out.shape, self.dtype)
        offset = self.start + first * self.row_bytes
        file.seek(offset)
        count = file.readinto(stored.reshape(-1).view(np.uint8))
        if count < stored.nbytes:
            CheckedFile(self.path).report(
                f"expected {stored.nbytes} bytes from byte {offset} on; found "
                f"{count}. It was changed since it was opened. {COPY_AGAIN}"
            )
        if stored is not out:
            out[...] = stored


def copy_rows(files, starts, rows, out):
    """Copies rows of an array that several files hold, one after the other.

    Rows that follow each other are read at once.

    Args:
        files: list of `RowFile` of one `dim`.
        starts: int `[len(files) + 1]`, the row that each begins with; at the
            end, how many rows there are.
        rows: int `[n]`, each in [0, starts[-1]), in any order.
        out: `[n, dim]` in C order, of any type of number: gets the rows in
            the order asked for.

    Raises:
        ValueError: a file has become shorter since it was opened.
    """
    places = np.argsort(rows, kind="stable")
    rows = rows[places]
    numbers = np.searchsorted(starts, rows, side="right") - 1
    runs = np.stack([numbers, rows - starts[numbers], places])
    follows = (np.diff(runs) == [[0], [1], [1]]).all(axis=0)
    begins = np.flatnonzero(np.append(True, ~follows)[: len(rows)])
    counts = np.diff(np.append(begins, len(rows))).tolist()
    runs = zip(*runs[:, begins].tolist(), counts)
    for number, some in itertools.groupby(runs, operator.itemgetter(0)):
        with open(files[number].path, "rb") as file:
            for _, first, place, count in some:
                files[number].fill(file, first, out[place : place + count])
