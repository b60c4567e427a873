"""The states of trees, a level at a time, and their gradient.

All nodes of one level of the whole batch are computed in one step. A step
gathers the states of the level's children, noun phrases and others apart,
multiplies each kind by its matrices, and sums what goes to one parent. The
gradient is written out: it walks the levels down again, and leaves the
gradients of the matrices to one product each at the end. Equations are those
of `tree_lstm.TreeLSTM`.
"""

import tensorflow as tf

WEIGHTS = (
    *("noun_gates", "other_gates", "noun_forget", "other_forget"),
    *("bias", "forget_bias"),
)


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
    d_cells = d_cells + tf.raw_ops.TanhGrad(y=tanh_c, dy=d_hidden * o)
    d_i = tf.raw_ops.SigmoidGrad(y=i, dy=d_cells * u)
    d_o = tf.raw_ops.SigmoidGrad(y=o, dy=d_hidden * tanh_c)
    d_u = tf.raw_ops.TanhGrad(y=u, dy=d_cells * i)
    return tf.concat([d_i, d_o, d_u], axis=1), d_cells


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
        here, above = tf.unstack(bounds[level : level + 2], num=2)
        self.start, with_noun, only_noun, first, noun = tf.unstack(here)
        self.stop, last = above[0], above[3]
        self.num_nodes = self.stop - self.start
        self.num_others = only_noun - self.start
        self.before_noun = with_noun - self.start
        self.num_other_edges = noun - first
        self.others = trees.children[first:noun]
        self.nouns = trees.children[noun:last]
        self.children = trees.children[first:last]
        self.parents = trees.parents[first:last] - self.start
        self.other_parents = self.parents[: self.num_other_edges]
        noun_parents = self.parents[self.num_other_edges :]
        self.noun_parents = noun_parents - self.before_noun

    def joined(self, others, nouns):
        """Adds what stands at parents of others and at those of nouns."""
        first, both = self.before_noun, self.num_others - self.before_noun
        middle = others[first:] + nouns[:both]
        return tf.concat([others[:first], middle, nouns[both:]], axis=0)


def _bounds(trees):
    """Returns `trees.levels` with a row that ends the last level."""
    nodes, edges = trees.ends[0], trees.ends[1]
    end = tf.stack([nodes, nodes, nodes, edges, edges])
    return tf.concat([trees.levels, end[tf.newaxis]], axis=0)


def _arrays(like, count, widths):
    """Returns a `tf.TensorArray` of `[any, width]` for each width."""
    return tuple(
        tf.TensorArray(
            like.dtype,
            count,
            clear_after_read=False,  # A tape may be asked twice.
            infer_shape=False,
            element_shape=(None, width),
        )
        for width in widths
    )


def _written(arrays, level, values):
    """Returns arrays with a value of each at a level."""
    both = zip(arrays, values)
    return tuple(array.write(level, value) for array, value in both)


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
        both = tf.matmul(others, other_forget), tf.matmul(nouns, noun_forget)
        forget = tf.sigmoid(tf.concat(both, axis=0) + b_f)  # Eq. 3 and 4.
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
        values = (i, o, u, forget, noun_sums, other_sums, nouns, others)
        kept = _written(kept, level, values)
        rows = tf.range(at.start, at.stop)[:, tf.newaxis]
        hidden = tf.tensor_scatter_nd_update(hidden, rows, h)
        cells = tf.tensor_scatter_nd_update(cells, rows, c)
        return level + 1, hidden, cells, kept

    _, hidden, cells, kept = tf.while_loop(
        lambda level, *_: level < count,
        step,
        (0, hidden, cells, _arrays(projected, count, [units] * 8)),
    )
    return hidden, (cells, leaf[:3], kept)


def _to_children(at, transposed, gradients):
    """Returns the gradients of the states of a level's children.

    Args:
        at: the `_Level`.
        transposed: the matrices by the order of `WEIGHTS`, transposed.
        gradients: of what the matrices gave: at parents of nouns and of
            others, then of the edges of nouns and of others.
    """
    at_nouns, at_others, nouns, others = map(tf.matmul, gradients, transposed)
    others += tf.gather(at_others, at.other_parents)
    nouns += tf.gather(at_nouns, at.noun_parents)
    return tf.concat([others, nouns], axis=0)


def _backward(upstream, weights, saved, trees):
    """Returns the gradients of `projected` and of the weights."""
    units = weights[-1].shape[0]
    cells, leaf, kept = saved
    num_words = tf.shape(leaf[0])[0]
    bounds = _bounds(trees)
    count = tf.shape(trees.levels)[0]
    # Once for all levels: a product that transposes does so each time.
    transposed = [tf.transpose(matrix) for matrix in weights[:4]]

    def step(level, d_hidden, d_cells, d_bias, found):
        at = _Level(bounds, level, trees)
        here = slice(at.start, at.stop)
        i, o, u, f = (array.read(level) for array in kept[:4])
        d_sums, d_left = _gates_gradient(
            d_hidden[here], d_cells[here], *(i, o, u, cells[here])
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
        found = _written(found, level, values)
        return level - 1, d_hidden, d_cells, d_bias, found

    nothing = tf.zeros_like(upstream), tf.zeros(3 * units, upstream.dtype)
    found = _arrays(upstream, count, [3 * units] * 2 + [units] * 2)
    _, d_hidden, d_cells, d_bias, found = tf.while_loop(
        lambda level, *_: level >= 0,
        step,
        (count - 1, upstream, *nothing, found),
    )
    d_projected, _ = _gates_gradient(
        d_hidden[:num_words], d_cells[:num_words], *leaf, cells[:num_words]
    )
    d_bias += _column_sums(d_projected)
    # What each matrix was multiplied with, and the gradients of its products.
    inputs, found = ([one.concat() for one in x] for x in (kept[4:], found))
    pairs = zip(inputs, found)
    d_matrices = [tf.matmul(*pair, transpose_a=True) for pair in pairs]
    d_forget_bias = _column_sums(found[3]) + _column_sums(found[2])
    return d_projected, *d_matrices, d_bias, d_forget_bias
