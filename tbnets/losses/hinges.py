"""Sums the hinges of a batch's triplets without listing the triplets.

Negatives and a few positives of every anchor are selected from the
similarities; further rounds compare remaining positives. Shapes are static, so
XLA compiles the loss. Images and texts that rank each other share one pass,
because a matching pair is a positive in both directions. The written-out
gradient repeats the rounds and is zero for all other pairs.
"""

from typing import NamedTuple

import tensorflow as tf

from tbnets.losses import distances, miners, replicas
from tbnets.losses.presets import TERMS

# From the gradient by a few similarities to the gradient by embeddings.
#
# For similarities of rows X and columns Y with gradient G, the gradient by X is
# G Y and by Y it is G^T X. G is zero except for selected pairs.
# `gradient="sparse"` multiplies compressed sparse rows without building G; its
# cost grows with the number of pairs. XLA does not compile it, and accelerators
# multiply dense matrices faster: `gradient="dense"` builds G.


class PairSlopes:
    """Adds up gradients of embeddings by sparse products, group by group.

    Args:
        sides: float32 `[rows, dim]` and `[columns, dim]`; a single array for a
            set that is compared with itself.
    """

    def __init__(self, sides):
        self._sides = sides

    def of_pairs(self, pairs, values, turned=False):
        """Returns a list with one gradient per side.

        Args:
            pairs: int32 `[n, 2]`, anchor and candidate, sorted by anchor; may
                repeat.
            values: float32 `[n]`, the gradient by the pairs' similarities.
            turned: Whether the anchors are columns instead of rows.
        """
        anchors, candidates = self._sides[0], self._sides[-1]
        if turned:
            anchors, candidates = candidates, anchors
        sizes = tf.shape(anchors)[0], tf.shape(candidates)[0]
        slopes = tf.raw_ops.SparseTensorToCSRSparseMatrix(
            indices=tf.cast(pairs, tf.int64),
            values=values,
            dense_shape=tf.cast(tf.stack(sizes), tf.int64),
        )
        found = [_product(slopes, candidates)]
        # Transposing first is five times faster than the product of a
        # transpose.
        slopes = tf.raw_ops.SparseMatrixTranspose(input=slopes, type=tf.float32)
        found.append(_product(slopes, anchors))
        if len(self._sides) == 1:
            return [found[0] + found[1]]
        return found[::-1] if turned else found

    def of_sides(self, state):
        """Returns the gradients of the sides from the accumulated state."""
        return state


class MatrixSlopes:
    """Adds up a dense gradient matrix and multiplies it once at the end."""

    def __init__(self, sides):
        self._sides = sides

    def of_pairs(self, pairs, values, turned=False):
        """Returns a list of one dense matrix with the gradients of pairs."""
        pairs = pairs[:, ::-1] if turned else pairs
        sizes = [tf.shape(self._sides[i])[0] for i in (0, -1)]
        num_rows, num_columns = tf.unstack(tf.cast(sizes, tf.int64))
        rows, columns = tf.unstack(tf.cast(pairs, tf.int64), axis=1)
        # A sum of segments takes a third of the time of a scatter.
        sums = tf.math.unsorted_segment_sum(
            values, rows * num_columns + columns, num_rows * num_columns
        )
        return [tf.reshape(sums, [num_rows, num_columns])]

    def of_sides(self, state):
        """Returns the gradients of the sides from the accumulated matrix."""
        [slopes] = state
        rows, columns = self._sides[0], self._sides[-1]
        if len(self._sides) == 1:
            return [tf.matmul(slopes + tf.transpose(slopes), rows)]
        turned = tf.matmul(slopes, rows, transpose_a=True)
        return [tf.matmul(slopes, columns), turned]


def _product(sparse, dense):
    return tf.raw_ops.SparseMatrixMatMul(a=sparse, b=dense)


# The contrastive loss of weighted pairs of a phrase and a region.
#
# $$L = \sum_k w_k \Big( \sum_l [m - v_k^\top h_k + v_k^\top h_l]_+
#     + \sum_l [m - h_k^\top v_k + h_k^\top v_l]_+ \Big)$$
#
# over the pairs (v_k, h_k) of a region and a phrase; h_l and v_l are the
# contrasted phrases and regions. `TripletLoss` with weighted anchors computes
# it, with any distance, reduction and negatives; so does any other
# `RankingLoss`.


def pair_views(regions, phrases, region_of, is_contrast, weights):
    """Builds the views in which pairs are ranked, for `RankingLoss.of_views`.

    Every phrase forms one pair with its region. A region in several pairs is a
    separate anchor in every pair.

    Args:
        regions: float32 `[num_regions, embedding_dim]`.
        phrases: float32 `[num_phrases, embedding_dim]`.
        region_of: int32 `[num_phrases]`, row of each phrase's region.
        is_contrast: bool `[num_regions, num_phrases]`, contrasted pairs; False
            where they might match.
        weights: float32 `[num_phrases]`, weights of the pairs.

    Returns:
        Dict of two `hinges.View`s: in `image_to_text` a pair's region ranks
        phrases, in `text_to_image` its phrase ranks regions.

    Source: Niu et al. 2017, Eq. 9-10; departures: the caller chooses the
    contrasted pairs, which the paper does not specify.
    """
    num_regions, num_phrases = tf.unstack(tf.shape(is_contrast))
    own = tf.equal(region_of[:, None], tf.range(num_regions)[None, :])
    others = ~tf.transpose(is_contrast) | own
    anchors = tf.gather(regions, region_of)
    itself = tf.eye(num_phrases, dtype=tf.bool)
    of_anchors = tf.gather(tf.transpose(others), region_of)
    return {
        "image_to_text": View(anchors, phrases, itself, of_anchors, weights),
        "text_to_image": View(phrases, regions, own, others, weights),
    }


# Terms that share a similarity matrix: along its rows, along its columns.
_CROSS = TERMS[:2]

# Positives of an anchor compared in one round; triplets in one round.
_ROUND = 5
_FEW_TRIPLETS = 512


class View(NamedTuple):
    """The anchors, candidates and masks of one term.

    Attributes:
        anchors: float32 `[num_anchors, embedding_dim]`.
        candidates: float32 `[num_candidates, embedding_dim]`.
        positive: bool `[num_anchors, num_candidates]`; within one view an
            anchor is not its own positive.
        not_negative: bool `[num_anchors, num_candidates]`: the positives and
            the anchor itself.
        weights: float32 `[num_anchors]`, factors of the anchors' losses; None
            for 1. They do not change the counts. Triplet losses pass them no
            gradient.
    """

    anchors: tf.Tensor
    candidates: tf.Tensor
    positive: tf.Tensor
    not_negative: tf.Tensor
    weights: tf.Tensor | None = None


def views(images, texts, masks):
    """Builds a `View` for each term.

    Args:
        images: float32 `[num_images, embedding_dim]`.
        texts: float32 `[num_captions, embedding_dim]`.
        masks: Three bool masks, image-text, text-text and image-image.

    Returns:
        Dict by term, in the order of `TERMS`.
    """
    cross, text_mask, image_mask = (tf.convert_to_tensor(m) for m in masks)
    turned = tf.transpose(cross)
    return {
        "image_to_text": View(images, texts, cross, cross),
        "text_to_image": View(texts, images, turned, turned),
        "text_to_text": _within(texts, text_mask),
        "image_to_image": _within(images, image_mask),
    }


def _within(rows, mask):
    """Builds the `View` of a set that ranks itself."""
    itself = tf.ones(tf.shape(mask)[:1], tf.bool)
    positive = tf.linalg.set_diag(mask, tf.logical_not(itself))
    return View(rows, rows, positive, tf.linalg.set_diag(mask, itself))


def own_anchors(view):
    """Returns the `View` with this replica's anchors and all candidates."""
    cut = {
        name: replicas.own_rows(rows)
        for name, rows in view._asdict().items()
        if name != "candidates" and rows is not None
    }
    return view._replace(**cut)


def sums(views, num_negatives, margin, distance, gradient="dense"):
    """Sums and counts the hinges of every view.

    Args:
        views: Dict of `View`s by term. Images and texts that rank each other in
            full need transposed masks.
        num_negatives: Hardest negatives kept for an anchor; None keeps all.
        margin: Required gap, in units of the distance.
        distance: Function of similarities, a value of `distances.DISTANCES`.
        gradient: "dense" or "sparse", as in `triplet.TripletLoss`.

    Returns:
        Dict of float32 `[3]` by term: the sum of hinges, which carries the
        gradient, the number of triplets, and the number of triplets above 0.
    """
    groups = [[term] for term in views]
    if all(term in views for term in _CROSS):
        one, other = (views[term] for term in _CROSS)
        if one.anchors is other.candidates and one.candidates is other.anchors:
            groups = [_CROSS, *([t] for t in views if t not in _CROSS)]
    sums, how = {}, (num_negatives, margin, distance, gradient == "sparse")
    for terms in groups:
        group = [views[term] for term in terms]
        found = _sums_of_matrix(group, *how)
        sums.update(zip(terms, found))
    return sums


def _sums_of_matrix(views, num_negatives, margin, distance, sparse):
    """Returns `[sum of hinges, kept, active]` for each view of a matrix."""

    @tf.custom_gradient
    def run(*sides):
        matrix = distances.similarities(sides[0], sides[-1])
        triplets = _Triplets(views, matrix, num_negatives, margin, distance)

        def gradient(upstream):
            return triplets.gradient(upstream, sides, sparse)

        return triplets.sums(), gradient

    # Padding the embeddings costs less than padding the matrix.
    anchors, candidates = views[0].anchors, views[0].candidates
    is_one = anchors is candidates
    sides = [anchors] if is_one else [anchors, candidates]
    sides = [miners.padded(rows, 0.0, [0]) for rows in sides]
    return tf.unstack(run(*sides), len(views))


class _Triplets:
    """The triplets of a padded similarity matrix, by rows and columns."""

    def __init__(self, views, matrix, num_negatives, margin, distance):
        self.views, self.matrix = views, matrix
        self.margin, self.distance = margin, distance
        excluded = miners.padded(views[0].not_negative, True)
        masked = tf.where(excluded, float("-inf"), matrix)
        # Similarities and columns of the anchors' negatives.
        if num_negatives is None:
            self.size, self.places = 1, None
            self.negatives = [masked, tf.transpose(masked)][: len(views)]
        else:
            self.size = max(1, min(_ROUND, _FEW_TRIPLETS // num_negatives))
            found = [
                miners.largest(masked, num_negatives, turned)
                for turned in (False, True)[: len(views)]
            ]
            self.negatives, columns = zip(*found)
            self.places = [_pairs(each) for each in columns]
        # Positives of every row, one more than a round compares.
        self.first = miners.first_positives(views[0].positive, self.size + 1)

    def _split(self, columns, match):
        """Returns (row, column) pairs `[n, 2]`, and which are real."""
        pairs = _pairs(columns[:, : self.size])
        return pairs, tf.reshape(match[:, : self.size], [-1])

    def _later_rounds(self, visit, state):
        """Folds `visit(pairs, match, state)` over the remaining positives."""

        def step(left, columns, match, state):
            # Padding is column 0 of rows without more positives.
            done, _ = self._split(columns, match)
            nothing = tf.zeros(tf.shape(done)[:1], tf.bool)
            left = tf.tensor_scatter_nd_update(left, done, nothing)
            found = miners.first_positives(left, self.size + 1)
            return left, *found, visit(*self._split(*found), state)

        def has_more(left, columns, match, state):
            return tf.reduce_any(match[:, self.size :])

        left = self.views[0].positive
        return tf.while_loop(has_more, step, (left, *self.first, state))[-1]

    def _sums(self, positives, negatives, pairs, match):
        """Returns, for each view, sum of hinges, kept and active counts."""
        bounds = self.margin + self.distance(positives)
        bounds = tf.where(match, bounds, float("-inf"))
        sums = []
        for turned, view in enumerate(self.views):
            anchors = pairs[:, turned]
            # A missing negative has similarity -inf and distance inf.
            counts = tf.not_equal(negatives[turned], float("-inf"))
            counts = tf.reduce_sum(tf.cast(counts, tf.float32), axis=1)
            kept = tf.where(match, tf.gather(counts, anchors), 0.0)
            reached = tf.gather(self.distance(negatives[turned]), anchors)
            hinges = bounds[:, None] - reached
            # `hinges <= 0` counts a NaN as a loss, so that it shows.
            # TensorFlow's graph optimizer would rewrite a negated comparison.
            idle = hinges <= 0.0
            losses = tf.where(idle, 0.0, hinges)
            if view.weights is not None:
                losses *= tf.gather(view.weights, anchors)[:, None]
            parts = losses, kept, tf.where(idle, 0.0, 1.0)
            sums.append(tf.stack([tf.reduce_sum(part) for part in parts]))
        return tf.stack(sums)

    def sums(self):
        """Returns float32 `[views, 3]`: `_sums` over all positives."""

        def visit(pairs, match, sums):
            positives = tf.gather_nd(self.matrix, pairs)
            return sums + self._sums(positives, self.negatives, pairs, match)

        first = visit(*self._split(*self.first), 0.0)
        return self._later_rounds(visit, first)

    def gradient(self, upstream, sides, sparse):
        """Returns the gradient by the sides from the one by `sums`."""
        is_few = self.places is not None and sparse
        kind = PairSlopes if is_few else MatrixSlopes
        products = kind(sides)

        def visit(pairs, match):
            """Returns the gradients of these positives and all negatives."""
            picked = tf.gather_nd(self.matrix, pairs), *self.negatives
            picked = [tf.identity(one) for one in picked]
            with tf.GradientTape() as tape:
                tape.watch(picked)
                sums = self._sums(picked[0], picked[1:], pairs, match)
            by_picked = tape.gradient(sums, picked, upstream)
            values, *away = (tf.convert_to_tensor(one) for one in by_picked)
            return *products.of_pairs(pairs, values), *away

        def later(pairs, match, state):
            return _added(state, visit(pairs, match))

        state = self._later_rounds(later, visit(*self._split(*self.first)))
        state, away = state[: -len(self.views)], state[-len(self.views) :]
        for turned, values in enumerate(away):
            if self.places is None:
                added = [tf.transpose(values) if turned else values]
            else:
                values = tf.reshape(values, [-1])
                added = products.of_pairs(self.places[turned], values, turned)
            state = _added(state, added)
        return products.of_sides(list(state))


def _added(state, more):
    return tuple(one + other for one, other in zip(state, more))


def _pairs(indices):
    """Returns the (row, column) entries `[rows * k, 2]` of columns by row."""
    rows = tf.range(tf.shape(indices)[0])[:, None]
    rows = tf.broadcast_to(rows, tf.shape(indices))
    return tf.reshape(tf.stack([rows, indices], axis=-1), [-1, 2])
