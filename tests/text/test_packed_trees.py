"""Tests of trees as arrays: packed, and checked."""

import numpy as np
import pytest

from tbnets.text.packed_trees import (
    TreeRows,
    most_nodes,
    pack_trees,
    tree_array,
    tree_arrays,
    whole_trees,
)
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary
from tests import reference, refusals

VOCABULARY = Vocabulary(("", "[UNK]", "a", "dog", "runs", "dont", "t", "s"))


def arrays_of(*texts, max_words=None):
    trees = [read_tree(text) for text in texts]
    return tree_arrays(trees, VOCABULARY, max_words)


def test_a_tree_as_an_array_by_hand():
    tree = read_tree("(S (NP (DT a) (NN dog)) (VBZ runs))")
    # Words a, dog, runs; the noun phrase, place 3; the sentence, place 4.
    assert tree_array(tree, [2, 3, 4]).tolist() == [
        [2, 3, 1, 0, 0, 1],
        [3, 3, 1, 0, 1, 2],
        [4, 4, 1, 0, 2, 3],
        [0, 4, 2, 1, 0, 2],
        [0, 0, 3, 0, 0, 3],
    ]


def test_words_of_a_tree_equal_the_words_of_its_caption():
    first, second, none = arrays_of(
        "(S (NP (DT A) (NN Dog)) (VP (VBP do) (RB n't) (VB run)) (. .))",
        "(NP (NP (DT a) (NN dog) (POS 's)) (NN t-t))",
        "(NP (. .))",
    )
    assert first[:4, 0].tolist() == [2, 3, 5, 1]
    assert second[:5, 0].tolist() == [2, 3, 7, 6, 6]
    # Without words, there is an unknown one.
    assert none.tolist() == [[1, 0, 1, 0, 0, 1]]


def test_long_captions_are_cut():
    text = "(S (NP (DT a) (NN dog)) (VP (VBZ runs) (RB a) (RB a)))"
    (array,) = arrays_of(text, max_words=3)
    assert array[:, 0].tolist() == [2, 3, 4, 0, 0, 0]
    assert array[-1, -1] == 3
    (array,) = arrays_of(text, max_words=2)  # The verb phrase is gone.
    assert array[:, 0].tolist() == [2, 3, 0, 0]
    with refusals.refused("max_words"):
        arrays_of(text, max_words=0)


def batch(*texts):
    return TreeRows(arrays_of(*texts)).batch(np.arange(len(texts)))


def test_packed_trees_by_hand():
    rows = batch("(S (NP (DT a) (NN dog)) (VBZ runs))", "(NN dog)")
    packed = pack_trees(rows)
    # Rows: a, dog, runs, dog of tree 1, the noun phrase, the sentence.
    assert packed.word_ids.numpy().tolist() == [2, 3, 4, 3]
    assert packed.trees.numpy().tolist() == [0, 0, 0, 1, 0, 0]
    assert packed.roots.numpy().tolist() == [5, 3]
    assert packed.is_noun_phrase.numpy().tolist() == [0, 0, 0, 0, 1, 0]
    assert packed.spans.numpy()[4:].tolist() == [[0, 2], [0, 3]]
    assert packed.children.numpy().tolist() == [0, 1, 2, 4]
    assert packed.parents.numpy().tolist() == [4, 4, 5, 5]
    # The noun phrase has other children alone, the sentence has both kinds.
    assert packed.levels.numpy().tolist() == [[4, 5, 5, 0, 2], [5, 5, 6, 2, 3]]
    assert packed.ends.numpy().tolist() == [6, 4]
    assert packed.rows.numpy().tolist() == [0, 1, 2, 4, 5, 3]


def test_padded_trees_give_equal_packed_trees():
    rows = batch("(S (NP (DT a) (NN dog)) (VBZ runs))", "(NN dog)")
    padded = np.pad(rows, [[0, 1], [0, 5], [0, 0]])
    one, other = pack_trees(rows), pack_trees(padded)
    for name in set(one._fields) - {"roots"}:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert other.roots.numpy().tolist() == [5, 3, -1]


@pytest.fixture(scope="module")
def whole():
    return batch(
        "(S (NP (DT a) (NN dog)) (VBZ runs))",
        "(NN dog)",
        "(S (NP (NP (NNS dog))) (VP (VBZ runs) (NP (DT a) (NN cat))))",
    )


def test_complete_trees_are_accepted(whole):
    assert whole_trees(whole, VOCABULARY.size).numpy().all()
    assert whole_trees(whole[:0], VOCABULARY.size).shape == (0,)
    assert not whole_trees(whole[:, :0], VOCABULARY.size).numpy().any()
    assert not whole_trees(np.zeros_like(whole), VOCABULARY.size).numpy().any()


def test_trees_with_one_changed_number_are_checked_as_in_the_reference(whole):
    changed = []
    for place in np.ndindex(whole.shape):
        for value in (-1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 2**31 - 1):
            one = whole[place[0]].copy()
            one[place[1:]] = value
            changed.append(one)
    found = whole_trees(np.stack(changed), VOCABULARY.size).numpy()
    wanted = [reference.is_whole_tree(one, VOCABULARY.size) for one in changed]
    np.testing.assert_array_equal(found, wanted)
    assert not found.all()
    # There is room for chains of phrases.
    assert (most_nodes(1), most_nodes(200)) == (8, 896)
