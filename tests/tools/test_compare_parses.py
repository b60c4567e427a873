"""Tests of the tool that compares parses."""

import compare_parses
import pytest

from tbnets.text.trees import read_tree
from tests import verbs

TREE = read_tree(
    "(S (NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass)))) (VBZ sits))"
)


def test_phrases_are_spans_of_characters():
    # adogongrasssits: a dog is 0 to 4, grass 6 to 11.
    assert compare_parses.noun_phrases(TREE) == {(0, 11), (0, 4), (6, 11)}
    assert compare_parses.noun_phrases(TREE, True) == {(0, 4), (6, 11)}
    assert compare_parses.phrases(TREE) == {(0, 15), (0, 11), (0, 4), (4, 11)}
    assert (4, 11, "PP") in compare_parses.kinds(TREE)


def ask(*line):
    pytest.importorskip("textblob")
    return verbs.printed("compare_parses", *line, "--processes=1")


def test_parses_are_compared_with_gold_trees(tmp_path):
    (tmp_path / "1.txt").write_text(
        "(NP (NP (DT A) (NN dog)) (PP (IN on) (NP (NN grass))) (. .))\n"
    )
    # The whole, a dog, grass.
    found = ask(f"--gold_trees={tmp_path}").splitlines()[2].split()
    assert found == ["noun", "phrases", "3", "0", "0", "100.0", "100.0"]
