"""Saved embeddings and ground truth, read for evaluation."""

import pathlib

import numpy as np

from tbnets.checked_files import CheckedFile
from tbnets.data.store.npy import check_numbers
from tbnets.evaluation.exact_scores import row_norms


def read_array(path) -> np.ndarray:
    """Opens a `.npy` file, memory-mapped and without unpickling anything.

    Args:
      path: file written by `numpy.save`.

    Returns:
      The array, read only.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: It is no complete `.npy` file of numbers, or has no number.
    """
    check_numbers(
        path,
        "a .npy file of numbers",
        "Write it with numpy.save.",
        lambda found: 0 not in found.shape,
    )
    return np.load(path, mmap_mode="r", allow_pickle=False)


def read_caption_to_image(path) -> np.ndarray:
    """Reads the image row of each caption.

    Args:
      path: a `.npy` file of integers, or any other name for a text file with
        one integer a line; blank lines at its end are ignored.

    Returns:
      int64 [num_captions] from text, the array as it is from `.npy`.

    Raises:
      OSError: The file can not be opened.
      ValueError: A line is not an integer (file and line are named).
    """
    if pathlib.Path(path).suffix == ".npy":
        return read_array(path)
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().rstrip().split("\n")
    wanted, rows = "the row of an image, a whole number from 0", []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(np.int64(int(line)))
        except (ValueError, OverflowError):
            CheckedFile(path).refuse(wanted, line, number)
    return np.array(rows, np.int64)


def unit_rows(rows) -> np.ndarray:
    """Returns rows divided by their lengths: inner products are cosines then.

    Args:
      rows: [n, dim] real numbers. A row of zeros stays one.

    Returns:
      float32 [n, dim].
    """
    rows = np.ascontiguousarray(rows, np.float32)
    lengths = row_norms(rows)[:, None].astype(np.float32)
    return rows / np.where(lengths > 0, lengths, 1)


def lengths_note(rows, within=1e-2) -> str:
    """Returns in words how long rows are; "" where they have length 1.

    Args:
      rows: [n, dim] finite numbers.
      within: what lengths may differ from 1; float16 rounds by 1e-3.
    """
    lengths = row_norms(np.asarray(rows, np.float32))
    if np.abs(lengths - 1).max() <= within:
        return ""
    return (
        f"rows of length {lengths.min():.3g} to {lengths.max():.3g}, whose "
        "inner products rank; --normalize ranks by cosines"
    )
