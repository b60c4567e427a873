"""Flags of the network, its loss and its training."""

from tbnets.flags.flag import Flag, Limits, Other
from tbnets.losses.distances import DISTANCES
from tbnets.losses.hinges import TERMS
from tbnets.losses.logistic import PAIR_LOSSES
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import NEGATIVES, REDUCTIONS

_COUNT = Limits(at_least=1)
_NOT_NEGATIVE = Limits(at_least=0)
_POSITIVE = Limits(above=0)
_RATE = Limits(at_least=0, below=1)
_WITH_NEGATIVES = Limits(
    at_least=2,
    reason="A ranking loss finds the negatives of an image among the others "
    "of its batch.",
)

LEARNING_GROUPS = {
    "branches": (
        Flag(
            "image_units",
            "integers",
            ("2048", "512"),
            "Sizes of the image branch's FC layers; one entry: linear branch.",
            limits=_COUNT,
        ),
        Flag(
            "text_units",
            "integers",
            ("1024", "512"),
            "Sizes of the text branch's FC layers. Wang 2018: 1024,512 on LSTM "
            "states, 2048,512 on features; empty: none (Vilalta 2017).",
            limits=_COUNT,
        ),
        Flag(
            "batch_normalization",
            "string",
            "last",
            "After which FC layer. Papers: last; the authors' code: first.",
            ("last", "first", "none"),
        ),
        Flag(
            "dropout",
            "float",
            0.5,
            "Rate after each ReLU. Papers: 0.5.",
            limits=_RATE,
        ),
        Flag(
            "input_dropout",
            "float",
            0.0,
            "Rate on branch inputs. Papers: 0.",
            limits=_RATE,
        ),
    ),
    "triplet_loss": (
        Flag(
            "loss",
            "string",
            "wang2018",
            "The paper whose loss is taken; the flags from --margin to the "
            "weights change single values of it.",
            tuple(PRESETS),
        ),
        Flag(
            "margin",
            "float",
            None,
            "Gap of the hinge, a distance.",
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "negatives",
            "string",
            None,
            "Negatives of each positive pair: the --num_negatives hardest of "
            "the batch (Wang), all (Kiros, Vilalta), the hardest (VSE++), or "
            "all at first and the hardest after --hardness_epochs.",
            NEGATIVES,
        ),
        Flag(
            "num_negatives",
            "integer",
            None,
            "K. Wang 2016: 50; 2018: 10.",
            when=({"negatives": ("top_k",)},),
            limits=_COUNT,
        ),
        Flag(
            "hardness_epochs",
            "float",
            1.0,
            "Length of the change, epochs.",
            when=({"negatives": ("all_to_hardest",)},),
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "structure_epochs",
            "float",
            0.0,
            "Epochs before the terms within a view count. Wang 2018: 0; of "
            "phrases 8, and 2 with them.",
            limits=_NOT_NEGATIVE,
        ),
        Flag("distance", "string", None, "Wang: euclidean.", tuple(DISTANCES)),
        Flag(
            "reduction",
            "string",
            None,
            "Over the triplets of a term: sum, mean, or mean of those above 0.",
            REDUCTIONS,
        ),
        *(
            Flag(
                f"{term}_weight",
                "float",
                None,
                f"Weight of the {term} term.",
                limits=_NOT_NEGATIVE,
            )
            for term in TERMS
        ),
    ),
    "pairs": (
        Flag(
            "head_units",
            "integers",
            ("512", "256"),
            "Sizes of the FC layers between the product of two embeddings and "
            "the last one, of one unit. Wang 2018: 512,256, three FC layers; "
            "256: two; empty: one.",
            limits=_COUNT,
        ),
        Flag(
            "head_dropout",
            "float",
            0.0,
            "Rate after each of their ReLUs.",
            limits=_RATE,
        ),
        Flag(
            "product_scale",
            "float",
            0.0,
            "What the product is multiplied by; 0: by its size, which makes "
            "its entries about 1. Wang 2018: 1.",
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "pair_loss",
            "string",
            "logistic",
            "logistic: of each pair for itself, as many wrong ones as right "
            "(Wang 2018). softmax: of each right one among all wrong ones of "
            "the batch (of phrases: all --candidates_per_image of the photo); "
            "it costs the head for each of them.",
            PAIR_LOSSES,
        ),
        Flag(
            "num_candidates",
            "integer",
            1,
            "Wrong captions (of phrases: wrong regions) drawn at random for "
            "each matching pair; the one that the network takes for the best "
            "match becomes the negative. Wang 2018: 1.",
            when=({"pair_loss": ("logistic",)},),
            limits=_COUNT,
        ),
    ),
    "cca": (
        Flag(
            "cca_dim",
            "integer",
            256,
            "Size of the shared space of CCA.",
            limits=_COUNT,
        ),
        Flag(
            "cca_regularization",
            "float",
            0.5,
            "Share of a side's mean variance that is added to the variance of "
            "each of its features.",
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "cca_power",
            "float",
            4.0,
            "A direction weighs (1 + its correlation) to this power. Gong "
            "2014: 4.",
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "cca_background",
            "float",
            0.0,
            "What regions without words, --candidates_per_image of a photo, "
            "count for beside the pairs of a phrase and its region: 1: as "
            "much as all pairs together, however many are drawn; 0: nothing. "
            "Pairs alone do not tell what the regions look like that nobody "
            "names, and before which a phrase must rank its own. The papers "
            "tell of none.",
            when=({"task": ("localization",), "negative_regions": ("photo",)},),
            limits=_NOT_NEGATIVE,
        ),
    ),
    "batches": (
        Flag(
            "images_per_batch",
            "integer",
            500,
            "Images a batch. Wang 2018: 500; 2016: 1500.",
            limits=_WITH_NEGATIVES,
        ),
        Flag(
            "captions_per_image",
            "integer",
            2,
            "Captions of each. Wang: 2.",
            limits=_COUNT,
        ),
    ),
    "training": (
        Flag(
            "epochs",
            "integer",
            30,
            "Passes over the images.",
            free=True,
            limits=_COUNT,
        ),
        Flag(
            "patience",
            "integer",
            0,
            "Stop after this many epochs without a better dev split; 0: never.",
            free=True,
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "precision",
            "string",
            "float32",
            "Keras dtype policy of the layers; loss and embeddings stay "
            "float32.",
            ("float32", "mixed_bfloat16"),
        ),
        Flag("jit_compile", "bool", False, "Compile by XLA; for accelerators."),
    ),
    "optimizer": (
        Flag(
            "optimizer",
            "string",
            "adam",
            "sgd, adam, adamw, or with the addons extra an optimizer of "
            "tensorflow-addons by its name, for example LAMB. Wang 2016: sgd; "
            "2018: adam.",
        ),
        Flag(
            "fused_optimizer",
            "bool",
            True,
            "sgd, adam and adamw update each weight in one pass over memory; "
            "false: by Keras' code for the same formula, as in runs of before.",
            when=({"optimizer": ("sgd", "adam", "adamw")},),
            before=False,
        ),
        Flag(
            "learning_rate",
            "float",
            2e-4,
            "Wang 2016: 0.1 (sgd); 2018: 1e-4 on features, 2e-4 with LSTM.",
            limits=_POSITIVE,
        ),
        Flag(
            "momentum",
            "float",
            0.9,
            "Of sgd. Wang 2016: 0.9.",
            when=({"optimizer": ("sgd",)},),
            limits=_RATE,
        ),
        Flag(
            "weight_decay",
            "float",
            0.0,
            "Decoupled from the gradient. Wang 2016: 5e-4.",
            when=({"optimizer": Other("adam")},),
            limits=_NOT_NEGATIVE,
        ),
        Flag(
            "schedule",
            "string",
            "constant",
            "How the learning rate falls. Wang 2016: step.",
            ("constant", "step", "exponential", "cosine"),
        ),
        Flag(
            "decay_rate",
            "float",
            0.1,
            "Factor of step and exponential.",
            when=({"schedule": ("step", "exponential")},),
            limits=Limits(above=0, at_most=1),
        ),
        Flag(
            "decay_epochs",
            "float",
            10.0,
            "Epochs to each such factor.",
            when=({"schedule": ("step", "exponential")},),
            limits=_POSITIVE,
        ),
        Flag(
            "weight_average",
            "float",
            0.0,
            "Share of the former average that a moving average of the weights "
            "keeps at each step; they become it when an epoch ends. 0: none.",
            when=({"optimizer": ("sgd", "adam", "adamw")},),
            limits=_RATE,
        ),
        Flag(
            "clip_norm",
            "float",
            0.0,
            "Largest gradient norm; 0: any. Kiros: 2.",
            limits=_NOT_NEGATIVE,
        ),
    ),
}
