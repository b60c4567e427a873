"""Settings of the network, its loss and its training."""

import dataclasses

from tbnets.flags.flag import COUNT, NOT_NEGATIVE, RATE, Limits, Other, flag
from tbnets.losses.distances import DISTANCES
from tbnets.losses.logistic import PAIR_LOSSES
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import NEGATIVES, REDUCTIONS

_POSITIVE = Limits(above=0)
_WITH_NEGATIVES = Limits(
    at_least=2,
    reason="A ranking loss finds the negatives of an image among the others "
    "of its batch.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Branches:
    """Branches into the shared space."""

    image_units: list[int] = flag(
        [2048, 512],
        "Sizes of the image branch's FC layers; one entry: linear branch.",
        limits=COUNT,
    )
    text_units: list[int] = flag(
        [1024, 512],
        "Sizes of the text branch's FC layers. Wang 2018: 1024,512 on LSTM "
        "states, 2048,512 on features; empty: none (Vilalta 2017).",
        limits=COUNT,
    )
    batch_normalization: str = flag(
        "last",
        "After which FC layer. Papers: last; the authors' code: first.",
        choices=("last", "first", "none"),
    )
    dropout: float = flag(
        0.5, "Rate after each ReLU. Papers: 0.5.", limits=RATE
    )
    input_dropout: float = flag(
        0.0, "Rate on branch inputs. Papers: 0.", limits=RATE
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TripletLoss:
    """Loss."""

    loss: str = flag(
        "wang2018",
        "The paper whose loss is taken; the flags from --margin to the "
        "weights change single values of it.",
        choices=tuple(PRESETS),
    )
    margin: float | None = flag(
        None, "Gap of the hinge, a distance.", limits=NOT_NEGATIVE
    )
    negatives: str | None = flag(
        None,
        "Negatives of each positive pair: the --num_negatives hardest of "
        "the batch (Wang), all (Kiros, Vilalta), the hardest (VSE++), or "
        "all at first and the hardest after --hardness_epochs.",
        choices=NEGATIVES,
    )
    num_negatives: int | None = flag(
        None,
        "K. Wang 2016: 50; 2018: 10.",
        when=({"negatives": ("top_k",)},),
        limits=COUNT,
    )
    hardness_epochs: float = flag(
        1.0,
        "Length of the change, epochs.",
        when=({"negatives": ("all_to_hardest",)},),
        limits=NOT_NEGATIVE,
    )
    structure_epochs: float = flag(
        0.0,
        "Epochs before the terms within a view count. Wang 2018: 0; of "
        "phrases 8, and 2 with them.",
        limits=NOT_NEGATIVE,
    )
    distance: str | None = flag(
        None, "Wang: euclidean.", choices=tuple(DISTANCES)
    )
    reduction: str | None = flag(
        None,
        "Over the triplets of a term: sum, mean, or mean of those above 0.",
        choices=REDUCTIONS,
    )
    image_to_text_weight: float | None = flag(
        None, "Weight of the image_to_text term.", limits=NOT_NEGATIVE
    )
    text_to_image_weight: float | None = flag(
        None, "Weight of the text_to_image term.", limits=NOT_NEGATIVE
    )
    text_to_text_weight: float | None = flag(
        None, "Weight of the text_to_text term.", limits=NOT_NEGATIVE
    )
    image_to_image_weight: float | None = flag(
        None, "Weight of the image_to_image term.", limits=NOT_NEGATIVE
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs, and the head that judges them."""

    head_units: list[int] = flag(
        [512, 256],
        "Sizes of the FC layers between the product of two embeddings and "
        "the last one, of one unit. Wang 2018: 512,256, three FC layers; "
        "256: two; empty: one.",
        limits=COUNT,
    )
    head_dropout: float = flag(
        0.0, "Rate after each of their ReLUs.", limits=RATE
    )
    product_scale: float = flag(
        0.0,
        "What the product is multiplied by; 0: by its size, which makes "
        "its entries about 1. Wang 2018: 1.",
        limits=NOT_NEGATIVE,
    )
    pair_loss: str = flag(
        "logistic",
        "logistic: of each pair for itself, as many wrong ones as right "
        "(Wang 2018). softmax: of each right one among all wrong ones of "
        "the batch (of phrases: all --candidates_per_image of the photo); "
        "it costs the head for each of them.",
        choices=PAIR_LOSSES,
    )
    num_candidates: int = flag(
        1,
        "Wrong captions (of phrases: wrong regions) drawn at random for "
        "each matching pair; the one that the network takes for the best "
        "match becomes the negative. Wang 2018: 1.",
        when=({"pair_loss": ("logistic",)},),
        limits=COUNT,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cca:
    """Canonical correlation analysis."""

    cca_dim: int = flag(256, "Size of the shared space of CCA.", limits=COUNT)
    cca_regularization: float = flag(
        0.5,
        "Share of a side's mean variance that is added to the variance of "
        "each of its features.",
        limits=NOT_NEGATIVE,
    )
    cca_power: float = flag(
        4.0,
        "A direction weighs (1 + its correlation) to this power. Gong 2014: 4.",
        limits=NOT_NEGATIVE,
    )
    cca_background: float = flag(
        0.0,
        "What regions without words, --candidates_per_image of a photo, "
        "count for beside the pairs of a phrase and its region: 1: as "
        "much as all pairs together, however many are drawn; 0: nothing. "
        "Pairs alone do not tell what the regions look like that nobody "
        "names, and before which a phrase must rank its own. The papers "
        "tell of none.",
        when=({"regions": Other(""), "negative_regions": ("photo",)},),
        limits=NOT_NEGATIVE,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batches:
    """Batches."""

    images_per_batch: int = flag(
        500,
        "Images a batch. Wang 2018: 500; 2016: 1500.",
        limits=_WITH_NEGATIVES,
    )
    captions_per_image: int = flag(
        2, "Captions of each. Wang: 2.", limits=COUNT
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Training."""

    epochs: int = flag(30, "Passes over the images.", limits=COUNT, free=True)
    patience: int = flag(
        0,
        "Stop after this many epochs without a better dev split; 0: never.",
        limits=NOT_NEGATIVE,
        free=True,
    )
    precision: str = flag(
        "float32",
        "Keras dtype policy of the layers; loss and embeddings stay float32.",
        choices=("float32", "mixed_bfloat16"),
    )
    jit_compile: bool = flag(False, "Compile by XLA; for accelerators.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Optimizer."""

    optimizer: str = flag(
        "adam",
        "sgd, adam, adamw, or with the addons extra an optimizer of "
        "tensorflow-addons by its name, for example LAMB. Wang 2016: sgd; "
        "2018: adam.",
    )
    fused_optimizer: bool = flag(
        True,
        "sgd, adam and adamw update each weight in one pass over memory; "
        "false: by Keras' code for the same formula, as in runs of before.",
        when=({"optimizer": ("sgd", "adam", "adamw")},),
        before=False,
    )
    learning_rate: float = flag(
        2e-4,
        "Wang 2016: 0.1 (sgd); 2018: 1e-4 on features, 2e-4 with LSTM.",
        limits=_POSITIVE,
    )
    momentum: float = flag(
        0.9,
        "Of sgd. Wang 2016: 0.9.",
        when=({"optimizer": ("sgd",)},),
        limits=RATE,
    )
    weight_decay: float = flag(
        0.0,
        "Decoupled from the gradient. Wang 2016: 5e-4.",
        when=({"optimizer": Other("adam")},),
        limits=NOT_NEGATIVE,
    )
    schedule: str = flag(
        "constant",
        "How the learning rate falls. Wang 2016: step.",
        choices=("constant", "step", "exponential", "cosine"),
    )
    decay_rate: float = flag(
        0.1,
        "Factor of step and exponential.",
        when=({"schedule": ("step", "exponential")},),
        limits=Limits(above=0, at_most=1),
    )
    decay_epochs: float = flag(
        10.0,
        "Epochs to each such factor.",
        when=({"schedule": ("step", "exponential")},),
        limits=_POSITIVE,
    )
    weight_average: float = flag(
        0.0,
        "Share of the former average that a moving average of the weights "
        "keeps at each step; they become it when an epoch ends. 0: none.",
        when=({"optimizer": ("sgd", "adam", "adamw")},),
        limits=RATE,
    )
    clip_norm: float = flag(
        0.0, "Largest gradient norm; 0: any. Kiros: 2.", limits=NOT_NEGATIVE
    )
