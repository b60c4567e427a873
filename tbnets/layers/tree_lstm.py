"""The hierarchical LSTM over constituency trees."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.text_encoders import TextEncoder
from tbnets.text.packed_trees import PackedTrees, pack_trees

# The states of all trees in a batch are computed level by level. A step gathers
# the states of a level's children, separately for noun phrases and other
# children, multiplies them by their matrices and sums over each parent's
# children. The custom gradient visits the levels in reverse. At the end it
# computes the gradient of each matrix in one product. The docstring of
# `TreeLSTM` contains the equations.

WEIGHTS = (
    *("noun_gates", "other_gates", "noun_forget", "other_forget"),
    *("bias", "forget_bias"),
)


def tree_states(projected, weights, trees):
    """Computes a state for every node, with a custom gradient.

    Args:
        projected: `[num_words, 3 * units]`, each word's product W x for the
            gates i, o and u.
        weights: tensors in the order of `WEIGHTS`.
        trees: `PackedTrees`.
    """

    @tf.custom_gradient
    def run(projected, *weights):
        hidden, saved = _forward(projected, weights, trees)

        def gradient(upstream):
            # The gather of the roots has `IndexedSlices` as its gradient.
            upstream = tf.convert_to_tensor(upstream)
            return _backward(upstream, weights, saved, trees)

        return hidden, gradient

    return run(projected, *weights)


def _gates(sums, cells):
    """Computes i, o, u, c and h (Eq. 5-8) from values summed over children."""
    i, o, u = tf.split(sums, 3, axis=1)
    i, o, u = tf.sigmoid(i), tf.sigmoid(o), tf.tanh(u)
    c = i * u + cells
    return i, o, u, c, o * tf.tanh(c)


def _gates_gradient(d_hidden, d_cells, i, o, u, c):
    """Returns the gradients with respect to the arguments of `_gates`."""
    tanh_c = tf.tanh(c)
    d_cells = d_cells + tf.raw_ops.TanhGrad(y=tanh_c, dy=d_hidden * o)
    d_i = tf.raw_ops.SigmoidGrad(y=i, dy=d_cells * u)
    d_o = tf.raw_ops.SigmoidGrad(y=o, dy=d_hidden * tanh_c)
    d_u = tf.raw_ops.TanhGrad(y=u, dy=d_cells * i)
    return tf.concat([d_i, d_o, d_u], axis=1), d_cells


def _column_sums(matrix):
    """Sums the rows with a matrix product, which is faster on a CPU."""
    ones = tf.ones([1, tf.shape(matrix)[0]], matrix.dtype)
    return tf.matmul(ones, matrix)[0]


class _Level:
    """The parts of the packed trees that belong to one level."""

    # Within a level, nodes without noun-phrase children are first, then nodes
    # with both kinds of children, then nodes with only noun-phrase children.

    def __init__(self, bounds, level, trees):
        here, above = tf.unstack(bounds[level : level + 2], num=2)
        self.start, with_noun, only_noun, first, noun = tf.unstack(here)
        self.stop, last = above[0], above[3]
        self.num_nodes = self.stop - self.start
        self.num_others = only_noun - self.start
        self.before_noun = with_noun - self.start
        self.num_other_edges = noun - first
        self.other_children = trees.children[first:noun]
        self.noun_children = trees.children[noun:last]
        self.children = trees.children[first:last]
        self.parents = trees.parents[first:last] - self.start
        self.other_parents = self.parents[: self.num_other_edges]
        noun_parents = self.parents[self.num_other_edges :]
        self.noun_parents = noun_parents - self.before_noun

    def joined(self, at_others, at_nouns):
        """Adds each parent's values from noun-phrase and other children."""
        first, count = self.before_noun, self.num_others - self.before_noun
        middle = at_others[first:] + at_nouns[:count]
        return tf.concat([at_others[:first], middle, at_nouns[count:]], axis=0)


def _bounds(trees):
    """Appends to `trees.levels` a row with the end of the last level."""
    nodes, edges = trees.ends[0], trees.ends[1]
    last_row = tf.stack([nodes, nodes, nodes, edges, edges])
    return tf.concat([trees.levels, last_row[tf.newaxis]], axis=0)


def _arrays(like, count, widths):
    """Creates a `tf.TensorArray` of `[any, width]` tensors for each width."""
    return tuple(
        tf.TensorArray(
            like.dtype,
            count,
            clear_after_read=False,  # A persistent tape reads twice.
            infer_shape=False,
            element_shape=(None, width),
        )
        for width in widths
    )


def _written(arrays, level, values):
    pairs = zip(arrays, values)
    return tuple(array.write(level, value) for array, value in pairs)


def _forward(projected, weights, trees):
    """Returns the hidden states and the values that the gradient needs."""
    noun_gates, other_gates, noun_forget, other_forget, bias, b_f = weights
    units = b_f.shape[0]
    leaf = _gates(projected + bias, 0)
    phrases = trees.ends[0] - tf.shape(projected)[0]
    cells, hidden = (tf.pad(part, [[0, phrases], [0, 0]]) for part in leaf[3:])
    bounds = _bounds(trees)
    count = tf.shape(trees.levels)[0]

    def step(level, hidden, cells, saved):
        at = _Level(bounds, level, trees)
        h_other = tf.gather(hidden, at.other_children)
        h_noun = tf.gather(hidden, at.noun_children)
        sums = tf.matmul(h_other, other_forget), tf.matmul(h_noun, noun_forget)
        forget = tf.sigmoid(tf.concat(sums, axis=0) + b_f)  # Eq. 3 and 4.
        forgotten = tf.math.unsorted_segment_sum(
            forget * tf.gather(cells, at.children), at.parents, at.num_nodes
        )
        other_sums = tf.math.unsorted_segment_sum(  # Eq. 2.
            h_other, at.other_parents, at.num_others
        )
        noun_sums = tf.math.unsorted_segment_sum(
            h_noun, at.noun_parents, at.num_nodes - at.before_noun
        )
        sums = at.joined(
            tf.matmul(other_sums, other_gates), tf.matmul(noun_sums, noun_gates)
        )
        i, o, u, c, h = _gates(sums + bias, forgotten)
        values = (i, o, u, forget, noun_sums, other_sums, h_noun, h_other)
        saved = _written(saved, level, values)
        rows = tf.range(at.start, at.stop)[:, tf.newaxis]
        hidden = tf.tensor_scatter_nd_update(hidden, rows, h)
        cells = tf.tensor_scatter_nd_update(cells, rows, c)
        return level + 1, hidden, cells, saved

    _, hidden, cells, saved = tf.while_loop(
        lambda level, *_: level < count,
        step,
        (0, hidden, cells, _arrays(projected, count, [units] * 8)),
    )
    return hidden, (cells, leaf[:3], saved)


def _to_children(at, transposed, gradients):
    """Returns the gradients with respect to the states of a level's children.

    `gradients` and `transposed` are in the order of `WEIGHTS`.
    """
    at_nouns, at_others, d_noun, d_other = map(tf.matmul, gradients, transposed)
    d_other += tf.gather(at_others, at.other_parents)
    d_noun += tf.gather(at_nouns, at.noun_parents)
    return tf.concat([d_other, d_noun], axis=0)


def _backward(upstream, weights, saved, trees):
    """Returns the gradients with respect to `projected` and the weights."""
    units = weights[-1].shape[0]
    cells, leaf, level_values = saved
    num_words = tf.shape(leaf[0])[0]
    bounds = _bounds(trees)
    count = tf.shape(trees.levels)[0]
    # Transposed once here; `transpose_b` would transpose at every level.
    transposed = [tf.transpose(matrix) for matrix in weights[:4]]

    def step(level, d_hidden, d_cells, d_bias, level_gradients):
        at = _Level(bounds, level, trees)
        nodes = slice(at.start, at.stop)
        i, o, u, f = (array.read(level) for array in level_values[:4])
        d_sums, d_left = _gates_gradient(
            d_hidden[nodes], d_cells[nodes], *(i, o, u, cells[nodes])
        )
        d_forget = tf.gather(d_left, at.parents)
        d_put = d_forget * f
        d_forget = tf.raw_ops.SigmoidGrad(
            y=f, dy=d_forget * tf.gather(cells, at.children)
        )
        values = (
            d_sums[at.before_noun :],
            d_sums[: at.num_others],
            d_forget[at.num_other_edges :],
            d_forget[: at.num_other_edges],
        )
        rows = at.children[:, tf.newaxis]
        d_hidden = tf.tensor_scatter_nd_add(
            d_hidden, rows, _to_children(at, transposed, values)
        )
        d_cells = tf.tensor_scatter_nd_add(d_cells, rows, d_put)
        d_bias += _column_sums(d_sums)
        level_gradients = _written(level_gradients, level, values)
        return level - 1, d_hidden, d_cells, d_bias, level_gradients

    nothing = tf.zeros_like(upstream), tf.zeros(3 * units, upstream.dtype)
    level_gradients = _arrays(upstream, count, [3 * units] * 2 + [units] * 2)
    _, d_hidden, d_cells, d_bias, level_gradients = tf.while_loop(
        lambda level, *_: level >= 0,
        step,
        (count - 1, upstream, *nothing, level_gradients),
    )
    d_projected, _ = _gates_gradient(
        d_hidden[:num_words], d_cells[:num_words], *leaf, cells[:num_words]
    )
    d_bias += _column_sums(d_projected)
    # Pairs each matrix's inputs with the gradients of its products.
    inputs = [array.concat() for array in level_values[4:]]
    gradients = [array.concat() for array in level_gradients]
    pairs = zip(inputs, gradients)
    d_matrices = [tf.matmul(*pair, transpose_a=True) for pair in pairs]
    d_forget_bias = _column_sums(gradients[3]) + _column_sums(gradients[2])
    return d_projected, *d_matrices, d_bias, d_forget_bias


@keras.saving.register_keras_serializable(package="tbnets")
class TreeEncoder(TextEncoder):
    """Encodes captions along their parse trees with the hierarchical LSTM.

    Args:
        vocabulary_size: number of ids, including padding (0) and unknown (1).
        embedding_dim: size of a word vector. Niu 2017: 300 (frozen word2vec).
        units: size of a state.
        tied: whether all children share the same matrices, as in Tai et al.
            2015.
        mean_beside: whether to append the mean vector of a node's words.
        **kwargs: other arguments of `TextEncoder`, and the layer's name and
            dtype.

    A call maps int32 `[n, nodes, 6]` from `TreeRows` to the roots' states,
    float `[n, output_dim]`. `output_dim` is `units`, plus `embedding_dim` if
    `mean_beside` is true.

    Example:
        trees = [tbnets.read_tree("(NP (DT a) (NN dog))")]
        arrays = tbnets.tree_arrays(trees, vocabulary)
        rows = tbnets.TreeRows(arrays).batch([0])  # (1, nodes, 6)
        tbnets.TreeEncoder(vocabulary.size)(rows).shape  # (1, 512)

    Source: Niu et al. 2017, Sec. 3.2.1. Departures: the word vectors are
    learned unless they are assigned and frozen. The paper does not append a
    mean.
    """

    input_rank = 3

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int = 300,
        units: int = 512,
        tied: bool = False,
        mean_beside: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, embedding_dim, **kwargs)
        self.units, self.tied, self.mean_beside = units, tied, mean_beside
        self.tree_lstm = TreeLSTM(
            units, tied, name="tree_lstm", dtype=self.dtype_policy
        )
        self.output_dim = units + embedding_dim * mean_beside

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the embedding table and the LSTM."""
        super().build(input_shape)
        self.tree_lstm.build((None, self.embedding_dim))

    def encode_nodes(
        self, inputs: Array, training: bool = False
    ) -> tuple[tf.Tensor, PackedTrees]:
        """Returns the states of the words and phrases.

        Args:
            inputs: int32 `[n, nodes, 6]`.
            training: whether to apply dropout to the word vectors.

        Returns:
            (states, trees): float `[num_nodes, output_dim]` and `PackedTrees`.
        """
        if not self.built:
            self.build(inputs.shape)
        trees = pack_trees(inputs, noun_phrases=not self.tied)
        words = self.word_vectors(trees.word_ids, training)
        states = self.tree_lstm(words, trees)
        if self.mean_beside:
            states = tf.concat([states, span_means(words, trees)], axis=1)
        return states, trees

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the root's state for each tree."""
        states, trees = self.encode_nodes(inputs, training)
        return tf.gather(states, trees.roots)


def span_means(words, trees):
    """Returns each node's mean word vector, `[num_nodes, dim]`.

    Args:
        words: `[num_words, dim]` in the order of `trees.word_ids`.
        trees: `PackedTrees`.
    """
    num_words, num_trees = tf.shape(words)[0], tf.size(trees.roots)
    owners = trees.trees[:num_words]
    ones = tf.ones_like(owners)
    counts = tf.math.unsorted_segment_sum(ones, owners, num_trees)
    first = tf.cumsum(counts, exclusive=True)
    places = tf.range(num_words) - tf.gather(first, owners)
    # Each tree is summed separately, so that rounding does not depend on the
    # batch.
    width = tf.reduce_max(tf.concat([counts, [0]], axis=0))
    shape = tf.stack([num_trees, width, words.shape[1]])
    places = tf.stack([owners, places], axis=1)
    padded = tf.scatter_nd(places, tf.cast(words, tf.float32), shape)
    # The sum over a span is a difference of two cumulative sums.
    sums = tf.pad(tf.cumsum(padded, axis=1), [[0, 0], [1, 0], [0, 0]])
    start, end = tf.unstack(trees.spans, axis=1)
    upper, lower = (
        tf.gather_nd(sums, tf.stack([trees.trees, place], 1))
        for place in (end, start)
    )
    means = (upper - lower) / tf.cast(end - start, tf.float32)[:, None]
    return tf.cast(means, words.dtype)


@keras.saving.register_keras_serializable(package="tbnets")
class TreeLSTM(ConfiguredLayer):
    r"""Computes a state for every node in constituency trees.

    N(j) are the noun-phrase children of node j, and M(j) are its other
    children::

        \hat h_j = sum_{k in N(j)} h_k,  \bar h_j = sum_{l in M(j)} h_l    (2)
        \hat f_jk = sigma(\hat U_f h_k + b_f)                              (3)
        \bar f_jl = sigma(\bar U_f h_l + b_f)                              (4)
        i_j = sigma(W_i x_j + \hat U_i \hat h_j + \bar U_i \bar h_j + b_i) (5)
        o_j = sigma(W_o x_j + \hat U_o \hat h_j + \bar U_o \bar h_j + b_o) (6)
        u_j = tanh(W_u x_j + \hat U_u \hat h_j + \bar U_u \bar h_j + b_u)
        c_j = i_j u_j + sum_k \hat f_jk c_k + sum_l \bar f_jl c_l          (7)
        h_j = o_j tanh(c_j)                                                (8)

    Only words have an input x, and words have no children. The paper's W_f
    would need both, so the layer has no W_f.

    XLA cannot compile the layer, because the sizes of its steps depend on the
    data (docs/trees.md).

    Args:
        units: size of a state. Tai et al. 2015: 150.
        tied: whether all children share the same matrices, as in a child-sum
            Tree-LSTM.

    A call takes `inputs`, the word vectors `[num_words, dim]` in the order of
    `trees.word_ids`, and `trees`, the `PackedTrees` from `pack_trees`.

    A call returns `[num_nodes, units]`, each node's h, in the order of the
    packed trees. `tf.gather(states, trees.roots)` selects the sentences'
    states.

    Example:
        trees = tbnets.pack_trees(rows)  # rows: from TreeRows
        vectors = tf.gather(table, trees.word_ids)
        states = tbnets.TreeLSTM(512)(vectors, trees)

    Source: Niu et al. 2017, Eq. 2-8; tied: Tai et al. 2015, Eq. 2-8.
    Departures: none. b_f is initialised to 1, as in Keras' LSTM.
    """

    def __init__(self, units: int, tied: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = checked_number("units", units, 1, whole=True)
        self.tied = tied

    def build(
        self, inputs_shape: Sequence[int | None], trees_shape: Any = None
    ) -> None:
        """Creates the weights, with the gates in the order i, o, u."""
        units = self.units
        self.kernel = self.add_weight(
            name="kernel",
            shape=(inputs_shape[-1], 3 * units),
            initializer="glorot_uniform",
        )
        kinds = ("children",) if self.tied else ("noun", "other")
        for part, width in (("gates", 3), ("forget", 1)):
            shape = units, width * units
            matrices = [
                self.add_weight(
                    name=f"{kind}_{part}", shape=shape, initializer="orthogonal"
                )
                for kind in kinds
            ]
            setattr(self, f"noun_{part}", matrices[0])
            setattr(self, f"other_{part}", matrices[-1])
        self.bias = self.add_weight(
            name="bias", shape=(3 * units,), initializer="zeros"
        )
        self.forget_bias = self.add_weight(
            name="forget_bias", shape=(units,), initializer="ones"
        )
        self.built = True

    def call(self, inputs: Array, trees: PackedTrees) -> tf.Tensor:
        """Returns each node's hidden state."""

        def cast(values):
            return tf.cast(values, self.compute_dtype)

        projected = tf.matmul(cast(inputs), cast(self.kernel))
        weights = [cast(getattr(self, name)) for name in WEIGHTS]
        return tree_states(projected, weights, PackedTrees(*trees))
