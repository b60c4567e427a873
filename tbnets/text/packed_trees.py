"""Trees as arrays: a tree is one int32 row, a batch of rows is packed.

On the host a tree is an array `[nodes, 6]` (`tree_array`), and a batch of
captions is one int32 tensor `[trees, nodes, 6]`, padded with 0 (`TreeRows`).
It takes the place of the `[captions, words]` of token ids. In the graph
`pack_trees` brings the nodes of all trees of the batch into one order, level
by level, which is what a network over trees computes on.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.checks import Array, checked_number, of_fields
from tbnets.errors import InputError, check_kind
from tbnets.text.trees import Tree, kind_of
from tbnets.text.vocabulary import (
    UNKNOWN_ID,
    PaddedRows,
    Vocabulary,
    padded_width,
    split_in_batches,
)

# Trees as a graph is given them, held to what `packed_trees` makes.
#
# A network over trees goes where its input points: to the parent of a node, up
# as many levels as a node names. Whoever serves one takes trees from
# strangers.

NODES_A_WORD = 4
"""Room for phrases: a binary tree has two nodes a word, chains have more."""


def most_nodes(most_words):
    """Returns how many nodes, padding included, trees of such length have."""
    return padded_width(NODES_A_WORD * most_words, TreeRows.least_step)


def whole_trees(rows, vocabulary_size):
    """Tells which rows are trees as `packed_trees.tree_array` makes them.

    Words come first and have an id of the vocabulary, phrases follow level by
    level, each below a parent of a higher level and with a child; the root is
    the last node, and what follows it is 0.

    Args:
        rows: int32 `[n, nodes, 6]`.
        vocabulary_size: number of ids, padding included.

    Returns:
        bool `[n]`.

    Source: a loop that says the same is `tests.reference.is_whole_tree`.
    """
    word, parent, level, noun_phrase, start, end = tf.unstack(rows, axis=-1)
    width = tf.shape(rows)[1]
    places = tf.range(width)
    is_node = level > 0
    counts = tf.reduce_sum(tf.cast(is_node, tf.int32), axis=1, keepdims=True)
    has_parent = places < counts - 1
    is_word = level == 1
    num_words = tf.reduce_sum(tf.cast(is_word, tf.int32), 1, keepdims=True)
    # Those of another range are told below; here they must not be gathered.
    safe = tf.clip_by_value(parent, 0, tf.maximum(width - 1, 0))
    above = tf.gather(level, safe, batch_dims=1)
    after = tf.concat([level[:, 1:], tf.zeros_like(level[:, :1])], axis=1)
    is_padding = tf.reduce_all(rows == 0, axis=2)
    before = tf.range(tf.shape(rows)[0])[:, None] * width
    children = tf.math.unsorted_segment_sum(
        tf.cast(has_parent, tf.int32), before + safe, tf.size(level)
    )
    good = [
        # What is no node follows all nodes, and is 0.
        is_node == (places < counts),
        is_node | is_padding,
        # Levels rise, and none is left out.
        tf.where(has_parent, (after == level) | (after == level + 1), True),
        (word > 0) == is_word,
        (word >= 0) & (word < vocabulary_size),
        tf.where(
            has_parent,
            (parent > places) & (parent < counts) & (above > level),
            parent == 0,
        ),
        (level < 2) | (tf.reshape(children, tf.shape(level)) > 0),
        (noun_phrase >= 0) & (noun_phrase <= 1),
        ~is_node | (start >= 0) & (start < end) & (end <= num_words),
    ]
    return tf.reduce_all(tf.stack(good), axis=[0, 2]) & (counts[:, 0] > 0)


FIELDS = ("word", "parent", "level", "noun_phrase", "start", "end")
WORD, PARENT, LEVEL, NOUN_PHRASE, START, END = range(len(FIELDS))
CLASSES = 3
# XLA wants sizes that do not depend on data. Its error names the node that it
# can not compile, and this is how nodes are named that trees give their sizes.
XLA_REFUSED = "trees_cannot_be_compiled_by_XLA_use_jit_compile_False"


class PackedTrees(NamedTuple):
    """The nodes of all trees of a batch in one order, a level at a time.

    Words come first, then the phrases over words alone, and so on: a node
    stands after its children. A *row* is a place in this order; whatever a
    network computes for the nodes is `[num_nodes, ...]` in it. All are int32.

    Attributes:
        word_ids: `[num_words]` of the words; they are the rows before
            `num_words`.
        children: `[num_edges]` row of the child of each edge.
        parents: `[num_edges]` row of its parent. Edges are ordered by the
            level of the parent, then by whether the child is a noun phrase
            (those come last), then by the row of the parent.
        levels: `[num_levels, 5]`, at least one level: where the phrases of a
            level begin. Row of the first; of the first with a noun-phrase
            child; of the first whose children are all noun phrases; its
            first edge; its first edge to a noun phrase.
        ends: `[2]` the number of nodes and the number of edges.
        trees: `[num_nodes]` row of each node's tree in the batch.
        is_noun_phrase: `[num_nodes]` 1 for a noun phrase.
        spans: `[num_nodes, 2]` words of each node, start and end, counted
            from 0 in its caption.
        roots: `[num_trees]` row of the root of each tree; -1 of a tree
            without nodes.
        rows: `[num_nodes]` row of each node when they are counted tree by
            tree, as the arrays have them.
    """

    word_ids: tf.Tensor
    children: tf.Tensor
    parents: tf.Tensor
    levels: tf.Tensor
    ends: tf.Tensor
    trees: tf.Tensor
    is_noun_phrase: tf.Tensor
    spans: tf.Tensor
    roots: tf.Tensor
    rows: tf.Tensor

    def __repr__(self) -> str:
        return of_fields(self)


def tree_array(tree, word_ids) -> np.ndarray:
    """Returns a tree as int32 `[num_nodes, 6]`, by level.

    Nodes are ordered by height, and at one height as in the sentence: the
    words come first, the root last. The fields are `FIELDS`: the id of the
    word, 0 of a phrase; the place of the parent, 0 of the root; the height
    + 1, so that 0 is padding; 1 for a noun phrase; the words of the node.

    Args:
        tree: a `Tree`.
        word_ids: id of each word of the tree; none is 0.
    """
    heights, spans = tree.heights(), tree.spans()
    order = np.lexsort((spans[:, 0], heights))
    places = np.argsort(order)
    rows = np.zeros((tree.num_nodes, len(FIELDS)), np.int32)
    rows[: len(word_ids), WORD] = word_ids
    parents = np.array(tree.parents)
    rows[:, PARENT] = np.where(parents < 0, 0, places[parents])[order]
    rows[:, LEVEL] = heights[order] + 1
    kinds = [kind_of(label) == "NP" for label in tree.labels]
    rows[:, NOUN_PHRASE] = np.array(kinds)[order]
    rows[:, START:] = spans[order]
    return rows


def tree_arrays(
    trees: Sequence[Tree], vocabulary: Vocabulary, max_words: int | None = None
) -> list[np.ndarray]:
    """Returns trees as arrays whose words are those of a vocabulary.

    A leaf goes through `split_words`, as captions do: punctuation goes,
    `T-shirt` becomes two words side by side, and `n't`, which treebanks cut
    off, is joined to the word before it. A tree without words is one unknown
    word.

    Args:
        trees: a list of `Tree`.
        vocabulary: the `Vocabulary` of the captions.
        max_words: words after which a caption is cut; never if None.

    Returns:
        A list of int32 `[num_nodes, 6]`, see `tree_array`.

    Example:
        trees = [tbnets.read_tree("(NP (DT a) (NN dog))")]
        arrays = tbnets.tree_arrays(trees, vocabulary)
        arrays[0].shape  # (3, 6): two words and their phrase
    """
    if max_words is not None:
        max_words = checked_number("max_words", max_words, 1, whole=True)
    check_kind("trees", trees, (list, tuple), "Put a single tree into a list.")
    advice = "Read it by tbnets.read_tree."
    for row, tree in enumerate(trees):
        check_kind(f"trees[{row}]", tree, Tree, advice)
    advice = "Make one by tbnets.Vocabulary.build(captions)."
    check_kind("vocabulary", vocabulary, Vocabulary, advice)
    leaves = [leaf for tree in trees for leaf in _joined_nots(tree.words)]
    words = (
        [word.decode("utf-8") for word in row]
        for batch in split_in_batches(leaves)
        for row in batch.to_list()
    )
    ids = {word: number for number, word in enumerate(vocabulary.words)}
    arrays = []
    for tree in trees:
        left, texts = max_words, []
        for _ in tree.words:
            texts.append(next(words)[:left])
            left = None if left is None else left - len(texts[-1])
        found = tree.with_texts(texts)
        if found is None:
            arrays.append(np.array([[UNKNOWN_ID, 0, 1, 0, 0, 1]], np.int32))
        else:
            known = [ids.get(word, UNKNOWN_ID) for word in found.words]
            arrays.append(tree_array(found, known))
    return arrays


def _joined_nots(words):
    """Returns words as captions write them: `do`, `n't` as `don't`, ``."""
    joined = list(words)
    for place in range(len(words) - 1):
        if words[place + 1].casefold() in ("n't", "n\u2019t"):
            joined[place] += joined[place + 1]
            joined[place + 1] = ""
    return joined


class TreeRows(PaddedRows):
    """Trees of captions, as the texts of `Examples`.

    Args:
        arrays: for each caption int32 `[num_nodes, 6]`, see `tree_array`.

    Example:
        tree = tbnets.read_tree("(NP (DT a) (NN dog))")
        arrays = tbnets.tree_arrays([tree], vocabulary)
        texts = tbnets.TreeRows(arrays)
        texts.batch([0]).shape  # (1, nodes, 6), padded with 0
    """

    shape: tuple[int | None, ...] = (None, len(FIELDS))
    least_step = 8

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        empty = np.zeros((0, len(FIELDS)), np.int32)
        for row, array in enumerate(arrays):
            shape = np.shape(array)
            if len(shape) != 2 or shape[1] != len(FIELDS):
                raise InputError(
                    f"arrays[{row}]",
                    f"be of shape (nodes, {len(FIELDS)})",
                    f"{shape}",
                    "`tbnets.tree_arrays` makes them.",
                )
        nodes = np.concatenate([empty, *arrays])
        super().__init__(nodes, [len(array) for array in arrays])


def pack_trees(rows: Array, noun_phrases: bool = True) -> PackedTrees:
    """Brings the nodes of a batch of trees into one order, in the graph.

    Args:
        rows: int32 `[num_trees, nodes, 6]`, see `tree_array`; padded with 0.
        noun_phrases: whether children that are noun phrases are of a kind of
            their own; without, all edges are alike.

    Returns:
        `PackedTrees`.

    Example:
        rows = tbnets.TreeRows(arrays).batch([0])  # arrays: of tree_arrays
        tbnets.pack_trees(rows).word_ids  # the words of all trees, one by one
    """
    rows = tf.convert_to_tensor(rows)
    if not rows.shape.is_compatible_with((None, None, len(FIELDS))):
        raise InputError(
            "rows",
            f"be of shape (trees, nodes, {len(FIELDS)})",
            f"{rows.shape}",
            "`tbnets.TreeRows` makes batches of trees.",
        )
    with tf.name_scope(XLA_REFUSED):
        is_node = rows[:, :, LEVEL] > 0
        nodes = tf.boolean_mask(rows, is_node)
        trees = tf.cast(tf.where(is_node)[:, 0], tf.int32)
        counts = tf.math.count_nonzero(is_node, axis=1, dtype=tf.int32)
        first = tf.cumsum(counts, exclusive=True)
        parents = tf.gather(first, trees) + nodes[:, PARENT]
        lasts = tf.gather(first + counts - 1, trees)  # They have no parent.
        is_child = tf.range(tf.size(trees)) < lasts
        kinds = nodes[:, NOUN_PHRASE] * int(noun_phrases)
        levels = nodes[:, LEVEL] - 1
        sorts = _sorts(parents, kinds, is_child)
        order = _order(levels * CLASSES + sorts)
        ranks = tf.math.invert_permutation(order)

        children = tf.boolean_mask(tf.range(tf.size(parents)), is_child)
        parents = tf.gather(parents, children)
        parent_levels = tf.gather(levels, parents)
        kinds = tf.gather(kinds, children)
        edges = _order(parent_levels * 2 + kinds, tf.gather(ranks, parents))
        last = tf.maximum(first + counts - 1, 0)
        roots = tf.gather(tf.concat([ranks, [-1]], axis=0), last)
        nodes = tf.gather(nodes, order)
        return PackedTrees(
            word_ids=tf.boolean_mask(nodes[:, WORD], nodes[:, LEVEL] == 1),
            children=tf.gather(tf.gather(ranks, children), edges),
            parents=tf.gather(tf.gather(ranks, parents), edges),
            levels=_levels(levels, sorts, parent_levels, kinds),
            ends=tf.stack([tf.size(order), tf.size(edges)]),
            trees=tf.gather(trees, order),
            is_noun_phrase=nodes[:, NOUN_PHRASE],
            spans=nodes[:, START:],
            roots=tf.where(counts > 0, roots, -1),
            rows=ranks,
        )


def _sorts(parents, kinds, is_child):
    """Returns of each node what children it has.

    0: none that is a noun phrase, 1: both kinds, 2: noun phrases alone.
    """
    num_nodes = tf.size(parents)
    parents = tf.where(is_child, parents, -1)  # Those of -1 are not counted.
    others, phrases = (
        _counts(tf.where(kinds == kind, parents, -1), num_nodes)
        for kind in (0, 1)
    )
    return tf.where(phrases > 0, tf.where(others > 0, 1, 2), 0)


def _order(keys, then=None):
    """Returns the int32 permutation that sorts keys; ties by `then`, place."""
    keys = tf.cast(keys, tf.int64)
    if then is not None:
        then = tf.cast(then, tf.int64)
        most = tf.reduce_max(tf.concat([then, [0]], axis=0))
        keys = keys * (most + 1) + then
    size = tf.size(keys, out_type=tf.int64)
    return tf.argsort(keys * size + tf.range(size))


def _levels(levels, sorts, parent_levels, kinds):
    """Returns `PackedTrees.levels` of nodes and edges in any order."""
    highest = tf.reduce_max(tf.concat([levels, [1]], axis=0))
    nodes = _counts(levels * CLASSES + sorts, (highest + 1) * CLASSES)
    edges = _counts(parent_levels * 2 + kinds, (highest + 1) * 2)
    nodes = tf.reshape(tf.cumsum(nodes, exclusive=True), [-1, CLASSES])
    edges = tf.reshape(tf.cumsum(edges, exclusive=True), [-1, 2])
    return tf.concat([nodes, edges], axis=1)[1:]


def _counts(values, size):
    return tf.math.unsorted_segment_sum(tf.ones_like(values), values, size)
