"""Reads files of embeddings, and scales their rows to unit length."""

import pathlib

import numpy as np

from tbnets.data.store.npy import check_numbers
from tbnets.evaluation.exact_ranks import row_norms
from tbnets.files import CheckedFile


def read_array(path) -> np.ndarray:
    """Opens a `.npy` file of numbers, memory-mapped and read-only."""
    check_numbers(
        path,
        "a .npy file of numbers",
        "Write it with numpy.save.",
        lambda array: 0 not in array.shape,
    )
    return np.load(path, mmap_mode="r", allow_pickle=False)


def read_caption_to_image(path) -> np.ndarray:
    """Reads the image row of every caption, as an array `[num_captions]`.

    The file is `.npy` or a text file with one integer per line.
    """
    if pathlib.Path(path).suffix == ".npy":
        return read_array(path)
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().rstrip().split("\n")
    expected, rows = "the row of an image, a whole number >= 0", []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(np.int64(int(line)))
        except (ValueError, OverflowError):
            CheckedFile(path).refuse(expected, line, number)
    return np.array(rows, np.int64)


def unit_rows(rows) -> np.ndarray:
    """Divides rows `[n, dim]` by their L2 norms, in float32.

    Rows of zeros are unchanged.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    lengths = row_norms(rows)[:, None].astype(np.float32)
    return rows / np.where(lengths > 0, lengths, 1)


def lengths_note(rows) -> str:
    """Returns a note on the norms of rows, or "" if all norms are 1.

    Ignores differences of up to 0.01, which rounding to float16 can cause.
    """
    lengths = row_norms(np.asarray(rows, np.float32))
    if np.abs(lengths - 1).max() <= 0.01:
        return ""
    return (
        f"rows of length {lengths.min():.3g} to {lengths.max():.3g}, whose "
        "inner products rank; --normalize ranks by cosines"
    )
