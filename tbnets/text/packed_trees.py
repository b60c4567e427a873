"""Converts trees to int32 arrays and packs batches of trees.

`tree_array` converts a tree to an array `[nodes, 6]`. `TreeRows` pads a batch
to `[trees, nodes, 6]`. `pack_trees` sorts the nodes of a batch by level.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.text.trees import Tree, phrase_type
from tbnets.text.vocabulary import (
    UNKNOWN_ID,
    PaddedRows,
    Vocabulary,
    padded_width,
    split_in_batches,
)

# A served graph validates its trees, because the network uses their entries as
# indices, and clients are untrusted.

NODES_A_WORD = 4
"""Nodes reserved per word; binary trees need two, and unary chains more."""


def most_nodes(most_words):
    """Returns the number of nodes to reserve for `most_words` words."""
    return padded_width(NODES_A_WORD * most_words, TreeRows.least_step)


def whole_trees(rows, vocabulary_size):
    """Returns whether each array in a batch is a valid tree, bool `[n]`.

    `rows` is int32 `[n, nodes, 6]`. In a valid tree, words come first, as in
    `tree_array`, and their ids are in the vocabulary. Phrases follow level by
    level, and each has a child on a lower level. The root is the last node,
    followed by padding with 0.
    """
    word, parent, level, noun_phrase, start, end = tf.unstack(rows, axis=-1)
    width = tf.shape(rows)[1]
    positions = tf.range(width)
    is_node = level > 0
    counts = tf.reduce_sum(tf.cast(is_node, tf.int32), axis=1, keepdims=True)
    has_parent = positions < counts - 1
    is_word = level == 1
    num_words = tf.reduce_sum(tf.cast(is_word, tf.int32), 1, keepdims=True)
    # Clipped for the gather. Parents out of range fail a check below.
    clipped = tf.clip_by_value(parent, 0, tf.maximum(width - 1, 0))
    parent_level = tf.gather(level, clipped, batch_dims=1)
    after = tf.concat([level[:, 1:], tf.zeros_like(level[:, :1])], axis=1)
    is_padding = tf.reduce_all(rows == 0, axis=2)
    offsets = tf.range(tf.shape(rows)[0])[:, None] * width
    children = tf.math.unsorted_segment_sum(
        tf.cast(has_parent, tf.int32), offsets + clipped, tf.size(level)
    )
    conditions = [
        # Padding is 0 and follows all nodes.
        is_node == (positions < counts),
        is_node | is_padding,
        # Levels increase without gaps.
        tf.where(has_parent, (after == level) | (after == level + 1), True),
        (word > 0) == is_word,
        (word >= 0) & (word < vocabulary_size),
        tf.where(
            has_parent,
            (parent > positions) & (parent < counts) & (parent_level > level),
            parent == 0,
        ),
        (level < 2) | (tf.reshape(children, tf.shape(level)) > 0),
        (noun_phrase >= 0) & (noun_phrase <= 1),
        ~is_node | (start >= 0) & (start < end) & (end <= num_words),
    ]
    return tf.reduce_all(tf.stack(conditions), axis=[0, 2]) & (counts[:, 0] > 0)


FIELDS = ("word", "parent", "level", "noun_phrase", "start", "end")
WORD, PARENT, LEVEL, NOUN_PHRASE, START, END = range(len(FIELDS))
CLASSES = 3
# XLA cannot compile ops whose sizes depend on the trees. The error message
# shows the name of the op.
XLA_REFUSED = "trees_cannot_be_compiled_by_XLA_use_jit_compile_False"


class PackedTrees(NamedTuple):
    """The nodes of a batch of trees, sorted by level.

    Words come first, then the phrases that contain only words, and so on. A
    *row* is a position in this order. All tensors are int32.

    Attributes:
        word_ids: `[num_words]`; the words are the first `num_words` rows.
        children: `[num_edges]`, each edge's child row.
        parents: `[num_edges]`, each edge's parent row. Edges are sorted by the
            parent's level, then by kind (edges to noun phrases last), then by
            the parent's row.
        levels: `[num_levels, 5]`, at least one level. Columns: the level's
            first row, its first row with a noun-phrase child, its first row
            with only noun-phrase children, its first edge, and its first edge
            to a noun phrase.
        ends: `[2]`, the numbers of nodes and edges.
        trees: `[num_nodes]`, index of each node's tree in the batch.
        is_noun_phrase: `[num_nodes]`, 1 for a noun phrase.
        spans: `[num_nodes, 2]`, start and end of a node's words.
        roots: `[num_trees]`, each tree's root row, or -1 for an empty tree.
        rows: `[num_nodes]`, each node's row, in the order of the input arrays.
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


def tree_array(tree, word_ids) -> np.ndarray:
    """Converts a `Tree` to int32 `[num_nodes, 6]`.

    Nodes are sorted by height, then by position. The columns are `FIELDS`: the
    word's id (0 for a phrase), the parent's index (0 for the root), the level
    (height + 1), whether the node is a noun phrase (0 or 1), and the start and
    end of the node's words.
    """
    heights, spans = tree.heights(), tree.spans()
    order = np.lexsort((spans[:, 0], heights))
    positions = np.argsort(order)
    rows = np.zeros((tree.num_nodes, len(FIELDS)), np.int32)
    rows[: len(word_ids), WORD] = word_ids
    parents = np.array(tree.parents)
    rows[:, PARENT] = np.where(parents < 0, 0, positions[parents])[order]
    rows[:, LEVEL] = heights[order] + 1
    is_noun_phrase = [phrase_type(label) == "NP" for label in tree.labels]
    rows[:, NOUN_PHRASE] = np.array(is_noun_phrase)[order]
    rows[:, START:] = spans[order]
    return rows


def tree_arrays(
    trees: Sequence[Tree], vocabulary: Vocabulary, max_words: int | None = None
) -> list[np.ndarray]:
    """Converts trees to integer arrays, using the word ids of a vocabulary.

    `split_words` splits the leaves, so punctuation is removed and `T-shirt`
    becomes two sibling words. `n't` is first joined to the preceding word. A
    tree without words becomes one unknown word.

    Args:
        trees: a list of `Tree`.
        vocabulary: the `Vocabulary` of the captions.
        max_words: maximum number of words per caption, or None.

    Returns:
        A list of int32 `[num_nodes, 6]` arrays, for `TreeRows`.

    Example:
        trees = [tbnets.read_tree("(NP (DT a) (NN dog))")]
        arrays = tbnets.tree_arrays(trees, vocabulary)
        arrays[0].shape  # (3, 6): two words and their phrase
    """
    if max_words is not None:
        max_words = checked_number("max_words", max_words, 1, whole=True)
    leaves = [leaf for tree in trees for leaf in _joined_nots(tree.words)]
    words = (
        [word.decode("utf-8") for word in row]
        for batch in split_in_batches(leaves)
        for row in batch.to_list()
    )
    ids = {word: number for number, word in enumerate(vocabulary.words)}
    arrays = []
    for tree in trees:
        limit, texts = max_words, []
        for _ in tree.words:
            texts.append(next(words)[:limit])
            limit = None if limit is None else limit - len(texts[-1])
        new_tree = tree.with_texts(texts)
        if new_tree is None:
            arrays.append(np.array([[UNKNOWN_ID, 0, 1, 0, 0, 1]], np.int32))
        else:
            word_ids = [ids.get(word, UNKNOWN_ID) for word in new_tree.words]
            arrays.append(tree_array(new_tree, word_ids))
    return arrays


def _joined_nots(words):
    """Moves each `n't` to the end of the preceding word."""
    joined = list(words)
    for position in range(len(words) - 1):
        if words[position + 1].casefold() in ("n't", "n\u2019t"):
            joined[position] += joined[position + 1]
            joined[position + 1] = ""
    return joined


class TreeRows(PaddedRows):
    """The trees of captions, for use as the texts of `Examples`.

    Args:
        arrays: one int32 `[num_nodes, 6]` array per caption, from
            `tree_arrays`.

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
        nodes = np.concatenate([empty, *arrays])
        super().__init__(nodes, [len(array) for array in arrays])


def pack_trees(rows: Array, noun_phrases: bool = True) -> PackedTrees:
    """Sorts the nodes of a batch of trees by level, with TensorFlow ops.

    Args:
        rows: int32 `[num_trees, nodes, 6]`, from `TreeRows`; padded with 0.
        noun_phrases: whether edges to noun phrases are sorted separately.

    Example:
        rows = tbnets.TreeRows(arrays).batch([0])  # arrays: from tree_arrays
        tbnets.pack_trees(rows).word_ids  # the words, tree by tree
    """
    rows = tf.convert_to_tensor(rows)
    with tf.name_scope(XLA_REFUSED):
        is_node = rows[:, :, LEVEL] > 0
        nodes = tf.boolean_mask(rows, is_node)
        trees = tf.cast(tf.where(is_node)[:, 0], tf.int32)
        counts = tf.math.count_nonzero(is_node, axis=1, dtype=tf.int32)
        first = tf.cumsum(counts, exclusive=True)
        parents = tf.gather(first, trees) + nodes[:, PARENT]
        lasts = tf.gather(first + counts - 1, trees)  # Roots have no parent.
        is_child = tf.range(tf.size(trees)) < lasts
        is_np = nodes[:, NOUN_PHRASE] * int(noun_phrases)
        levels = nodes[:, LEVEL] - 1
        child_classes = _child_classes(parents, is_np, is_child)
        order = _order(levels * CLASSES + child_classes)
        ranks = tf.math.invert_permutation(order)

        children = tf.boolean_mask(tf.range(tf.size(parents)), is_child)
        parents = tf.gather(parents, children)
        parent_levels = tf.gather(levels, parents)
        is_np = tf.gather(is_np, children)
        edges = _order(parent_levels * 2 + is_np, tf.gather(ranks, parents))
        last = tf.maximum(first + counts - 1, 0)
        roots = tf.gather(tf.concat([ranks, [-1]], axis=0), last)
        nodes = tf.gather(nodes, order)
        return PackedTrees(
            word_ids=tf.boolean_mask(nodes[:, WORD], nodes[:, LEVEL] == 1),
            children=tf.gather(tf.gather(ranks, children), edges),
            parents=tf.gather(tf.gather(ranks, parents), edges),
            levels=_levels(levels, child_classes, parent_levels, is_np),
            ends=tf.stack([tf.size(order), tf.size(edges)]),
            trees=tf.gather(trees, order),
            is_noun_phrase=nodes[:, NOUN_PHRASE],
            spans=nodes[:, START:],
            roots=tf.where(counts > 0, roots, -1),
            rows=ranks,
        )


def _child_classes(parents, is_np, is_child):
    """Classifies nodes by the kinds of their children.

    Class 0 has no noun-phrase children, class 1 has both kinds of children,
    and class 2 has only noun-phrase children.
    """
    num_nodes = tf.size(parents)
    parents = tf.where(is_child, parents, -1)  # Parents of -1 are not counted.
    other_children, phrase_children = (
        _counts(tf.where(is_np == value, parents, -1), num_nodes)
        for value in (0, 1)
    )
    return tf.where(phrase_children > 0, tf.where(other_children > 0, 1, 2), 0)


def _order(keys, then=None):
    """Returns the stable int32 permutation that sorts by `keys` and `then`."""
    keys = tf.cast(keys, tf.int64)
    if then is not None:
        then = tf.cast(then, tf.int64)
        most = tf.reduce_max(tf.concat([then, [0]], axis=0))
        keys = keys * (most + 1) + then
    size = tf.size(keys, out_type=tf.int64)
    return tf.argsort(keys * size + tf.range(size))


def _levels(levels, child_classes, parent_levels, is_np):
    highest = tf.reduce_max(tf.concat([levels, [1]], axis=0))
    nodes = _counts(levels * CLASSES + child_classes, (highest + 1) * CLASSES)
    edges = _counts(parent_levels * 2 + is_np, (highest + 1) * 2)
    nodes = tf.reshape(tf.cumsum(nodes, exclusive=True), [-1, CLASSES])
    edges = tf.reshape(tf.cumsum(edges, exclusive=True), [-1, 2])
    return tf.concat([nodes, edges], axis=1)[1:]


def _counts(values, size):
    return tf.math.unsorted_segment_sum(tf.ones_like(values), values, size)
