"""How the phrases of a parser agree with others: found, missed, extra.

Phrases are compared by where they stand in the caption without its blanks,
so that it does not matter how words are cut.
"""

from typing import NamedTuple

import numpy as np

from tbnets.text.trees import Tree, kind_of


class Agreement(NamedTuple):
    """How many phrases agree.

    Attributes:
        found: phrases that both have.
        missed: phrases that the parser does not have.
        extra: phrases that the parser alone has.
    """

    found: int
    missed: int
    extra: int

    @property
    def recall(self) -> float:
        """Share of the others' phrases that the parser has."""
        return self.found / max(1, self.found + self.missed)

    @property
    def precision(self) -> float:
        """Share of the parser's phrases that the others have."""
        return self.found / max(1, self.found + self.extra)


def compare(parsed, others) -> Agreement:
    """Counts the phrases of captions.

    Args:
        parsed: for each caption the set of the parser's phrases.
        others: for each caption the set of the others' phrases.
    """
    found = missed = extra = 0
    for one, other in zip(parsed, others, strict=True):
        found += len(one & other)
        missed += len(other - one)
        extra += len(one - other)
    return Agreement(found, missed, extra)


def letter_spans(words, spans) -> set[tuple[int, int]]:
    """Returns spans of words as spans of letters, blanks left out.

    Args:
        words: of the caption.
        spans: pairs of the first word and the word after the last.
    """
    ends = np.cumsum([0, *map(len, words)])
    return {(int(ends[start]), int(ends[end])) for start, end in spans}


def noun_phrases(tree: Tree, base=False) -> set[tuple[int, int]]:
    """Returns the letters of each noun phrase of a tree.

    Args:
        tree: a `Tree`.
        base: whether noun phrases that hold another one are left out.
    """
    spans = tree.phrases("NP")
    if base:
        outer = set()
        for node, _, _ in spans:
            parent = tree.parents[node]
            while parent >= 0 and parent not in outer:
                outer.add(parent)
                parent = tree.parents[parent]
        spans = [one for one in spans if one[0] not in outer]
    return letter_spans(tree.words, [one[1:] for one in spans])


def phrases(tree: Tree) -> set[tuple[int, int]]:
    """Returns the letters of each phrase of two words or more."""
    return {(start, end) for start, end, _ in kinds(tree)}


def kinds(tree: Tree) -> set[tuple[int, int, str]]:
    """Returns the letters and the kind of each phrase of two words or more."""
    ends = np.cumsum([0, *map(len, tree.words)])
    return {
        (int(ends[start]), int(ends[end]), kind_of(label))
        for (start, end), text, label in zip(
            tree.spans(), tree.texts, tree.labels
        )
        if not text and end - start > 1
    }
