import pytest

from tbnets.errors import InputError
from tbnets.text.trees import read_tree

DOG = "(S (NP (DT a) (NN dog)) (VP (VBZ sits) (PP (IN on) (NP (NN grass)))))"


def test_nodes_of_a_tree_by_hand():
    tree = read_tree(DOG)
    assert tree.labels == tuple("S NP DT NN VP VBZ PP IN NP NN".split())
    assert tree.parents == (-1, 0, 1, 1, 0, 4, 4, 6, 6, 8)
    assert tree.words == ("a", "dog", "sits", "on", "grass")
    # S over VP over PP over NP over grass.
    assert tree.heights().tolist() == [4, 1, 0, 0, 3, 0, 2, 0, 1, 0]
    assert tree.spans()[[0, 1, 4, 6, 8]].tolist() == [
        *([0, 5], [0, 2], [2, 5], [3, 5], [4, 5])
    ]
    assert tree.phrases() == [(1, 0, 2), (8, 4, 5)]
    assert tree.phrases("PP") == [(6, 3, 5)]


@pytest.mark.parametrize(
    "text, wanted",
    [
        (DOG, DOG),
        (f"(ROOT\n  {DOG})", DOG),
        (f"( {DOG} )", DOG),
        ("(NP(DT a)(NN dog))", "(NP (DT a) (NN dog))"),
        ("(S (NP (-NONE- *)) (VP (VB run)) (. .))", "(S (VP (VB run)) (. .))"),
        ("(NP () (NN dog))", "(NP (NN dog))"),
        ("((DT a) (NN dog))", "((DT a) (NN dog))"),
    ],
)
def test_brackets_in_the_styles_of_treebanks_are_read(text, wanted):
    tree = read_tree(text)
    assert tree.bracketed() == wanted
    assert read_tree(wanted) == tree


def test_brackets_are_unescaped_and_labels_lose_their_functions():
    assert read_tree("(NP (-LRB- -LRB-) (NN a-RRB-))").words == ("(", "a)")
    tree = read_tree("(NP (-LRB- -LCB-) (NN -LSB-x-RSB-) (-RRB- -RCB-))")
    assert tree.words == ("{", "[x]", "}")
    tree = read_tree("(S (NP-SBJ (NN dog)) (WHNP (WP who)) (NP=2 (NN cat)))")
    assert [node for node, _, _ in tree.phrases()] == [1, 5]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(NP (NN dog)",
        "(NP (NN dog)))",
        "(NN dog) cat",
        f"(NN {'a' * 10_000})",
        f"{'(S ' * 200}(NN dog){')' * 200}",
        f"(S {'(NN dog) ' * 5000})",
    ],
    ids=lambda text: text[:40],
)
def test_error_of_a_malformed_tree_names_its_caption(text):
    with pytest.raises(InputError, match=r"7\.jpg#2") as error:
        read_tree(text, "7.jpg#2")
    assert len(str(error.value)) < 400


def test_words_of_a_tree_can_be_replaced():
    tree = read_tree("(NP (NP (DT a) (NN T-shirt)) (, ,) (X (. .)))")
    found = tree.with_texts([["a"], ["t", "shirt"], [], []])
    assert found.bracketed() == "(NP (NP (DT a) (NN t) (NN shirt)))"
    assert tree.with_texts([[]] * 4) is None
    assert read_tree("(NN a-b)").with_texts([["a", "b"]]).words == ("a", "b")
