import numpy as np

from tbnets import checks
from tbnets.checks import letters, place_among_equals, rows_by


def test_texts_that_read_the_same_have_one_id():
    texts = ["A dog", "a  dog ", "a cat", "A DOG", "\ufeffa dog", "a dog."]
    assert checks.text_ids(texts).tolist() == [0, 0, 1, 0, 0, 2]


def test_a_spelling_keeps_its_capitals():
    assert checks.spelling(" A\tDog \n") == "A Dog"


def test_letters_are_what_two_hands_share():
    assert letters("A T-shirt , isn't it ?") == letters("a t shirt isn't IT")


def test_rows_are_found_by_id():
    assert checks.rows_of(("c", "a"), ("a", "b", "c")).tolist() == [2, 0]
    assert checks.rows_of((), ("a",)).dtype == np.int64


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
