"""Declares the settings of the network, its loss and its training."""

import dataclasses
from typing import Annotated

from tbnets.layers.text_encoders import TRAININGS
from tbnets.losses.distances import DISTANCES
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.logistic import PAIR_LOSSES
from tbnets.losses.presets import PRESETS, TERMS
from tbnets.losses.triplet import NEGATIVES, REDUCTIONS, TripletLoss
from tbnets.tasks.settings.flag import (
    PRESET,
    Amount,
    Condition,
    Count,
    Counts,
    Limits,
    Place,
    Rate,
    Whole,
    flag,
    with_flag,
    with_other,
    without_flag,
)

TEXT_ENCODERS = (
    "mean",
    "lstm",
    "gru",
    "h_lstm",
    "features",
    "minilm",
    "minilm,mean",
    PRESET,
)
BESIDE = ",mean"
"""Ending of --text_encoder for a preset beside the mean of learned words."""
LEARNS_WORDS = Condition(
    "with a --text_encoder that learns words",
    lambda settings: settings.texts.learns_words,
)
READS_VECTORS = LEARNS_WORDS & with_flag("word_vectors")
RECURRENT = with_flag("text_encoder", "lstm", "gru", "h_lstm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Text and text encoder settings."""

    text_encoder: str = flag(
        "lstm",
        "Text encoder. lstm: Wang 2018; gru: Vilalta 2017; h_lstm: Niu 2017; "
        "mean: mean of word vectors; features: --text_features; minilm: the "
        "sentence encoder all-MiniLM-L6-v2 of a pip package; hub:PRESET: the "
        "text encoder of a Keras Hub preset (a name, handle or folder) or of "
        "a folder of sentence-transformers (docs/keras_hub.md). minilm,mean "
        "or hub:PRESET,mean: both beside each other.",
        choices=TEXT_ENCODERS,
    )
    fine_tune_text: bool = flag(
        False,
        "Train the preset too. By default, the preset is frozen, and its "
        "features of all texts are computed once and stored in --data_root.",
        only=Condition(
            "with --text_encoder=minilm or hub:PRESET",
            lambda settings: (
                settings.texts.preset != "" and not settings.texts.learns_words
            ),
        ),
    )
    trees: Place = flag(
        "",
        "Parse trees of the captions: a recipe such as "
        "features/parsed.flags, which computes them, or a file of "
        "tbnets parse_captions. Empty with --scenes: the scenes' trees.",
        only=with_flag("text_encoder", "h_lstm"),
    )
    text_features: Place = flag(
        "",
        "Features of the captions: a recipe such as features/tfidf.flags, "
        "which computes them; a store of tbnets extract_text_features; or "
        "a .npy file with one row per caption. May contain {split}.",
        only=with_flag("text_encoder", "features"),
    )
    min_count: Count = flag(
        1,
        "Minimum count in the training captions of words in the vocabulary.",
        only=LEARNS_WORDS,
    )
    max_words: Whole = flag(
        0,
        "Maximum number of words in the vocabulary; 0: all.",
        only=LEARNS_WORDS,
    )
    word_dim: Count = flag(
        256,
        "Size of a word vector. Wang 2018: 256.",
        only=LEARNS_WORDS & without_flag("word_vectors"),
    )
    word_vectors: Place = flag(
        "",
        "Initial word vectors: a word2vec file (binary or text) or a GloVe "
        "file. Empty: random vectors of size --word_dim.",
        argument="vectors",
        only=LEARNS_WORDS & without_flag("from"),
    )
    word_vectors_training: str = flag(
        "trained",
        "Whether training changes --word_vectors, or the vectors of the "
        "model given by --from.",
        choices=TRAININGS,
        only=LEARNS_WORDS & (with_flag("word_vectors") | with_flag("from")),
    )
    word_vectors_scale: Amount = flag(
        0.05,
        "Standard deviation to which the vectors are scaled after "
        "subtracting their mean, for frozen vectors; 0: as in the file.",
        only=READS_VECTORS,
    )
    new_word_dims: Whole = flag(
        0,
        "Learned dimensions appended to each word vector.",
        only=READS_VECTORS & with_other("word_vectors_training", "frozen"),
    )
    word_dropout: Rate = flag(
        0.0, "Dropout rate on word vectors. Papers: 0.", only=LEARNS_WORDS
    )
    rnn_units: Count = flag(
        512, "Size of the recurrent state. Wang 2018: 512.", only=RECURRENT
    )
    mean_beside: bool = flag(
        False,
        "Append the mean word vector of the caption to its states. In a tree, "
        "append to each node the mean vector of the node's words.",
        only=RECURRENT,
    )
    equal_texts_match: bool = flag(
        False,
        "Match a caption that two images share with both images, and a phrase "
        "with the regions of all phrases with the same words, which are never "
        "its negatives.",
    )

    @property
    def preset(self) -> str:
        """The preset that reads the captions, `hub:PRESET`, or ""."""
        name = self.text_encoder.removesuffix(BESIDE)
        name = "hub:minilm" if name == "minilm" else name
        return name if name.startswith("hub:") else ""

    @property
    def frozen_preset(self) -> str:
        """The preset whose text features the run reads, or ""."""
        return "" if self.fine_tune_text else self.preset

    @property
    def learns_words(self) -> bool:
        """Whether the run learns vectors of the words of its captions."""
        if self.preset:
            return self.text_encoder.endswith(BESIDE)
        return self.text_encoder != "features"

    @property
    def are_features(self) -> bool:
        """Whether the texts of the run are features instead of words."""
        return self.frozen_preset != "" or self.text_encoder == "features"


_Positive = Annotated[float, Limits(0, above=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchSettings:
    """Branch settings."""

    image_units: Counts = flag(
        [2048, 512],
        "Sizes of the image branch's FC layers; one size: linear branch.",
        argument="image_branch",
    )
    text_units: Counts = flag(
        [1024, 512],
        "Sizes of the text branch's FC layers. Wang 2018: 1024,512 on LSTM "
        "states, 2048,512 on features; empty: none (Vilalta 2017).",
        argument="text_branch",
    )
    batch_normalization: str = flag(
        "last",
        "FC layer before batch normalisation. Papers: last; the authors' "
        "code: first.",
        choices=("last", "first", "none"),
    )
    dropout: Rate = flag(0.5, "Dropout rate after each ReLU. Papers: 0.5.")
    input_dropout: Rate = flag(0.0, "Dropout rate on branch inputs. Papers: 0.")


LOSSES: dict[str, tuple[type, dict]] = {
    **{
        name: (TripletLoss, PRESETS["wang2018"] | arguments)
        for name, arguments in PRESETS.items()
    },
    "infonce": (InfoNCELoss, InfoNCELoss().get_config()),
}
"""Maps the values of --loss to a class and its arguments.

An argument is the default of the flag with its name in `LossSettings`, if there
is one. Each of the `term_weights` is the default of a flag such as
`image_to_text_weight`. A run reads only the flags of its loss.
"""


def _read_by_loss(name):
    users = [loss for loss in LOSSES if name in LOSSES[loss][1]]
    others = [loss for loss in LOSSES if loss not in users]
    words = f"with --loss={' or '.join(users)}"
    if len(others) < len(users):
        words = f"with --loss other than {' or '.join(others)}"
    return Condition(words, lambda x: name in LOSSES[x.loss.loss][1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Loss settings."""

    loss: str = flag(
        "wang2018",
        "Loss: the triplet loss of a paper, or infonce, a softmax over the "
        "batch. Other flags of this group override its values.",
        choices=tuple(LOSSES),
    )
    temperature: Annotated[float, Limits(1e-6)] | None = flag(
        None,
        "Temperature: the divisor of similarities. CLIP: initially 0.07.",
        only=_read_by_loss("temperature"),
    )
    margin: Amount | None = flag(
        None,
        "Margin of the hinge, in units of the distance.",
        only=_read_by_loss("margin"),
    )
    negatives: str | None = flag(
        None,
        "Negatives of a positive pair: the --num_negatives hardest of the "
        "batch (Wang), all (Kiros, Vilalta), or the hardest (VSE++).",
        choices=NEGATIVES,
        only=_read_by_loss("negatives"),
    )
    num_negatives: Count | None = flag(
        None,
        "Number of negatives per positive pair, K. Wang 2016: 50; 2018: 10.",
        only=_read_by_loss("num_negatives") & with_flag("negatives", "top_k"),
    )
    structure_epochs: Amount = flag(
        0.0,
        "Epochs without the terms within a view. Wang 2018: 0; for phrases 8, "
        "followed by 2 with these terms.",
    )
    distance: str | None = flag(
        None,
        "Distance of embeddings. Wang: euclidean.",
        choices=tuple(DISTANCES),
        only=_read_by_loss("distance"),
    )
    reduction: str | None = flag(
        None,
        "Reduction over the triplets of a term: sum, mean, or the mean of the "
        "hinges above 0.",
        choices=REDUCTIONS,
        only=_read_by_loss("reduction"),
    )
    image_to_text_weight: Amount | None = flag(
        None, "Weight of the image-to-text term."
    )
    text_to_image_weight: Amount | None = flag(
        None, "Weight of the text-to-image term."
    )
    text_to_text_weight: Amount | None = flag(
        None, "Weight of the text-to-text term."
    )
    image_to_image_weight: Amount | None = flag(
        None, "Weight of the image-to-image term."
    )

    @property
    def is_triplet_loss(self) -> bool:
        """Whether the loss is a sum of hinges over triplets."""
        return LOSSES[self.loss][0] is TripletLoss

    @property
    def term_weights(self) -> dict[str, float]:
        """Maps each term of the loss to its weight."""
        return {term: vars(self)[f"{term}_weight"] for term in TERMS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings:
    """Settings for pairs and for the head that scores them."""

    head_units: Counts = flag(
        [512, 256],
        "Sizes of the FC layers between the product of two embeddings and "
        "the last layer, which has one unit. Wang 2018: 512,256; 256: two "
        "layers; empty: one.",
    )
    head_dropout: Rate = flag(0.0, "Dropout rate after each ReLU of the head.")
    pair_loss: str = flag(
        "logistic",
        "Loss of pairs. logistic: each pair separately, with equal numbers of "
        "right and wrong pairs (Wang 2018). softmax: each right pair against "
        "all wrong pairs of the batch (for phrases: --candidates_per_image of "
        "the photo), which runs the head for all these pairs.",
        choices=PAIR_LOSSES,
    )
    num_candidates: Count = flag(
        1,
        "Wrong captions (for phrases: regions) drawn for each matching pair. "
        "The wrong pair with the highest score is the negative. Wang 2018: 1.",
        only=with_flag("pair_loss", "logistic"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CcaSettings:
    """Canonical correlation analysis settings."""

    cca_dim: Whole = flag(
        0,
        "Size of CCA's shared space; 0: 256, or the smaller feature size if "
        "it is below 256.",
        argument="output_dim",
    )
    cca_regularization: Amount = flag(
        0.5,
        "Regularisation: share of the mean variance of a view that is added "
        "to the variance of each feature.",
        argument="regularization",
    )
    cca_power: Amount = flag(
        4.0,
        "Exponent of the weight of a direction, (1 + its correlation) to this "
        "power. Gong 2014: 4.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """Batch settings."""

    images_per_batch: Annotated[int, Limits(2)] = flag(
        500,
        "Images per batch. The other images are the negatives of an image. "
        "Wang 2018: 500; 2016: 1500.",
    )
    captions_per_image: Count = flag(2, "Captions per image. Wang: 2.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Training settings."""

    epochs: Count = flag(30, "Passes over the images.", free=True)
    patience: Whole = flag(
        0,
        "Stop after this many epochs without a better score on the dev "
        "split; 0: never.",
        free=True,
    )
    precision: str = flag(
        "float32",
        "Keras dtype policy of the layers; loss and embeddings remain float32.",
        choices=("float32", "mixed_bfloat16"),
    )
    tensor_float_32: bool = flag(
        False,
        "Compute float32 products of GPUs in TF32, which is faster and less "
        "exact.",
    )
    jit_compile: bool = flag(
        False,
        "Compile with XLA; for accelerators. Slow with --task=localization, "
        "as XLA compiles each size of a batch.",
    )
    encode_chunk: Whole = flag(
        0,
        "Maximum number of images, or of captions, that an encoder processes "
        "at a time in training, for batches that do not fit into memory "
        "(docs/fine_tuning.md); 0: all.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """Optimizer settings."""

    optimizer: str = flag(
        "adam",
        "Optimizer: sgd with momentum 0.9 (Wang 2016), adam (2018), adamw, "
        "or, with the addons extra, an optimizer of tensorflow-addons, such "
        "as LAMB.",
    )
    learning_rate: _Positive = flag(
        2e-4,
        "Learning rate. Wang 2016: 0.1 (sgd); 2018: 1e-4 on features, "
        "2e-4 with LSTM.",
    )
    weight_decay: Amount = flag(
        0.0,
        "Weight decay, decoupled from the gradient. Wang 2016: 5e-4.",
        only=with_other("optimizer", "adam"),
    )
    schedule: str = flag(
        "constant",
        "Schedule of the learning rate. Wang 2016: step.",
        choices=("constant", "step", "exponential", "cosine"),
    )
    decay_epochs: _Positive = flag(
        10.0,
        "Epochs in which step and exponential decay to a tenth.",
        only=with_flag("schedule", "step", "exponential"),
    )
    gradient_clip_norm: Amount = flag(
        0.0, "Maximum gradient norm; 0: no limit. Kiros: 2."
    )
