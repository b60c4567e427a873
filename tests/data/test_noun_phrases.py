import numpy as np

from tbnets.data.phrase_pairs import noun_phrases
from tbnets.text.packed_trees import TreeRows, tree_arrays
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("", "[UNK]", "a", "dog", "cat", "and"))


def phrases_of(*texts):
    trees = [read_tree(text) for text in texts]
    return noun_phrases(TreeRows(tree_arrays(trees, VOCABULARY)))


def test_phrases_by_hand():
    found = phrases_of(
        "(NP (NP (DT a) (NN dog)) (CC and) (NP (NP (DT a)) (NN cat)))",
        "(NN dog)",
        "(S (NP (DT A) (NN dog)) (VP runs))",
    )
    # Words 0 to 4 come first, then a level of phrases after the other.
    assert found.captions.tolist() == [0, 0, 0, 2]
    assert found.spans.tolist() == [[0, 2], [3, 4], [3, 5], [0, 2]]
    assert found.nodes.tolist() == [5, 6, 7, 3]
    assert found.texts.tolist() == [0, 1, 2, 0]
    assert found.starts.tolist() == [0, 3, 3, 4]
    assert found.rows_of(np.array([2, 0])).tolist() == [3, 0, 1, 2]
    assert found.rows_of(np.array([1], int)).tolist() == []


def test_what_holds_the_whole_caption_is_the_sentence():
    found = phrases_of("(S (NP (NP (NN dog)) (NP (NN cat))) (. .))")
    assert found.spans.tolist() == [[0, 1], [1, 2]]


def test_the_highest_of_equal_spans_is_the_phrase():
    found = phrases_of("(S (NP (NP (NP (NN dog)))) (VP (VBZ a)))")
    # Words 0 and 1, the verb phrase and the three noun phrases, the sentence.
    assert found.spans.tolist() == [[0, 1]]
    assert found.nodes.tolist() == [5]


def test_no_captions_have_no_phrases():
    found = noun_phrases(TreeRows([]))
    assert found.captions.tolist() == []
    assert found.starts.tolist() == [0]
    assert phrases_of("(NN dog)").spans.shape == (0, 2)
