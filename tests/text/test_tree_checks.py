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


@pytest.mark.parametrize("value", [-1, 0, 1, 2, 3, 4, 5, 9, 2**31 - 1])
def test_one_changed_number_is_judged_as_by_the_loop(rows, value):
    changed = []
    for place in np.ndindex(rows.shape):
        one = rows[place[0]].copy()
        one[place[1:]] = value
        changed.append(one)
    found = whole_trees(np.stack(changed), VOCABULARY.size).numpy()
    wanted = [reference.is_whole_tree(one, VOCABULARY.size) for one in changed]
    np.testing.assert_array_equal(found, wanted)
    assert not found.all()


def test_there_is_room_for_chains_of_phrases():
    assert most_nodes(1) == 8
    assert most_nodes(200) == 896
