r"""The triplet losses of two-branch networks.

$$L = \sum_{t} \lambda_t \, R\big(\{[m + d(a, p) - d(a, n)]_+\}\big)$$

over four terms t: images ranking texts, texts ranking images, and each set
ranking itself. R is a reduction over the triplets (a, p, n).
"""

import dataclasses
from collections.abc import Mapping

import keras
import tensorflow as tf

from tbnets.checks import checked_number
from tbnets.errors import InputError, check_choice
from tbnets.losses import distances, hinges, presets
from tbnets.losses.ranking import RankingLoss

REDUCTIONS = ("mean_active", "mean", "sum")
NEGATIVES = ("top_k", "hardest", "all")
GRADIENTS = ("dense", "sparse")

_DEFAULTS = presets.PRESETS["wang2018"]


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(eq=False)
class TripletLoss(RankingLoss):
    """Ranking loss over the hardest triplets of a batch.

    For an anchor a, a positive p and a negative n the hinge is::

        [m + d(a, p) - d(a, n)]_+

    The loss compares all positives of an anchor with its `num_negatives`
    closest non-matching candidates. If a set ranks itself, an anchor is neither
    its own positive nor its own negative. A term without triplets is 0, and so
    is its gradient.

    XLA can compile the loss. A call needs memory for a few arrays of shape
    `[num_anchors, num_candidates]`. A batch with more than 8192 images or texts
    is compared in tiles, without such arrays.

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
            Wang 2016, 10 in Wang 2018). None means 10 for `negatives="top_k"`,
            and is required otherwise.
        term_weights: Mapping from a term in `TERMS` to its non-negative weight.
            Missing terms are not computed.
        distance: A key of `distances.DISTANCES`.
        reduction: "mean_active" averages the triplets with a loss above 0,
            "mean" averages all kept triplets, and "sum" adds them.
        negatives: "top_k" keeps `num_negatives`, "hardest" keeps one per anchor
            (VSE++), and "all" keeps all (Kiros 2014).
        gradient: "dense" runs everywhere. "sparse" is faster on CPUs
            (docs/benchmarks.md); XLA cannot compile it.

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
        self._check_terms()

    def _checked_num_negatives(self):
        number = self.num_negatives
        if self.negatives == "top_k":
            number = _DEFAULTS["num_negatives"] if number is None else number
            return checked_number("num_negatives", number, 1, whole=True)
        if number is not None:
            raise InputError(
                "num_negatives",
                "be None unless negatives='top_k'",
                f"num_negatives={number!r}, negatives={self.negatives!r}",
                "Remove `num_negatives`, or set negatives='top_k'.",
            )
        return None

    @property
    def kept_negatives(self) -> int | None:
        """Maximum number of negatives kept per anchor, or None for all."""
        return 1 if self.negatives == "hardest" else self.num_negatives

    def _is_compiled(self):
        return self.gradient == "dense" and super()._is_compiled()

    def _sums(self, views):
        options = self.margin, distances.DISTANCES[self.distance]
        return hinges.sums(views, self.kept_negatives, *options, self.gradient)

    def _reduce(self, sums):
        total, num_kept, num_active = tf.unstack(sums, num=3)
        divisors = {"sum": 1.0, "mean": num_kept, "mean_active": num_active}
        divisor = tf.stop_gradient(divisors[self.reduction])
        fraction = tf.math.divide_no_nan(num_active, num_kept)
        loss = tf.math.divide_no_nan(total, divisor)
        return loss, tf.stop_gradient(fraction)
