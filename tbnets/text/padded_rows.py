"""Rows of any length, such as the words of captions, as padded batches."""

import numpy as np
import tensorflow as tf

from tbnets.annotations import Integers
from tbnets.short_repr import short_repr


class PaddedRows:
    """Rows of any length, as the texts of `Examples`.

    A batch is as wide as its longest row, rounded up to one of a few widths
    (see `padded_width`), so that compiled code meets few shapes; one long row
    widens its own batch and no other.

    Args:
        values: int32 `[n, ...]`, of all rows one after the other: ids of
            words, of which none is 0, or nodes of trees.
        lengths: int `[num_rows]`, values of each row.
    """

    dtype = tf.int32
    least_step = 4
    shape: tuple[int | None, ...]

    def __init__(self, values: np.ndarray, lengths: Integers) -> None:
        self.values = np.asarray(values, np.int32)
        self.shape = (None, *self.values.shape[1:])
        self.lengths = np.asarray(lengths, np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths

    __repr__ = short_repr("shape", rows=lambda rows: len(rows.lengths))

    def batch(self, rows: Integers) -> np.ndarray:
        """Returns int32 `[len(rows), width, ...]`, padded with 0."""
        lengths = self.lengths[rows]
        width = padded_width(int(lengths.max(initial=1)), self.least_step)
        places = np.arange(width)
        is_value = places < lengths[:, None]
        batch = np.zeros((*is_value.shape, *self.shape[1:]), np.int32)
        found = self._starts[rows][:, None] + places
        batch[is_value] = self.values[found[is_value]]
        return batch


def padded_width(length, least_step):
    """Rounds up: by 4 to 32, by 8 to 64, 16 to 128, ..., never by less."""
    step = max(least_step, 1 << max(0, (length - 1).bit_length() - 3))
    return -(-length // step) * step
