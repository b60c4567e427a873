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
from tbnets.losses import distances, hinges, presets
from tbnets.losses.ranking import RankingLoss
from tbnets.losses.views import View

REDUCTIONS = ("mean_active", "mean", "sum")
NEGATIVES = ("top_k", "hardest", "all")
GRADIENTS = ("dense", "sparse")

_DEFAULTS = presets.PRESETS["wang2018"]


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
                f"num_negatives={number!r}, negatives={self.negatives!r}",
                "Remove `num_negatives`, or set negatives='top_k'.",
            )
        return None

    @property
    def kept_negatives(self) -> int | None:
        """Maximum number of negatives kept per anchor; None if all are kept."""
        return 1 if self.negatives == "hardest" else self.num_negatives

    def _is_compiled(self):
        return self.gradient == "dense" and super()._is_compiled()

    def sums(self, views: dict[str, View]) -> dict[str, tf.Tensor]:
        """Sums the hinges of each term; see `hinges.sums`."""
        options = self.margin, distances.DISTANCES[self.distance]
        return hinges.sums(views, self.kept_negatives, *options, self.gradient)

    def reduce(self, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Applies `reduction`; returns the loss and the active fraction."""
        total, num_kept, num_active = tf.unstack(sums, num=3)
        divisors = {"sum": 1.0, "mean": num_kept, "mean_active": num_active}
        divisor = tf.stop_gradient(divisors[self.reduction])
        fraction = tf.math.divide_no_nan(num_active, num_kept)
        loss = tf.math.divide_no_nan(total, divisor)
        return loss, tf.stop_gradient(fraction)
