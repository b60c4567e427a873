r"""InfoNCE: the softmax loss of a batch; anchors may have many positives.

$$L = \sum_t \lambda_t \frac{1}{|A_t|} \sum_{a \in A_t}
    \frac{1}{|P_a|} \sum_{p \in P_a} -\log \frac{\exp(a^\top p / \tau)}
    {\sum_{c \in P_a \cup N_a} \exp(a^\top c / \tau)}$$

over the terms t of a `RankingLoss`. Weights of anchors multiply the losses, not
|A_t|. Every candidate contributes, and the closest candidate contributes more
than any other, so no mining is needed.
"""

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.losses import distances, presets
from tbnets.losses.ranking import RankingLoss

SMALLEST = 1e-6
"""Least temperature: below it the softmax of similarities is not finite."""
_DEFAULTS = presets.INFONCE


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(eq=False)
class InfoNCELoss(RankingLoss):
    """Softmax over a batch's candidates; ids define the positives.

    For a positive, the loss is minus the log of its share of a softmax over
    inner products divided by the temperature; for an anchor, the mean over its
    positives (Khosla's L_out). The denominator holds all of the anchor's
    candidates: positives and negatives. Within one view the anchor itself is
    not a candidate.

    A term is the mean over anchors with a positive and a negative; without any,
    it and its gradient are 0. For equal embeddings it is the log of the number
    of candidates. `active_fraction` is the share of these anchors whose closest
    candidate is not a positive; ties count as wrong.

    Shapes may be unknown, and XLA compiles the loss. Memory: a few arrays of
    `[num_anchors, num_candidates]`.

    Example:
        network.compile("adam", tbnets.InfoNCELoss(temperature=0.05))

    Args:
        temperature: Divisor of similarities, at least 1e-6 (0.07 in Wu 2018,
            and CLIP's initial value).
        term_weights: Mapping of a term in `TERMS` to its weight, not
            negative; a term left out has weight 0 and is not computed. 0.5
            each for `image_to_text` and `text_to_image` is CLIP's loss.

    Source: van den Oord et al. 2018, Eq. 4, in both directions as in Radford et
    al. 2021 (CLIP), Fig. 3; several positives as in Khosla et al. 2020, Eq. 2.
    Departures: ids define matches, where CLIP uses the diagonal.
    """

    temperature: float = _DEFAULTS["temperature"]
    term_weights: Mapping[str, float] = dataclasses.field(
        default_factory=_DEFAULTS["term_weights"].copy
    )

    def __post_init__(self):
        self.temperature = checked_number(
            "temperature", self.temperature, SMALLEST
        )
        self._check_terms()

    def _sums(self, views):
        """Returns, by term, `[losses, counted anchors, wrong anchors]`."""
        logits = {}
        for term, view in views.items():
            logits[term] = self._logits(view, views, logits)
        return {term: _sums(views[term], logits[term]) for term in views}

    def _logits(self, view, views, known):
        """Returns a view's logits, transposing known ones if they match."""
        for term, logits in known.items():
            sides = views[term].candidates, views[term].anchors
            if view.anchors is sides[0] and view.candidates is sides[1]:
                return tf.transpose(logits)
        matrix = distances.similarities(view.anchors, view.candidates)
        return matrix / self.temperature

    def _reduce(self, sums):
        """Reduces a term's `[losses, anchors, wrong]` to its loss and share."""
        total, count, wrong = tf.unstack(sums, num=3)
        count = tf.stop_gradient(count)
        share = tf.stop_gradient(tf.math.divide_no_nan(wrong, count))
        return tf.math.divide_no_nan(total, count), share


def _sums(view, logits):
    """Sums the weighted losses of a view's anchors."""
    positive, not_negative = (
        tf.convert_to_tensor(one) for one in (view.positive, view.not_negative)
    )
    num_positives = tf.reduce_sum(tf.cast(positive, tf.float32), axis=1)
    counts = (num_positives > 0) & ~tf.reduce_all(not_negative, axis=1)
    # Rows that do not count keep all candidates: their softmax is finite.
    kept = positive | ~not_negative | ~counts[:, None]
    whole = tf.reduce_logsumexp(tf.where(kept, logits, float("-inf")), axis=1)
    own = tf.reduce_sum(tf.where(positive, logits, 0.0), axis=1)
    losses = whole - tf.math.divide_no_nan(own, num_positives)
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
