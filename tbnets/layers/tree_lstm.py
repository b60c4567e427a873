"""The hierarchical LSTM over constituency trees, a level at a time.

All nodes of one level of the whole batch are computed in one step. A step
gathers the states of the level's children, noun phrases and others apart,
multiplies each kind by its matrices, and sums what goes to one parent. The
gradient is written out below: it walks the levels down again, and leaves the
gradients of the matrices to one product each at the end.
"""

import keras
import tensorflow as tf

from tbnets.text.packed_trees import PackedTrees

WEIGHTS = (
    "noun_gates",
    "other_gates",
    "noun_forget",
    "other_forget",
    "bias",
    "forget_bias",
)


@keras.saving.register_keras_serializable(package="tbnets")
class TreeLSTM(keras.layers.Layer):
    r"""Computes the state of every node of constituency trees.

    With N(j) the children of node j that are noun phrases, M(j) the others:

        \hat h_j = sum_{k in N(j)} h_k,  \bar h_j = sum_{l in M(j)} h_l    (2)
        \hat f_jk = sigma(\hat U_f h_k + b_f)                              (3)
        \bar f_jl = sigma(\bar U_f h_l + b_f)                              (4)
        i_j = sigma(W_i x_j + \hat U_i \hat h_j + \bar U_i \bar h_j + b_i) (5)
        o_j = sigma(W_o x_j + \hat U_o \hat h_j + \bar U_o \bar h_j + b_o) (6)
        u_j = tanh(W_u x_j + \hat U_u \hat h_j + \bar U_u \bar h_j + b_u)
        c_j = i_j u_j + sum_k \hat f_jk c_k + sum_l \bar f_jl c_l          (7)
        h_j = o_j tanh(c_j)                                                (8)

    Only words have an x, and words have no children, so that W_f of the
    paper, which is read where both meet, is no weight of the layer.

    XLA does not compile the layer, as the sizes of its steps are data; see
    docs/trees.md.

    Args:
        units: size of a state. Tai et al. 2015: 150.
        tied: whether noun phrases and other children share their matrices;
            the layer is then the child-sum Tree-LSTM.

    Call with:
        inputs: `[num_words, dim]` vectors of the words of all trees, in the
            order of `trees.word_ids`.
        trees: `PackedTrees`, from `text.packed_trees.pack_trees`.

    Returns from a call: `[num_nodes, units]`, h of each node, in the order
    of the packed trees: `tf.gather(states, trees.roots)` are the sentences,
    `tf.boolean_mask(states, trees.is_noun_phrase > 0)` the noun phrases, and
    `trees.trees` and `trees.spans` tell which caption and words a node is.

    Example:
        trees = pack_trees(rows)  # int32 [captions, nodes, 6], see TreeRows
        vectors = tf.gather(table, trees.word_ids)
        states = tbnets.TreeLSTM(512)(vectors, trees)

    Source: Niu et al. 2017, Eq. 2-8; tied: Tai et al. 2015, Eq. 2-8.
    Departures: none; b_f begins with 1, as in the LSTM of Keras, which the
    papers do not tell.
    """

    def __init__(self, units, tied=False, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(
                f"`units` must be at least 1. Received: units={units}. "
                "Change --rnn_units."
            )
        self.units = units
        self.tied = tied

    def build(self, inputs_shape, trees_shape=None):
        """Creates the matrices; gates stand side by side as i, o, u."""
        units = self.units
        self.kernel = self.add_weight(
            name="kernel",
            shape=(inputs_shape[-1], 3 * units),
            initializer="glorot_uniform",
        )
        kinds = ("children",) if self.tied else ("noun", "other")
        made = {
            (kind, part): self.add_weight(
                name=f"{kind}_{part}",
                shape=(units, width * units),
                initializer="orthogonal",
            )
            for part, width in (("gates", 3), ("forget", 1))
            for kind in kinds
        }
        self.noun_gates = made[kinds[0], "gates"]
        self.other_gates = made[kinds[-1], "gates"]
        self.noun_forget = made[kinds[0], "forget"]
        self.other_forget = made[kinds[-1], "forget"]
        self.bias = self.add_weight(
            name="bias", shape=(3 * units,), initializer="zeros"
        )
        self.forget_bias = self.add_weight(
            name="forget_bias", shape=(units,), initializer="ones"
        )
        self.built = True

    def call(self, inputs, trees):
        """Returns the state of every node."""
        trees = PackedTrees(*trees)
        kernel = tf.cast(self.kernel, self.compute_dtype)
        inputs = tf.cast(inputs, self.compute_dtype)
        weights = [
            tf.cast(getattr(self, name), self.compute_dtype) for name in WEIGHTS
        ]
        return tree_states(tf.matmul(inputs, kernel), weights, trees)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "tied": self.tied,
        }


def tree_states(projected, weights, trees):
    """Returns the states of all nodes; its gradient is written out.

    Args:
        projected: `[num_words, 3 * units]` W x of the words, gates i, o, u.
        weights: tensors by the order of `WEIGHTS`.
        trees: `PackedTrees`.

    Returns:
        `[num_nodes, units]`.
    """

    @tf.custom_gradient
    def run(projected, *weights):
        hidden, kept = _forward(projected, weights, trees)

        def gradient(upstream):
            # That of a gather, as of the roots alone, comes in slices.
            upstream = tf.convert_to_tensor(upstream)
            return _backward(upstream, weights, kept, trees)

        return hidden, gradient

    return run(projected, *weights)


def _gates(sums, cells):
    """Returns i, o, u, c and h of nodes (Eq. 5-8).

    Args:
        sums: `[n, 3 * units]` what the gates i, o, u are functions of.
        cells: `[n, units]` what the children leave of their cells, or 0.
    """
    i, o, u = tf.split(sums, 3, axis=1)
    i, o, u = tf.sigmoid(i), tf.sigmoid(o), tf.tanh(u)
    c = i * u + cells
    return i, o, u, c, o * tf.tanh(c)


def _gates_gradient(d_hidden, d_cells, i, o, u, c):
    """Returns the gradients of the sums and cells that `_gates` took."""
    tanh_c = tf.tanh(c)
    d_cells = d_cells + _tanh_gradient(tanh_c, d_hidden * o)
    d_i = _sigmoid_gradient(i, d_cells * u)
    d_o = _sigmoid_gradient(o, d_hidden * tanh_c)
    d_u = _tanh_gradient(u, d_cells * i)
    return tf.concat([d_i, d_o, d_u], axis=1), d_cells


def _sigmoid_gradient(y, upstream):
    """Returns the gradient of z where y is the sigmoid of z."""
    return tf.raw_ops.SigmoidGrad(y=y, dy=upstream)


def _tanh_gradient(y, upstream):
    """Returns the gradient of z where y is the tanh of z."""
    return tf.raw_ops.TanhGrad(y=y, dy=upstream)


def _column_sums(matrix):
    """Returns the sum of the rows; a product is the faster way on a CPU."""
    ones = tf.ones([1, tf.shape(matrix)[0]], matrix.dtype)
    return tf.matmul(ones, matrix)[0]


class _Level:
    """Where the nodes and edges of one level stand.

    Nodes of a level are ordered by their children: others alone, both kinds,
    noun phrases alone. So the parents of either kind stand side by side.
    """

    def __init__(self, bounds, level, trees):
        self.start, self.with_noun, self.only_noun = (
            bounds[level, column] for column in range(3)
        )
        self.stop = bounds[level + 1, 0]
        first, noun, last = (
            bounds[level, 3],
            bounds[level, 4],
            bounds[level + 1, 3],
        )
        self.num_nodes = self.stop - self.start
        self.num_others = self.only_noun - self.start
        self.before_noun = self.with_noun - self.start
        self.num_other_edges = noun - first
        self.others = trees.children[first:noun]
        self.nouns = trees.children[noun:last]
        self.children = trees.children[first:last]
        self.parents = trees.parents[first:last] - self.start
        self.other_parents = self.parents[: self.num_other_edges]
        self.noun_parents = (
            self.parents[self.num_other_edges :] - self.before_noun
        )

    def joined(self, others, nouns):
        """Adds what stands at parents of others and at those of nouns."""
        both = self.num_others - self.before_noun
        return tf.concat(
            [
                others[: self.before_noun],
                others[self.before_noun :] + nouns[:both],
                nouns[both:],
            ],
            axis=0,
        )


def _bounds(trees):
    """Returns `trees.levels` with a row that ends the last level."""
    nodes, edges = trees.ends[0], trees.ends[1]
    end = tf.stack([nodes, nodes, nodes, edges, edges])
    return tf.concat([trees.levels, end[tf.newaxis]], axis=0)


def _arrays(like, count, widths):
    """Returns a `tf.TensorArray` of `[any, width]` for each width."""
    return tuple(
        tf.TensorArray(
            like.dtype, count, infer_shape=False, element_shape=(None, width)
        )
        for width in widths
    )


def _put(buffer, rows, values):
    """Returns a buffer with other rows."""
    return tf.tensor_scatter_nd_update(buffer, rows[:, tf.newaxis], values)


def _forward(projected, weights, trees):
    """Returns h of all nodes, and what the gradient needs."""
    noun_gates, other_gates, noun_forget, other_forget, bias, b_f = weights
    units = b_f.shape[0]
    leaf = _gates(projected + bias, 0)
    above = trees.ends[0] - tf.shape(projected)[0]
    cells, hidden = (tf.pad(part, [[0, above], [0, 0]]) for part in leaf[3:])
    bounds = _bounds(trees)
    count = tf.shape(trees.levels)[0]

    def step(level, hidden, cells, kept):
        at = _Level(bounds, level, trees)
        others = tf.gather(hidden, at.others)
        nouns = tf.gather(hidden, at.nouns)
        forget = tf.concat(
            [tf.matmul(others, other_forget), tf.matmul(nouns, noun_forget)],
            axis=0,
        )
        forget = tf.sigmoid(forget + b_f)  # Eq. 3 and 4.
        left = tf.math.unsorted_segment_sum(
            forget * tf.gather(cells, at.children), at.parents, at.num_nodes
        )
        other_sums = tf.math.unsorted_segment_sum(  # Eq. 2.
            others, at.other_parents, at.num_others
        )
        noun_sums = tf.math.unsorted_segment_sum(
            nouns, at.noun_parents, at.num_nodes - at.before_noun
        )
        sums = at.joined(
            tf.matmul(other_sums, other_gates), tf.matmul(noun_sums, noun_gates)
        )
        i, o, u, c, h = _gates(sums + bias, left)
        rows = tf.range(at.start, at.stop)
        values = (i, o, u, forget, others, nouns, other_sums, noun_sums)
        kept = tuple(
            array.write(level, value) for array, value in zip(kept, values)
        )
        return level + 1, _put(hidden, rows, h), _put(cells, rows, c), kept

    _, hidden, cells, kept = tf.while_loop(
        lambda level, *_: level < count,
        step,
        (0, hidden, cells, _arrays(projected, count, [units] * 8)),
    )
    return hidden, (cells, leaf[:3], kept)


def _backward(upstream, weights, saved, trees):
    """Returns the gradients of `projected` and of the weights."""
    noun_gates, other_gates, noun_forget, other_forget, _, b_f = weights
    units = b_f.shape[0]
    cells, leaf, kept = saved
    read, joined = kept[:4], [array.concat() for array in kept[4:]]
    num_words = tf.shape(leaf[0])[0]
    bounds = _bounds(trees)
    count = tf.shape(trees.levels)[0]

    def step(level, d_hidden, d_cells, d_bias, found):
        at = _Level(bounds, level, trees)
        here = slice(at.start, at.stop)
        i, o, u, f = (array.read(level) for array in read)
        d_sums, d_left = _gates_gradient(
            d_hidden[here],
            d_cells[here],
            *(i, o, u, cells[here]),
        )
        d_forget = tf.gather(d_left, at.parents)
        d_put = d_forget * f
        d_forget = _sigmoid_gradient(
            f, d_forget * tf.gather(cells, at.children)
        )
        other_part, noun_part = (
            d_sums[: at.num_others],
            d_sums[at.before_noun :],
        )
        d_others, d_nouns = (
            d_forget[: at.num_other_edges],
            d_forget[at.num_other_edges :],
        )
        to_others = tf.matmul(d_others, other_forget, transpose_b=True)
        to_others += tf.gather(
            tf.matmul(other_part, other_gates, transpose_b=True),
            at.other_parents,
        )
        to_nouns = tf.matmul(d_nouns, noun_forget, transpose_b=True)
        to_nouns += tf.gather(
            tf.matmul(noun_part, noun_gates, transpose_b=True),
            at.noun_parents,
        )
        rows = at.children[:, tf.newaxis]
        d_hidden = tf.tensor_scatter_nd_add(
            d_hidden, rows, tf.concat([to_others, to_nouns], axis=0)
        )
        d_cells = tf.tensor_scatter_nd_add(d_cells, rows, d_put)
        d_bias += _column_sums(d_sums)
        values = (other_part, noun_part, d_others, d_nouns)
        found = tuple(
            array.write(level, value) for array, value in zip(found, values)
        )
        return level - 1, d_hidden, d_cells, d_bias, found

    widths = [3 * units] * 2 + [units] * 2
    _, d_hidden, d_cells, d_bias, found = tf.while_loop(
        lambda level, *_: level >= 0,
        step,
        (
            count - 1,
            upstream,
            tf.zeros_like(upstream),
            tf.zeros(3 * units, upstream.dtype),
            _arrays(upstream, count, widths),
        ),
    )
    other_part, noun_part, d_others, d_nouns = (
        array.concat() for array in found
    )
    d_projected, _ = _gates_gradient(
        d_hidden[:num_words], d_cells[:num_words], *leaf, cells[:num_words]
    )
    others, nouns, other_sums, noun_sums = joined
    products = (
        (noun_sums, noun_part),
        (other_sums, other_part),
        (nouns, d_nouns),
        (others, d_others),
    )
    return (
        d_projected,
        *(tf.matmul(a, b, transpose_a=True) for a, b in products),
        _column_sums(d_projected) + d_bias,
        _column_sums(d_others) + _column_sums(d_nouns),
    )
