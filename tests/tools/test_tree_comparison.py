from measuring import tree_comparison

from tbnets.text.trees import read_tree

TREE = read_tree(
    "(S (NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass)))) (VBZ sits))"
)


def test_phrases_are_told_by_their_letters():
    # adogongrasssits: a dog is 0 to 4, grass 6 to 11.
    assert tree_comparison.noun_phrases(TREE) == {(0, 11), (0, 4), (6, 11)}
    assert tree_comparison.noun_phrases(TREE, True) == {(0, 4), (6, 11)}
    assert tree_comparison.phrases(TREE) == {(0, 15), (0, 11), (0, 4), (4, 11)}
    assert (4, 11, "PP") in tree_comparison.kinds(TREE)


def test_words_may_be_cut_otherwise():
    spans = tree_comparison.letter_spans(["man's", "hat"], [(0, 2), (1, 2)])
    assert spans == {(0, 8), (5, 8)}
    other = tree_comparison.letter_spans(["man", "'s", "hat"], [(0, 3), (2, 3)])
    assert other == spans


def test_agreement_by_hand():
    found = tree_comparison.compare(
        [{(0, 1), (1, 2)}, {(3, 4)}], [{(0, 1)}, {(3, 4), (5, 6), (7, 8)}]
    )
    assert found == (2, 2, 1)
    assert (found.recall, found.precision) == (0.5, 2 / 3)
    assert tree_comparison.compare([set()], [set()]).recall == 0
