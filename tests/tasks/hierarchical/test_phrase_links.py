"""Known links of phrases to boxes, at noun phrases of parsed captions."""

import types

import numpy as np

from tbnets.data.captions import CaptionedImages
from tbnets.data.phrase_pairs import noun_phrases
from tbnets.data.phrases import PhraseRegions
from tbnets.tasks.hierarchical import find_links, phrases_of_spans
from tbnets.text.packed_trees import TreeRows, tree_arrays
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

TREES = (
    "(S (NP a cat) sleeps)",
    "(S (NP a man) (VP wears (NP a red T - shirt) today))",
)


SPANS = types.SimpleNamespace(
    spans=np.array([[0, 2], [3, 8], [5, 8], [0, 1]]),
    starts=np.array([0, 3, 3, 4]),
)
"""Phrases: words 0-2, 3-8 and 5-8 of caption 0, and words 0-1 of caption 2."""


def test_spans_match_the_smallest_phrase_with_their_last_word():
    captions = np.array([0, 0, 0, 0, 1, 2, -1])
    spans = [[3, 8], [4, 8], [3, 5], [0, 3], [0, 1], [0, 1], [0, 2]]
    rows, is_exact = phrases_of_spans(captions, np.array(spans), SPANS)
    # 4-8 ends in the smaller of two, 3-5 only in the larger; word 2, the last
    # of 0-3, is in none.
    assert rows.tolist() == [1, 2, 1, -1, -1, 3, -1]
    assert is_exact.tolist() == [True, False, False, False, False, True, False]


def captioned(*captions):
    return CaptionedImages(
        ("x",), captions, [0] * len(captions), "test", "captions.json"
    )


def test_links_are_found_at_the_words_of_their_phrase():
    records = captioned("A cat sleeps.", "A man wears a red T - shirt today.")
    vocabulary = Vocabulary(("", "[UNK]", "man"))
    trees = [read_tree(text) for text in TREES]
    nodes = noun_phrases(TreeRows(tree_arrays(trees, vocabulary, None)))
    # In another order; `T-shirt` is one piece, and two words of the tree.
    marked = captioned(
        "A man , wears a red T-shirt today .", "A cat sleeps .", "nobody"
    )
    known = PhraseRegions(
        marked,
        np.array([[10, 10]]),
        ("A man", "a red T-shirt", "T-shirt", "cat", "nobody"),
        [f"p{i}" for i in range(5)],
        [0, 0, 0, 1, 2],
        [[0, 2], [4, 7], [6, 7], [1, 2], [0, 1]],
        [()] * 5,
        "abbcd",
        [[i, i, i + 1, i + 1] for i in range(5)],
    )
    found = find_links(known, records, nodes)
    # `T-shirt` and `cat` are parts of phrases; `nobody` is in no caption.
    assert found.is_exact.tolist() == [True, True, False, False]
    assert nodes.captions[found.phrases].tolist() == [1, 1, 1, 0]
    assert nodes.spans[found.phrases].tolist() == [
        [0, 2],
        [3, 7],
        [3, 7],
        [0, 2],
    ]
    assert found.boxes[:, 0].tolist() == [0, 1, 2, 3]
    assert found.num_lost == 1
