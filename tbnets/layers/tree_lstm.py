"""Encodes constituency trees with the hierarchical LSTM."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.text_encoders import TextEncoder
from tbnets.text.packed_trees import PackedTrees, pack_trees

# The states of all trees in a batch are computed level by level. A loop step
# multiplies the states of a level's children by their matrices and sums over
# each parent's children. The custom gradient visits the levels in reverse.
# A GPU spends most of the time on launching the ops of each step. Therefore all
# values that do not depend on the previous step are computed once for all
# levels: indices, slopes of the gates, and gradients of the matrices. The
# docstring of `TreeLSTM` contains the equations.

WEIGHTS = (
    "noun_gates",
    "other_gates",
    "noun_forget",
    "other_forget",
    "bias",
    "forget_bias",
)


def tree_states(projected, weights, trees):
    """Computes a state for every node, with a custom gradient.

    `projected`, `[num_words, 3 * units]`, contains each word's matrix product
    W x for the gates i, o and u. The weights are in the order of `WEIGHTS`.
    """
    levels = _Levels(trees)

    @tf.custom_gradient
    def run(projected, *weights):
        hidden, *saved = _forward(projected, weights, levels)

        def gradient(upstream):
            # The gather of the roots has `IndexedSlices` as its gradient.
            upstream = tf.convert_to_tensor(upstream)
            return _backward(upstream, weights, hidden, saved, levels)

        return tf.gather(hidden, levels.places), gradient

    return run(projected, *weights)


def _gates(sums):
    i, o, u = tf.split(sums, 3, axis=1)
    return tf.sigmoid(i), tf.sigmoid(o), tf.tanh(u)


def _states(i, o, u, cells):
    c = i * u + cells
    return c, o * tf.tanh(c)


def _column_sums(matrix):
    """Sums the rows with a matrix product, which is faster on a CPU."""
    ones = tf.ones([1, tf.shape(matrix)[0]], matrix.dtype)
    return tf.matmul(ones, matrix)[0]


def _split(values, sizes):
    return tf.split(values, sizes, num=2)


def _pieces(values, sizes):
    array = _array(values.dtype, tf.size(sizes), ())
    return array.split(values, sizes)


def _array(dtype, size, width):
    return tf.TensorArray(
        dtype,
        size,
        clear_after_read=False,  # A persistent tape reads twice.
        infer_shape=False,
        element_shape=(None, *width),
    )


class _Level(NamedTuple):
    """The positions and numbers of a level's nodes and edges, as pairs."""

    # `tf.slice` and `tf.split` take the pairs without further ops. A begin of 0
    # and a size of -1 select all columns.
    #
    # Within a level, nodes without noun-phrase children are first, then nodes
    # with both kinds of children, then nodes with only noun-phrase children. A
    # parent has one slot for each kind of its children. In a level, the slots
    # for other children are first.

    counts: tf.Tensor  # The numbers of nodes and slots.
    nodes: tf.Tensor  # The index of the first node, and 0.
    phrases: tf.Tensor  # The index of the first node without words, and 0.
    num_nodes: tf.Tensor  # The number of nodes, and -1.
    edges: tf.Tensor  # The index of the first edge, and 0.
    num_edges: tf.Tensor  # The number of edges, and -1.
    edges_by_kind: tf.Tensor  # Edges to other children and to noun phrases.
    slots_by_kind: tf.Tensor  # Slots for other children and noun phrases.
    others: tf.Tensor  # Nodes with only other children, and with both kinds.
    nouns: tf.Tensor  # Nodes with both kinds, and with only noun phrases.
    num_others: tf.Tensor  # The number of nodes with other children, and -1.
    first_noun: tf.Tensor  # The first node with a noun-phrase child, and 0.

    def joined(self, at_others, at_nouns):
        """Adds, for each parent, the values of both kinds of children."""
        others, both_others = _split(at_others, self.others)
        both_nouns, nouns = _split(at_nouns, self.nouns)
        return tf.concat([others, both_others + both_nouns, nouns], axis=0)


class _Levels:
    # children: each edge's child row.
    # order: the children, followed by the roots.
    # parents: each edge's parent row.
    # places: each node's index in `order`.
    # is_noun: 1 for edges to noun phrases, 0 for other edges.
    # local_parents, slots, targets: `tf.TensorArray`s with, for each level, the
    #     edges' parents, the edges' slots and the nodes' places.

    def __init__(self, trees):
        nodes, edges = tf.unstack(trees.ends, num=2)
        last = tf.stack([nodes, nodes, nodes, edges, edges])
        ends = tf.concat([trees.levels[1:], last[tf.newaxis]], axis=0)
        start, with_noun, only_noun, first, noun = tf.unstack(
            trees.levels, num=5, axis=1
        )
        sizes, num_edges = ends[:, 0] - start, ends[:, 3] - first
        before, others = with_noun - start, only_noun - start
        num_nouns, other_edges = sizes - before, noun - first
        self.num_words, self.num_edges = start[0], edges
        self.count = tf.size(sizes)
        zero = tf.zeros_like(sizes)
        pairs = _Level(
            counts=(sizes, others + num_nouns),
            nodes=(start, zero),
            phrases=(start - self.num_words, zero),
            num_nodes=(sizes, zero - 1),
            edges=(first, zero),
            num_edges=(num_edges, zero - 1),
            edges_by_kind=(other_edges, num_edges - other_edges),
            slots_by_kind=(others, num_nouns),
            others=(before, others - before),
            nouns=(others - before, sizes - others),
            num_others=(others, zero - 1),
            first_noun=(before, zero),
        )
        self._table = tf.transpose(tf.stack(pairs), [2, 0, 1])
        self.children, self.parents = trees.children, trees.parents
        roots = tf.boolean_mask(trees.roots, trees.roots >= 0)
        self.order = tf.concat([trees.children, roots], axis=0)
        self.places = tf.math.invert_permutation(self.order)
        starts, nouns, shifts = (
            tf.repeat(values, num_edges)
            for values in (start, noun, others - before)
        )
        parents = trees.parents - starts
        self.is_noun = tf.cast(tf.range(edges) >= nouns, tf.int32)
        self.local_parents = _pieces(parents, num_edges)
        self.slots = _pieces(parents + self.is_noun * shifts, num_edges)
        self.targets = _pieces(self.places[self.num_words :], sizes)

    def at(self, level):
        return _Level(*tf.unstack(self._table[level], num=len(_Level._fields)))


def _forward(projected, weights, levels):
    """Returns (hidden, cells, word_gates, sums, forget).

    `hidden` and `cells` are in the order `levels.order`. `sums` and `forget`
    are `tf.TensorArray`s of the phrases' sums and of the edges' forget gates.
    """
    noun_gates, other_gates, noun_forget, other_forget, bias, b_f = weights
    units = b_f.shape[0]
    word_gates = _gates(projected + bias)
    # The rows of phrases are overwritten before they are read.
    words = tf.minimum(levels.order, levels.num_words - 1)
    cells, hidden = (
        tf.gather(state, words) for state in _states(*word_gates, 0)
    )

    def step(level, hidden, cells, saved_sums, saved_forget):
        at = levels.at(level)
        num_nodes, num_slots = tf.unstack(at.counts)
        h = tf.slice(hidden, at.edges, at.num_edges)
        products = map(
            tf.matmul, _split(h, at.edges_by_kind), (other_forget, noun_forget)
        )
        forget = tf.sigmoid(tf.concat([*products], axis=0) + b_f)  # Eq. 3, 4.
        forgotten = tf.math.unsorted_segment_sum(
            forget * tf.slice(cells, at.edges, at.num_edges),
            levels.local_parents.read(level),
            num_nodes,
        )
        child_sums = tf.math.unsorted_segment_sum(  # Eq. 2.
            h, levels.slots.read(level), num_slots
        )
        at_others, at_nouns = map(
            tf.matmul,
            _split(child_sums, at.slots_by_kind),
            (other_gates, noun_gates),
        )
        sums = at.joined(at_others, at_nouns) + bias
        c, h = _states(*_gates(sums), forgotten)
        rows = levels.targets.read(level)[:, tf.newaxis]
        return (
            level + 1,
            tf.tensor_scatter_nd_update(hidden, rows, h),
            tf.tensor_scatter_nd_update(cells, rows, c),
            saved_sums.write(level, sums),
            saved_forget.write(level, forget),
        )

    arrays = (
        _array(projected.dtype, levels.count, (width,))
        for width in (3 * units, units)
    )
    _, hidden, cells, sums, forget = tf.while_loop(
        lambda level, *_: level < levels.count,
        step,
        (0, hidden, cells, *arrays),
    )
    return hidden, cells, word_gates, sums, forget


def _slopes(gates, cells):
    """Returns dh/dc and, side by side, dc/di, dh/do and dc/du.

    i, o and u are the sums before the gates' activations.
    """
    i, o, u = gates
    tanh_c = tf.tanh(cells)
    slopes = (
        tf.raw_ops.SigmoidGrad(y=i, dy=u),
        tf.raw_ops.SigmoidGrad(y=o, dy=tanh_c),
        tf.raw_ops.TanhGrad(y=u, dy=i),
    )
    return tf.raw_ops.TanhGrad(y=tanh_c, dy=o), tf.concat(slopes, axis=1)


def _gates_gradient(d_hidden, d_cells, dh_dc, slopes):
    d_cells = d_cells + d_hidden * dh_dc
    d_states = tf.concat([d_cells, d_hidden, d_cells], axis=1)
    return d_states * slopes, d_cells


def _to_children(gradients, transposed, slots):
    """Returns the gradients of children's states; inputs as in `WEIGHTS`."""
    at_nouns, at_others, d_noun, d_other = map(tf.matmul, gradients, transposed)
    at_slots = tf.concat([at_others, at_nouns], axis=0)
    return tf.concat([d_other, d_noun], axis=0) + tf.gather(at_slots, slots)


def _backward(upstream, weights, hidden, saved, levels):
    units = weights[-1].shape[0]
    # Transposed once here; `transpose_b` would transpose at every level.
    transposed = [tf.transpose(matrix) for matrix in weights[:4]]
    cells, word_gates, sums, forget = saved
    words, num_words = slice(levels.num_words), levels.num_words
    node_cells = tf.gather(cells, levels.places)
    dh_dc, slopes = _slopes(_gates(sums.concat()), node_cells[num_words:])
    forget = forget.concat()
    edge_cells, children = cells[: levels.num_edges], levels.children[:, None]
    forget_slopes = tf.raw_ops.SigmoidGrad(y=forget, dy=edge_cells)

    def step(level, d_hidden, d_cells, arrays):
        at = levels.at(level)
        d_sums, d_left = _gates_gradient(
            tf.slice(d_hidden, at.nodes, at.num_nodes),
            tf.slice(d_cells, at.nodes, at.num_nodes),
            tf.slice(dh_dc, at.phrases, at.num_nodes),
            tf.slice(slopes, at.phrases, at.num_nodes),
        )
        d_left = tf.gather(d_left, levels.local_parents.read(level))
        d_forget = d_left * tf.slice(forget_slopes, at.edges, at.num_edges)
        d_other, d_noun = _split(d_forget, at.edges_by_kind)
        at_nouns = tf.slice(d_sums, at.first_noun, [-1, -1])
        at_others = tf.slice(d_sums, [0, 0], at.num_others)
        values = at_nouns, at_others, d_noun, d_other
        d_children = _to_children(values, transposed, levels.slots.read(level))
        rows = tf.slice(children, at.edges, at.num_edges)
        d_left *= tf.slice(forget, at.edges, at.num_edges)
        return (
            level - 1,
            tf.tensor_scatter_nd_add(d_hidden, rows, d_children),
            tf.tensor_scatter_nd_update(d_cells, rows, d_left),
            [array.write(level, one) for array, one in zip(arrays, values)],
        )

    arrays = [
        _array(upstream.dtype, levels.count, (width,))
        for width in (3 * units, 3 * units, units, units)
    ]
    _, d_hidden, d_cells, arrays = tf.while_loop(
        lambda level, *_: level >= 0,
        step,
        (levels.count - 1, upstream, tf.zeros_like(upstream), arrays),
    )
    d_projected, _ = _gates_gradient(
        *(d_hidden[words], d_cells[words]),
        *_slopes(word_gates, node_cells[words]),
    )
    gradients = [array.concat() for array in arrays]
    d_weights = _weight_gradients(hidden, gradients, levels)
    *d_matrices, d_bias, d_forget_bias = d_weights
    d_bias += _column_sums(d_projected)
    return d_projected, *d_matrices, d_bias, d_forget_bias


def _weight_gradients(hidden, gradients, levels):
    d_noun_gates, d_other_gates, d_noun_forget, d_other_forget = gradients
    edges = tf.range(levels.num_edges)
    others, nouns = tf.dynamic_partition(edges, levels.is_noun, 2)
    h_others, h_nouns = tf.gather(hidden, others), tf.gather(hidden, nouns)
    other_rows, other_slots = tf.unique(tf.gather(levels.parents, others))
    noun_rows, noun_slots = tf.unique(tf.gather(levels.parents, nouns))
    inputs = (
        tf.math.unsorted_segment_sum(h_nouns, noun_slots, tf.size(noun_rows)),
        tf.math.unsorted_segment_sum(
            h_others, other_slots, tf.size(other_rows)
        ),
        *(h_nouns, h_others),
    )
    # The bias counts a node with both kinds of children only once.
    ones = tf.ones_like(other_rows)[:, None]
    shape = tf.stack([tf.size(levels.places), 1])
    has_others = tf.gather(
        tf.scatter_nd(other_rows[:, None], ones, shape), noun_rows
    )
    only_nouns = tf.cast(1 - has_others, hidden.dtype)
    pairs = zip(inputs, gradients)
    return (
        *(tf.matmul(*pair, transpose_a=True) for pair in pairs),
        _column_sums(d_other_gates)
        + tf.matmul(only_nouns, d_noun_gates, transpose_a=True)[0],
        _column_sums(d_other_forget) + _column_sums(d_noun_forget),
    )


@keras.saving.register_keras_serializable(package="tbnets")
class TreeEncoder(TextEncoder):
    """Encodes captions along their parse trees with the hierarchical LSTM.

    Args:
        vocabulary_size: number of word ids.
        embedding_dim: size of a word vector. Niu 2017 use frozen word2vec, 300.
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
        """Returns the states of all words and phrases.

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

    `words` is `[num_words, dim]`, in the order of `trees.word_ids`.
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
        units: size of a state. Tai et al. 2015 use 150.
        tied: whether all children share the same matrices, as in a child-sum
            Tree-LSTM.

    A call takes the word vectors `[num_words, dim]`, in the order of
    `trees.word_ids`, and the `PackedTrees`. It returns each node's h,
    `[num_nodes, units]`. `tf.gather(states, trees.roots)` selects the states
    of the sentences.

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
