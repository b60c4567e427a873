r"""The triplet losses of two-branch networks.

$$L = \sum_{t} \lambda_t \, R\big(\{[m + d(a, p) - d(a, n)]_+\}\big)$$

In the four terms t, images rank texts, texts rank images, texts rank texts, and
images rank images. R reduces the hinges of the triplets (a, p, n) to a number.
"""

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.errors import InputError, check_choice
from tbnets.losses import distances, miners
from tbnets.losses.positives import View
from tbnets.losses.presets import CROSS_TERMS, PRESETS
from tbnets.losses.ranking import RankingLoss

REDUCTIONS = ("mean_active", "mean", "sum")
NEGATIVES = ("top_k", "hardest", "all")
GRADIENTS = ("dense", "sparse")

_DEFAULTS = PRESETS["wang2018"]


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(eq=False)
class TripletLoss(RankingLoss):
    """Ranking loss over the hardest triplets of a batch.

    For an anchor a, a positive p and a negative n, the loss is::

        [m + d(a, p) - d(a, n)]_+

    All positives of an anchor are compared with its `num_negatives` closest
    non-matching candidates. In `image_to_image` and `text_to_text`, an anchor
    is neither its own positive nor its own negative. If a term has no triplets,
    its loss and gradient are 0.

    XLA can compile the loss. A call needs memory for a few arrays of shape
    `[num_anchors, num_candidates]`, but a batch with more than 8192 images or
    texts is compared in tiles.

    Example:
        loss = tbnets.TripletLoss(**tbnets.PRESETS["vse++"])
        output = loss(
            image_embeddings, text_embeddings, image_ids, caption_image_ids)
        output.total, output.active_fraction["text_to_image"]

    The defaults are the preset "wang2018".

    Args:
        margin: Required gap m, in units of the distance; non-negative (0.1 in
            Wang 2016, 0.05 in Wang 2018 for image-sentence matching).
        num_negatives: Number of negatives K kept per anchor, at least 1 (50 in
            Wang 2016, 10 in Wang 2018). If `negatives="top_k"`, None means 10.
            For other `negatives`, it must be None.
        term_weights: Mapping from a term in `TERMS` to its non-negative weight.
            Missing terms are not computed.
        distance: A key of `distances.DISTANCES`.
        reduction: "mean_active" averages the triplets with a loss above 0,
            "mean" averages all kept triplets, and "sum" adds them.
        negatives: "top_k" keeps `num_negatives`, "hardest" keeps one per anchor
            (VSE++), and "all" keeps all (Kiros 2014).
        gradient: "dense" runs everywhere. "sparse" is faster on CPUs
            (docs/losses.md); XLA cannot compile it.

    Source: Wang et al. 2016, Eq. 5, and Wang et al. 2018, Eq. 6; departures:
    ids define the matching pairs. The equations sum the hinges; the default
    here is their mean, so that a term's weight does not depend on the number of
    active triplets.
    """

    margin: float = _DEFAULTS["margin"]
    num_negatives: int | None = None
    term_weights: Mapping[str, float] = dataclasses.field(
        default_factory=_DEFAULTS["term_weights"].copy
    )
    distance: str = _DEFAULTS["distance"]
    reduction: str = _DEFAULTS["reduction"]
    negatives: str = _DEFAULTS["negatives"]
    gradient: str = "dense"

    def __post_init__(self):
        self.margin = checked_number("margin", self.margin, 0)
        check_choice("distance", self.distance, distances.DISTANCES)
        check_choice("reduction", self.reduction, REDUCTIONS)
        check_choice("negatives", self.negatives, NEGATIVES)
        check_choice("gradient", self.gradient, GRADIENTS)
        self.num_negatives = self._checked_num_negatives()
        super().__post_init__()

    def _checked_num_negatives(self):
        number = self.num_negatives
        if self.negatives == "top_k":
            number = _DEFAULTS["num_negatives"] if number is None else number
            return checked_number("num_negatives", number, 1, whole=True)
        if number is not None:
            raise InputError(
                "num_negatives",
                "be None unless negatives='top_k'",
                f"{number!r} with negatives={self.negatives!r}",
            )
        return None

    @property
    def kept_negatives(self) -> int | None:
        """Maximum number of negatives kept per anchor; None if all are kept."""
        return 1 if self.negatives == "hardest" else self.num_negatives

    def _is_compiled(self):
        return self.gradient == "dense" and super()._is_compiled()

    def sums(self, views: dict[str, View]) -> dict[str, tf.Tensor]:
        """Sums the hinges of each term, and counts its triplets.

        If `image_to_text` and `text_to_image` both rank whole sets, their masks
        must be transposes of each other.

        Returns:
            Dict from term to float32 `[3]`: the sum of the hinges, the number
            of triplets, and the number of triplets with a loss above 0.
        """
        groups = [[term] for term in views]
        if all(term in views for term in CROSS_TERMS):
            to_text, to_image = (views[term] for term in CROSS_TERMS)
            if (
                to_text.anchors is to_image.candidates
                and to_text.candidates is to_image.anchors
            ):
                others = [[term] for term in views if term not in CROSS_TERMS]
                groups = [[*CROSS_TERMS], *others]
        sums = {}
        for terms in groups:
            group = [views[term] for term in terms]
            sums.update(zip(terms, self._sums_of_matrix(group)))
        return sums

    def _sums_of_matrix(self, views):
        """Returns the sums of views that share a similarity matrix."""

        @tf.custom_gradient
        def run(*sides):
            matrix = distances.similarities(sides[0], sides[-1])
            triplets = _Triplets(self, views, matrix)
            return triplets.sums(), lambda up: triplets.gradient(up, sides)

        # Padding the embeddings costs less than padding the matrix.
        anchors, candidates = views[0].anchors, views[0].candidates
        ranks_itself = anchors is candidates
        sides = [anchors] if ranks_itself else [anchors, candidates]
        sides = [miners.padded(rows, 0.0, [0]) for rows in sides]
        return tf.unstack(run(*sides), len(views))

    def reduce(self, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Applies `reduction`; returns the loss and the active fraction."""
        total, num_kept, num_active = tf.unstack(sums, num=3)
        divisors = {"sum": 1.0, "mean": num_kept, "mean_active": num_active}
        divisor = tf.stop_gradient(divisors[self.reduction])
        fraction = tf.math.divide_no_nan(num_active, num_kept)
        loss = tf.math.divide_no_nan(total, divisor)
        return loss, tf.stop_gradient(fraction)


# The hinges are summed without listing the triplets. An anchor's hardest
# negatives are selected once. Its positives are processed in rounds, a few per
# round. All shapes are static, so XLA can compile the loss.

# Maximum numbers of an anchor's positives and triplets in one round.
_ROUND = 5
_FEW_TRIPLETS = 512


class _Triplets:
    """The triplets whose anchors are rows or columns of a similarity matrix."""

    def __init__(self, loss, views, matrix):
        self.views, self.matrix, self.margin = views, matrix, loss.margin
        self.distance = distances.DISTANCES[loss.distance]
        self.is_sparse = loss.gradient == "sparse"
        num_negatives = loss.kept_negatives
        excluded = miners.padded(views[0].excluded, True)
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

    def gradient(self, upstream, sides):
        """Returns the gradients of `sums` with respect to `sides`."""
        is_few = self.positions is not None and self.is_sparse
        pair_gradients = _pair_gradients if is_few else _pair_matrix

        def visit(pairs, match):
            picked = tf.gather_nd(self.matrix, pairs), *self.negatives
            picked = [tf.identity(x) for x in picked]
            with tf.GradientTape() as tape:
                tape.watch(picked)
                sums = self._sums(picked[0], picked[1:], pairs, match)
            by_picked = tape.gradient(sums, picked, upstream)
            values, *slopes = (tf.convert_to_tensor(x) for x in by_picked)
            return *pair_gradients(sides, pairs, values), *slopes

        def later(pairs, match, state):
            return _added(state, visit(pairs, match))

        state = self._later_rounds(later, visit(*self._split(*self.first)))
        state, slopes = state[: -len(self.views)], state[-len(self.views) :]
        for transposed, values in enumerate(slopes):
            if self.positions is None:
                added = [tf.transpose(values) if transposed else values]
            else:
                values = tf.reshape(values, [-1])
                added = pair_gradients(
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
    rows, columns = sides[0], sides[-1]
    if len(sides) == 1:
        return [tf.matmul(slopes + tf.transpose(slopes), rows)]
    transposed = tf.matmul(slopes, rows, transpose_a=True)
    return [tf.matmul(slopes, columns), transposed]


def _product(sparse, dense):
    return tf.raw_ops.SparseMatrixMatMul(a=sparse, b=dense)
