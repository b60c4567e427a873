r"""InfoNCE: the softmax loss of a batch, whose anchors may have many positives.

$$L = \sum_t \lambda_t \frac{1}{|A_t|} \sum_{a \in A_t}
    \frac{1}{|P_a|} \sum_{p \in P_a} -\log \frac{\exp(a^\top p / \tau)}
    {\sum_{c \in P_a \cup N_a} \exp(a^\top c / \tau)}$$

over the terms t of a `RankingLoss`. Where anchors have weights, these multiply
the losses and leave |A_t| as it is. Every candidate pulls or pushes, the
closest most: there is nothing to mine.
"""

import copy
import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import checked_number
from tbnets.losses import distances, presets
from tbnets.losses.ranking import RankingLoss

SMALLEST = 1e-6
"""Of temperatures: similarities divided by less have no finite softmax."""
_DEFAULTS = presets.INFONCE


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(eq=False)
class InfoNCELoss(RankingLoss):
    """Softmax over the candidates of a batch, its positives told by identity.

    Of each positive of an anchor, the loss is minus the log of its share of a
    softmax over inner products, divided by the temperature; of an anchor, the
    mean over its positives (Khosla's L_out). The denominator holds all of the
    anchor's candidates: that positive, the others, and all negatives. Within
    one view the anchor itself is no candidate.

    A term is the mean over the anchors that have a positive and a negative,
    and 0, as its gradient, without any. Where all embeddings are alike it is
    the log of the number of candidates. `active_fraction` is the share of
    these anchors whose closest candidate is no positive; ties are wrong.

    Shapes may be unknown, and the loss compiles under XLA. Memory stays
    within a few arrays of `[num_anchors, num_candidates]`.

    Example:
        network.compile("adam", tbnets.InfoNCELoss(temperature=0.05))

    Args:
        temperature: What similarities are divided by, from 1e-6 (0.07 in Wu
            2018, and first in CLIP). A network with a `LogitScale` learns its
            own instead.
        term_weights: Mapping of a term in `TERMS` to its weight, not
            negative; a term left out has weight 0 and is not computed. 0.5
            each for `image_to_text` and `text_to_image` is CLIP's loss.

    Source: van den Oord et al. 2018, Eq. 4, in both directions as Radford et
    al. 2021 (CLIP), Fig. 3; of several positives Khosla et al. 2020, Eq. 2.
    Departures: identity decides what matches, where CLIP takes the diagonal.
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

    def at_temperature(self, temperature: tf.Tensor) -> Self:
        """Returns the loss at a temperature that is learned.

        Args:
            temperature: float32 scalar, above 0; it has a gradient.
        """
        other = copy.copy(self)
        other.temperature = temperature
        return other

    def _sums(self, views):
        """Returns of each view `[losses, anchors that count, wrong ones]`."""
        logits = {}
        for term, view in views.items():
            logits[term] = self._logits(view, views, logits)
        return {term: _sums(views[term], logits[term]) for term in views}

    def _logits(self, view, views, known):
        """Returns the logits of a view; the same turned round are not new."""
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
    """Sums the losses of a view's anchors, which its weights multiply."""
    positive, not_negative = (
        tf.convert_to_tensor(one) for one in (view.positive, view.not_negative)
    )
    num_positives = tf.reduce_sum(tf.cast(positive, tf.float32), axis=1)
    counts = (num_positives > 0) & ~tf.reduce_all(not_negative, axis=1)
    # Rows that do not count hold all, so that their softmax is finite.
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
