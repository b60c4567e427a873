import numpy as np

from tbnets.data.groups import place_among_equals, rows_by


def test_rows_of_each_value_ascend():
    values = np.array([2, 0, 2, 0, 4])
    found = rows_by(values, 6)
    assert [rows.tolist() for rows in found] == [
        [1, 3],
        [],
        [0, 2],
        [],
        [4],
        [],
    ]
    assert len(rows_by(values)) == 5
    assert rows_by(np.zeros(0, np.int64)) == []
    nobody = rows_by(np.zeros(0, np.int64), 2)
    assert [rows.tolist() for rows in nobody] == [[], []]


def test_places_count_the_equal_ones_before():
    values = np.array([7, 3, 7, 7, 3])
    assert place_among_equals(values).tolist() == [0, 0, 1, 2, 1]
