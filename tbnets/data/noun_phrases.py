"""The noun phrases of captions, as nodes of their trees."""

from typing import NamedTuple

import numpy as np

from tbnets.identity import numbered
from tbnets.text.packed_trees import END, NOUN_PHRASE, START, WORD


class NounPhrases(NamedTuple):
    """Noun phrases, in the order of their captions.

    Attributes:
        captions: int64 `[num_phrases]`, row of the caption, ascending.
        nodes: int64 `[num_phrases]`, place of the node in its tree's array.
        spans: int64 `[num_phrases, 2]`, words of the caption, as the tree
            counts them: the first, and the one after the last.
        texts: int64 `[num_phrases]` from 0, equal for equal words.
        starts: int64 `[num_captions + 1]`, the first phrase of each caption.
    """

    captions: np.ndarray
    nodes: np.ndarray
    spans: np.ndarray
    texts: np.ndarray
    starts: np.ndarray

    def rows_of(self, captions):
        """Returns the rows of the phrases of captions, one after the other.

        Args:
            captions: int `[n]`, rows of captions.
        """
        return ranges(self.starts[captions], self.starts[captions + 1])[1]

    def in_batch(self, captions, lengths):
        """Tells where the phrases of captions stand in a batch of these.

        Args:
            captions: int `[m]`, rows of captions.
            lengths: int `[m]`, nodes of their trees.

        Returns:
            (rows, places, nodes): int64 `[p]` each: rows of the phrases,
            places of their captions in `captions`, and their nodes, counted
            tree by tree through the batch.
        """
        places, rows = ranges(self.starts[captions], self.starts[captions + 1])
        firsts = np.cumsum(lengths) - lengths
        return rows, places, firsts[places] + self.nodes[rows]


def noun_phrases(trees) -> NounPhrases:
    """Finds the noun phrases of captions.

    What holds all words of its caption is the sentence and no phrase; of
    several nodes with the same words the highest is the phrase.

    Args:
        trees: `text.packed_trees.TreeRows`.

    Source: Niu et al. 2017, Sec. 3.3. Departures: none; the paper does not
        say what a noun phrase at the root is.
    """
    nodes, lengths = trees.values, trees.lengths
    first = np.cumsum(lengths) - lengths
    captions = np.repeat(np.arange(len(lengths)), lengths)
    spans = nodes[:, [START, END]].astype(np.int64)
    whole = spans[first + lengths - 1][captions] if len(nodes) else spans
    is_phrase = nodes[:, NOUN_PHRASE] > 0
    is_phrase &= (spans != whole).any(axis=1)
    # The highest of equal spans stands last, and is kept.
    rows = np.flatnonzero(is_phrase)[::-1]
    keys = np.column_stack([captions, spans])[rows]
    rows = np.sort(rows[np.unique(keys, axis=0, return_index=True)[1]])
    found = captions[rows]
    words = nodes[:, WORD]
    starts = first[found] + spans[rows, 0]
    ends = first[found] + spans[rows, 1]
    return NounPhrases(
        found,
        rows - first[found],
        spans[rows],
        # What a network reads as the same: the same ids of words.
        numbered(words[a:b].tobytes() for a, b in zip(starts, ends)),
        np.searchsorted(found, np.arange(len(lengths) + 1)),
    )


def ranges(starts, ends):
    """Returns the numbers from each start to before its end, in a row.

    Args:
        starts: int64 `[n]`.
        ends: int64 `[n]`, none before its start.

    Returns:
        (places, numbers): which range each number is of, and the numbers.
    """
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    places = np.repeat(np.arange(len(lengths)), lengths)
    return places, np.arange(len(places)) + (starts - before)[places]
