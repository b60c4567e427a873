"""Sums the hinge losses of the triplets in a batch, without listing them.

An anchor's hardest negatives are selected once. Its positives are processed in
rounds, a few per round. All shapes are static, so XLA can compile the loss.
"""

import tensorflow as tf

from tbnets.losses import distances, miners
from tbnets.losses.presets import CROSS_TERMS

# Backpropagation from similarities to embeddings.
#
# Let G be the gradient with respect to the similarities X Y^T. The gradient
# with respect to X is G Y, and with respect to Y it is G^T X. G is zero except
# for the selected pairs. `gradient="dense"` builds the matrix G.
# `gradient="sparse"` stores G as compressed sparse rows, so its cost grows with
# the number of pairs; but XLA cannot compile it, and accelerators multiply
# dense matrices faster.


def _pair_gradients(sides, pairs, values, transposed=False):
    """Returns the gradients with respect to `sides`, using sparse products.

    Args:
        sides: the anchors and the candidates, each float32 `[n, dim]`, or a
            single array if the anchors are also the candidates.
        pairs: int32 `[n, 2]`, anchor and candidate, sorted by anchor.
        values: float32 `[n]`, gradient with respect to each pair's similarity.
        transposed: Whether anchors and candidates are swapped in `sides`.
    """
    anchors, candidates = sides[0], sides[-1]
    if transposed:
        anchors, candidates = candidates, anchors
    sizes = tf.shape(anchors)[0], tf.shape(candidates)[0]
    slopes = tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.cast(pairs, tf.int64),
        values=values,
        dense_shape=tf.cast(tf.stack(sizes), tf.int64),
    )
    gradients = [_product(slopes, candidates)]
    # Transposing first is five times faster than the product's own transpose
    # option.
    slopes = tf.raw_ops.SparseMatrixTranspose(input=slopes, type=tf.float32)
    gradients.append(_product(slopes, anchors))
    if len(sides) == 1:
        return [gradients[0] + gradients[1]]
    return gradients[::-1] if transposed else gradients


def _pair_matrix(sides, pairs, values, transposed=False):
    """Returns `[matrix]`, the dense gradient with respect to similarities."""
    pairs = pairs[:, ::-1] if transposed else pairs
    sizes = [tf.shape(sides[i])[0] for i in (0, -1)]
    num_rows, num_columns = tf.unstack(tf.cast(sizes, tf.int64))
    rows, columns = tf.unstack(tf.cast(pairs, tf.int64), axis=1)
    # A segment sum takes a third of the time of a scatter.
    sums = tf.math.unsorted_segment_sum(
        values, rows * num_columns + columns, num_rows * num_columns
    )
    return [tf.reshape(sums, [num_rows, num_columns])]


def _matrix_gradients(sides, slopes):
    """Returns the gradients with respect to `sides` from the dense gradient."""
    rows, columns = sides[0], sides[-1]
    if len(sides) == 1:
        return [tf.matmul(slopes + tf.transpose(slopes), rows)]
    transposed = tf.matmul(slopes, rows, transpose_a=True)
    return [tf.matmul(slopes, columns), transposed]


def _product(sparse, dense):
    return tf.raw_ops.SparseMatrixMatMul(a=sparse, b=dense)


# Maximum numbers of an anchor's positives and triplets in one round.
_ROUND = 5
_FEW_TRIPLETS = 512


def sums(views, num_negatives, margin, distance, gradient="dense"):
    """Sums the hinge losses for each view, and counts its triplets.

    Args:
        views: Dict from term to `View`. If the terms `image_to_text` and
            `text_to_image` both rank whole sets, their masks must be transposes
            of each other.
        num_negatives: Number of hardest negatives kept per anchor, or None for
            all.
        margin: Required gap, in units of the distance.
        distance: A value of `distances.DISTANCES`.
        gradient: "dense" or "sparse", as in `TripletLoss`.

    Returns:
        Dict from term to float32 `[3]`: the sum of the hinge losses, the number
        of triplets, and the number of triplets with a loss above 0.
    """
    groups = [[term] for term in views]
    if all(term in views for term in CROSS_TERMS):
        to_text, to_image = (views[term] for term in CROSS_TERMS)
        if (
            to_text.anchors is to_image.candidates
            and to_text.candidates is to_image.anchors
        ):
            groups = [
                CROSS_TERMS,
                *([t] for t in views if t not in CROSS_TERMS),
            ]
    sums, options = {}, (num_negatives, margin, distance, gradient == "sparse")
    for terms in groups:
        group = [views[term] for term in terms]
        sums.update(zip(terms, _sums_of_matrix(group, *options)))
    return sums


def _sums_of_matrix(views, num_negatives, margin, distance, sparse):
    """Returns `[hinge sum, triplets, active triplets]` for each view."""

    @tf.custom_gradient
    def run(*sides):
        matrix = distances.similarities(sides[0], sides[-1])
        triplets = _Triplets(views, matrix, num_negatives, margin, distance)

        def gradient(upstream):
            return triplets.gradient(upstream, sides, sparse)

        return triplets.sums(), gradient

    # Padding the embeddings costs less than padding the matrix.
    anchors, candidates = views[0].anchors, views[0].candidates
    ranks_itself = anchors is candidates
    sides = [anchors] if ranks_itself else [anchors, candidates]
    sides = [miners.padded(rows, 0.0, [0]) for rows in sides]
    return tf.unstack(run(*sides), len(views))


class _Triplets:
    """The triplets whose anchors are rows or columns of a similarity matrix."""

    def __init__(self, views, matrix, num_negatives, margin, distance):
        self.views, self.matrix = views, matrix
        self.margin, self.distance = margin, distance
        excluded = miners.padded(views[0].not_negative, True)
        masked = tf.where(excluded, float("-inf"), matrix)
        # Similarities and columns of the anchors' negatives.
        if num_negatives is None:
            self.size, self.positions = 1, None
            self.negatives = [masked, tf.transpose(masked)][: len(views)]
        else:
            self.size = max(1, min(_ROUND, _FEW_TRIPLETS // num_negatives))
            largest = [
                miners.largest(masked, num_negatives, transposed)
                for transposed in (False, True)[: len(views)]
            ]
            self.negatives, columns = zip(*largest)
            self.positions = [_pairs(each) for each in columns]
        # Positives of every row, one more than a round processes.
        self.first = miners.first_positives(views[0].positive, self.size + 1)

    def _split(self, columns, match):
        pairs = _pairs(columns[:, : self.size])
        return pairs, tf.reshape(match[:, : self.size], [-1])

    def _later_rounds(self, visit, state):
        """Calls `visit(pairs, match, state)` for the remaining positives."""

        def step(unseen, columns, match, state):
            # Column 0 of a row without positives serves as padding.
            processed, _ = self._split(columns, match)
            absent = tf.zeros(tf.shape(processed)[:1], tf.bool)
            unseen = tf.tensor_scatter_nd_update(unseen, processed, absent)
            positives = miners.first_positives(unseen, self.size + 1)
            return unseen, *positives, visit(*self._split(*positives), state)

        def has_more(unseen, columns, match, state):
            return tf.reduce_any(match[:, self.size :])

        unseen = self.views[0].positive
        return tf.while_loop(has_more, step, (unseen, *self.first, state))[-1]

    def _sums(self, positives, negatives, pairs, match):
        bounds = self.margin + self.distance(positives)
        bounds = tf.where(match, bounds, float("-inf"))
        sums = []
        for transposed, view in enumerate(self.views):
            anchors = pairs[:, transposed]
            # A missing negative has similarity -inf and distance inf.
            counts = tf.not_equal(negatives[transposed], float("-inf"))
            counts = tf.reduce_sum(tf.cast(counts, tf.float32), axis=1)
            num_triplets = tf.where(match, tf.gather(counts, anchors), 0.0)
            to_negatives = tf.gather(
                self.distance(negatives[transposed]), anchors
            )
            hinges = bounds[:, None] - to_negatives
            # `hinges <= 0` is False for NaN, so a NaN reaches the loss. A
            # negated comparison would be rewritten by the graph optimizer.
            idle = hinges <= 0.0
            losses = tf.where(idle, 0.0, hinges)
            if view.weights is not None:
                losses *= tf.gather(view.weights, anchors)[:, None]
            parts = losses, num_triplets, tf.where(idle, 0.0, 1.0)
            sums.append(tf.stack([tf.reduce_sum(part) for part in parts]))
        return tf.stack(sums)

    def sums(self):
        """Returns float32 `[views, 3]`, the sums over all positives."""

        def visit(pairs, match, sums):
            positives = tf.gather_nd(self.matrix, pairs)
            return sums + self._sums(positives, self.negatives, pairs, match)

        first = visit(*self._split(*self.first), 0.0)
        return self._later_rounds(visit, first)

    def gradient(self, upstream, sides, sparse):
        """Returns the gradients of `sums` with respect to `sides`."""
        is_few = self.positions is not None and sparse
        of_pairs = _pair_gradients if is_few else _pair_matrix

        def visit(pairs, match):
            """Returns gradients for the positives `pairs` and all negatives."""
            picked = tf.gather_nd(self.matrix, pairs), *self.negatives
            picked = [tf.identity(x) for x in picked]
            with tf.GradientTape() as tape:
                tape.watch(picked)
                sums = self._sums(picked[0], picked[1:], pairs, match)
            by_picked = tape.gradient(sums, picked, upstream)
            values, *slopes = (tf.convert_to_tensor(x) for x in by_picked)
            return *of_pairs(sides, pairs, values), *slopes

        def later(pairs, match, state):
            return _added(state, visit(pairs, match))

        state = self._later_rounds(later, visit(*self._split(*self.first)))
        state, slopes = state[: -len(self.views)], state[-len(self.views) :]
        for transposed, values in enumerate(slopes):
            if self.positions is None:
                added = [tf.transpose(values) if transposed else values]
            else:
                values = tf.reshape(values, [-1])
                added = of_pairs(
                    sides, self.positions[transposed], values, transposed
                )
            state = _added(state, added)
        return [*state] if is_few else _matrix_gradients(sides, *state)


def _added(state, added):
    return tuple(total + term for total, term in zip(state, added))


def _pairs(indices):
    """Converts columns `[rows, k]` to (row, column) pairs `[rows * k, 2]`."""
    rows = tf.range(tf.shape(indices)[0])[:, None]
    rows = tf.broadcast_to(rows, tf.shape(indices))
    return tf.reshape(tf.stack([rows, indices], axis=-1), [-1, 2])
