import numpy as np
import pytest

from tbnets.text.packed_trees import (
    TreeRows,
    most_nodes,
    tree_arrays,
    whole_trees,
)
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary
from tests import reference

VOCABULARY = Vocabulary(("", "[UNK]", "a", "dog", "runs"))
TREES = [
    read_tree("(S (NP (DT a) (NN dog)) (VBZ runs))"),
    read_tree("(NN dog)"),
    read_tree("(S (NP (NP (NNS dog))) (VP (VBZ runs) (NP (DT a) (NN cat))))"),
]


@pytest.fixture(scope="module")
def rows():
    arrays = tree_arrays(TREES, VOCABULARY)
    return TreeRows(arrays).batch(np.arange(len(arrays)))


def test_what_the_package_makes_is_whole(rows):
    assert whole_trees(rows, VOCABULARY.size).numpy().all()
    assert whole_trees(rows[:0], VOCABULARY.size).shape == (0,)
    assert not whole_trees(rows[:, :0], VOCABULARY.size).numpy().any()
    assert not whole_trees(np.zeros_like(rows), VOCABULARY.size).numpy().any()


def test_one_changed_number_is_judged_as_by_the_loop(rows):
    generator = np.random.default_rng(0)
    changed = []
    for value in (-1, 0, 1, 2, 3, 4, 5, 2**31 - 1):
        for _ in range(40):
            one = rows[generator.integers(len(rows))].copy()
            place = tuple(generator.integers(one.shape))
            one[place] = value
            changed.append(one)
    found = whole_trees(np.stack(changed), VOCABULARY.size).numpy()
    wanted = [reference.is_whole_tree(one, VOCABULARY.size) for one in changed]
    np.testing.assert_array_equal(found, wanted)
    assert 20 < found.sum() < 300  # Both answers come.


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((0, 0), 5),  # No word of the vocabulary.
        ((0, 1), 0),  # A parent that stands before its child.
        ((0, 1), 7),  # One that is no node.
        ((4, 2), 9),  # A level that no node leads to.
        ((3, 2), 0),  # A gap among the nodes.
        ((4, 1), 1),  # A root with a parent.
        ((0, 5), 4),  # A span that ends after the last word.
        ((2, 3), 2),  # Neither a noun phrase nor none.
        ((6, 4), 1),  # Padding that is not 0.
    ],
)
def test_what_is_no_tree_is_told(rows, place, value):
    changed = rows.copy()
    changed[0][place] = value
    found = whole_trees(changed, VOCABULARY.size).numpy()
    assert found.tolist() == [False, True, True]


def test_there_is_room_for_chains_of_phrases():
    assert most_nodes(1) == 8
    assert most_nodes(200) == 896
