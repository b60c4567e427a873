r"""InfoNCE: a softmax loss over a batch, with any number of positives.

$$L = \sum_t \lambda_t \frac{1}{|A_t|} \sum_{a \in A_t}
    \frac{1}{|P_a|} \sum_{p \in P_a} -\log \frac{\exp(a^\top p / \tau)}
    {\sum_{c \in P_a \cup N_a} \exp(a^\top c / \tau)}$$

Here t is a term of a `RankingLoss`, A_t are its anchors, and P_a and N_a are
the positives and negatives of anchor a. Anchor weights multiply the losses, but
do not change |A_t|.
"""

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.errors import check_choice
from tbnets.losses import presets, softmax_blocks
from tbnets.losses.ranking import RankingLoss
from tbnets.losses.replicas import num_replicas

SMALLEST = 1e-6
"""Minimum temperature; the softmax overflows below it."""
_DEFAULTS = presets.INFONCE
_CROSS = presets.TERMS[:2]


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(eq=False)
class InfoNCELoss(RankingLoss):
    """Softmax loss over the candidates in a batch; ids define the positives.

    The candidates of an anchor are its positives and negatives, never the
    anchor itself. The loss of a positive is the negative log of its softmax
    probability among the candidates, with inner products divided by the
    temperature. The loss of an anchor is the mean over its positives.

    A term is the mean over anchors with at least one positive and one negative.
    If there is no such anchor, the term and its gradient are 0.
    `active_fraction` is the fraction of these anchors whose closest candidate
    is not a positive; ties count as errors.

    XLA can compile the loss. To save memory, a batch with more than 8192 images
    or texts is compared in tiles.

    Example:
        network.compile("adam", tbnets.InfoNCELoss(temperature=0.05))

    Args:
        temperature: Divisor of the similarities, at least 1e-6 (0.07 in Wu
            2018, and CLIP's initial value).
        term_weights: Mapping from a term in `TERMS` to its non-negative weight.
            Missing terms are not computed. In CLIP, `image_to_text` and
            `text_to_image` have weight 0.5.
        similarity_dtype: "float32", or "bfloat16" for similarities that are
            less exact, but faster on accelerators.

    Source: van den Oord et al. 2018, Eq. 4, in both directions as in Radford et
    al. 2021 (CLIP), Fig. 3; several positives as in Khosla et al. 2020, Eq. 2.
    Departures: ids define the matches; in CLIP, row i matches column i.
    """

    temperature: float = _DEFAULTS["temperature"]
    term_weights: Mapping[str, float] = dataclasses.field(
        default_factory=_DEFAULTS["term_weights"].copy
    )
    similarity_dtype: str = "float32"

    def __post_init__(self):
        self.temperature = checked_number(
            "temperature", self.temperature, SMALLEST
        )
        check_choice(
            "similarity_dtype", self.similarity_dtype, ("float32", "bfloat16")
        )
        self._check_terms()

    def _sums(self, views):
        """Returns `[sum of losses, anchors, wrong anchors]` for each term."""
        logits = {}
        for term, view in views.items():
            logits[term] = self._logits(view, views, logits)
        return {term: _sums(views[term], logits[term]) for term in views}

    def _sums_in_tiles(self, terms, images, texts, matches):
        cross = [term for term in terms if term in _CROSS]
        if len(cross) < 2 or num_replicas() > 1:
            return super()._sums_in_tiles(terms, images, texts, matches)
        sums = softmax_blocks.sums(
            *(images, texts, matches),
            *(self.temperature, self.similarity_dtype),
        )
        tail = [term for term in terms if term not in _CROSS]
        found = super()._sums_in_tiles(tail, images, texts, matches)
        return dict(zip(_CROSS, tf.unstack(sums))) | found

    def _logits(self, view, views, known):
        """Returns a view's logits; transposes `known` logits if possible."""
        for term, logits in known.items():
            sides = views[term].candidates, views[term].anchors
            if view.anchors is sides[0] and view.candidates is sides[1]:
                return tf.transpose(logits)
        sides = (
            tf.cast(rows, self.similarity_dtype)
            for rows in (view.anchors, view.candidates)
        )
        matrix = tf.cast(tf.matmul(*sides, transpose_b=True), tf.float32)
        return matrix / self.temperature

    def _reduce(self, sums):
        total, count, wrong = tf.unstack(sums, num=3)
        count = tf.stop_gradient(count)
        share = tf.stop_gradient(tf.math.divide_no_nan(wrong, count))
        return tf.math.divide_no_nan(total, count), share


def _sums(view, logits):
    positive, not_negative = (
        tf.convert_to_tensor(m) for m in (view.positive, view.not_negative)
    )
    num_positives = tf.reduce_sum(tf.cast(positive, tf.float32), axis=1)
    counts = (num_positives > 0) & ~tf.reduce_all(not_negative, axis=1)
    # Rows that do not count keep all candidates, so their softmax is finite.
    in_sum = positive | ~not_negative | ~counts[:, None]
    whole = tf.reduce_logsumexp(tf.where(in_sum, logits, float("-inf")), axis=1)
    positive_sums = tf.reduce_sum(tf.where(positive, logits, 0.0), axis=1)
    losses = whole - tf.math.divide_no_nan(positive_sums, num_positives)
    losses = tf.where(counts, losses, 0.0)
    if view.weights is not None:
        losses *= view.weights
    best, rival = (
        tf.reduce_max(tf.where(mask, logits, float("-inf")), axis=1)
        for mask in (positive, ~not_negative)
    )
    wrong = counts & ~(best > rival)
    parts = losses, tf.cast(counts, tf.float32), tf.cast(wrong, tf.float32)
    return tf.stack([tf.reduce_sum(part) for part in parts])
