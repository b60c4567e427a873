"""Tests of rows of any length as padded batches."""

import numpy as np

from tbnets.text.vocabulary import PaddedRows, padded_width
from tests import tiny


def test_tokens_are_padded_to_a_width_above_the_longest_of_the_batch():
    tokens = tiny.token_rows(
        [[2, 3, 4, 0, 0], [5, 0, 0, 0, 0], [1, 6, 7, 8, 9]]
    )
    np.testing.assert_array_equal(
        tokens.batch([1, 0]), [[5, 0, 0, 0], [2, 3, 4, 0]]
    )
    assert tokens.batch([2]).tolist() == [[1, 6, 7, 8, 9, 0, 0, 0]]
    assert tokens.batch([]).shape == (0, 4)


def test_one_long_caption_widens_no_other_batch():
    tokens = PaddedRows(np.ones(20_003, np.int32), [1, 20_000, 2])
    assert tokens.batch([0, 2]).shape == (2, 4)
    assert tokens.batch([1]).shape == (1, 20_480)
    assert tokens.values.size == 20_003


def test_widths_are_few():
    widths = [padded_width(length, 4) for length in range(1, 65)]
    assert sorted(set(widths)) == [*range(4, 33, 4), 40, 48, 56, 64]
    assert padded_width(65, 4) == 80 and padded_width(20_000, 4) == 20_480
    # Of trees: 8 + 4 + 4 + 4 of steps 8, 16, 32, 64.
    widths = [padded_width(count, 8) for count in range(500)]
    assert len(set(widths[1:])) == 20
    assert all(width >= count for count, width in enumerate(widths))
