r"""InfoNCE: a softmax loss over a batch, with any number of positives.

$$L = \sum_t \lambda_t \frac{1}{|A_t|} \sum_{a \in A_t}
    \frac{1}{|P_a|} \sum_{p \in P_a} -\log \frac{\exp(a^\top p / \tau)}
    {\sum_{c \in P_a \cup N_a} \exp(a^\top c / \tau)}$$

Here t is a term of a `RankingLoss`, A_t are its anchors, and P_a and N_a are
the positives and negatives of anchor a. Anchor weights multiply the losses, but
do not change |A_t|.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.errors import check_choice
from tbnets.losses import softmax_blocks
from tbnets.losses.positives import Matches
from tbnets.losses.presets import CROSS_TERMS
from tbnets.losses.ranking import RankingLoss
from tbnets.losses.replicas import num_replicas

SMALLEST = 1e-6
"""Minimum temperature; the softmax overflows below it."""


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

    temperature: float = 0.07
    term_weights: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(CROSS_TERMS, 0.5)
    )
    similarity_dtype: str = "float32"

    def __post_init__(self):
        self.temperature = checked_number(
            "temperature", self.temperature, SMALLEST
        )
        check_choice(
            "similarity_dtype", self.similarity_dtype, ("float32", "bfloat16")
        )
        super().__post_init__()

    def scores(self, anchors: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
        """Returns the logits, the inner products divided by the temperature."""
        sides = (
            tf.cast(rows, self.similarity_dtype)
            for rows in (anchors, candidates)
        )
        matrix = tf.cast(tf.matmul(*sides, transpose_b=True), tf.float32)
        return matrix / self.temperature

    def anchor_losses(
        self, scores: tf.Tensor, positive: tf.Tensor, negative: tf.Tensor
    ) -> tf.Tensor:
        """Computes the losses of the anchors of one term."""
        num_positives = tf.reduce_sum(tf.cast(positive, tf.float32), axis=1)
        logits = tf.where(positive | negative, scores, float("-inf"))
        log_sums = tf.reduce_logsumexp(logits, axis=1)
        sums = tf.reduce_sum(tf.where(positive, scores, 0.0), axis=1)
        return log_sums - tf.math.divide_no_nan(sums, num_positives)

    def sums_in_tiles(
        self,
        terms: Sequence[str],
        images: tf.Tensor,
        texts: tf.Tensor,
        matches: Matches,
    ) -> dict[str, tf.Tensor]:
        """Computes the terms between images and texts together, in blocks."""
        cross = [term for term in terms if term in CROSS_TERMS]
        if len(cross) < 2 or num_replicas() > 1:
            return super().sums_in_tiles(terms, images, texts, matches)
        sums = softmax_blocks.sums(
            *(images, texts, matches),
            *(self.temperature, self.similarity_dtype),
        )
        tail = [term for term in terms if term not in CROSS_TERMS]
        others = super().sums_in_tiles(tail, images, texts, matches)
        return dict(zip(CROSS_TERMS, tf.unstack(sums))) | others
