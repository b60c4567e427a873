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


def test_recall_and_precision_by_hand(capsys):
    # One of two annotated phrases is found, and two are added.
    compare_parses.show("x", [{(0, 1), (1, 2), (2, 3)}], [{(0, 1), (5, 6)}])
    compare_parses.show("none", [set()], [set()])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["x", "1", "1", "2", "50.0", "33.3"]
    assert rows[1] == ["none", "0", "0", "0", "0.0", "0.0"]


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
