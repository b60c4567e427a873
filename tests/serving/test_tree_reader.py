import sys

import numpy as np
import pytest

from tbnets.serving.inputs import TreeReader
from tbnets.text.packed_trees import tree_array
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("", "[UNK]", "a", "dog", "runs"))
TREE = read_tree("(S (NP (DT a) (NN dog)) (VBZ runs))")


def test_trees_are_not_parsed_again():
    found = TreeReader(VOCABULARY).read([TREE, read_tree("(NN cat)")])
    assert found.shape == (2, 8, 6)
    np.testing.assert_array_equal(found[0, :5], tree_array(TREE, [2, 3, 4]))
    assert found[1, 0].tolist() == [1, 0, 1, 0, 0, 1]
    # Words beyond the most are cut.
    found = TreeReader(VOCABULARY, max_tokens=2).read([TREE])
    assert (found[0, :, 2] == 1).sum() == 2


def test_sentences_need_a_parser(monkeypatch):
    for known in [*sys.modules]:
        if known.split(".")[0] == "nltk":
            monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(ModuleNotFoundError, match=r"nltk.*tbnets\[parse\]"):
        TreeReader(VOCABULARY).read([TREE, "a dog"])
    assert len(TreeReader(VOCABULARY).read([TREE])) == 1
