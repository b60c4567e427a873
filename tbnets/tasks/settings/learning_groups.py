"""Settings of the network, its loss and its training."""

import dataclasses
from typing import Annotated

from tbnets.layers.text_encoders import TRAININGS
from tbnets.losses.distances import DISTANCES
from tbnets.losses.logistic import PAIR_LOSSES
from tbnets.losses.presets import INFONCE, LOSSES, PRESETS
from tbnets.losses.triplet import NEGATIVES, REDUCTIONS
from tbnets.tasks.settings.flag import (
    PRESET,
    Amount,
    Count,
    Counts,
    Limits,
    OneOf,
    Place,
    Rate,
    Whole,
    flag,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Texts and their encoder."""

    text_encoder: str = flag(
        "lstm",
        "What reads captions. lstm: Wang 2018; gru: Vilalta 2017; h_lstm: "
        "Niu 2017; mean: of word vectors; features: --text_features; "
        "hub:PRESET: the text side of a preset of Keras Hub, pooled as it was "
        "trained: a name, a handle or a folder (docs/keras_hub.md).",
        choices=OneOf("mean", "lstm", "gru", "h_lstm", "features", PRESET),
    )
    fine_tune_text: bool = flag(
        False,
        "Train the preset, too. Otherwise it is frozen: the features of all "
        "texts are made once, below --data_root, and found there next time.",
    )
    trees: Place = flag(
        "",
        "Trees of the captions: a recipe such as features/parsed.flags, by "
        "which they are made, or a file of tools/parse_captions.py; empty "
        "with --scenes: theirs.",
    )
    text_features: Place = flag(
        "",
        "Features of the captions: a recipe such as features/tfidf.flags, by "
        "which they are made; a store of tools/extract_text_features.py; or a "
        ".npy with a row a caption, may hold {split}.",
    )
    min_count: Count = flag(
        1,
        "Times a word must stand in the training captions to be known.",
    )
    max_words: Whole = flag(0, "Most frequent words kept; 0: all.")
    word_dim: Count = flag(
        256,
        "Word vector size. Wang 2018: 256.",
    )
    word_vectors: Place = flag(
        "",
        "First vectors of the words: word2vec file (binary or text) or "
        "GloVe file; empty: random ones of --word_dim.",
    )
    word_vectors_training: str = flag(
        "trained",
        "Whether training changes them, or those of the model of --from.",
        choices=TRAININGS,
    )
    word_vectors_scale: Amount = flag(
        0.05,
        "Take the mean away from the vectors, and scale them to this "
        "standard deviation; 0: as in the file, for frozen ones.",
    )
    new_word_dims: Whole = flag(
        0,
        "Numbers that are learned of each word beside its vector.",
    )
    word_dropout: Rate = flag(0.0, "Rate on word vectors. Papers: 0.")
    rnn_units: Count = flag(512, "State size. Wang 2018: 512.")
    mean_beside: bool = flag(
        False,
        "Append the mean of a caption's word vectors to its states; of a tree, "
        "to each node's that of its own words.",
    )
    equal_texts_match: bool = flag(
        False,
        "A text that stands on two images matches both; a phrase, things "
        "that are called the same, and none of its photo is its negative.",
    )


_Positive = Annotated[float, Limits(0, above=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchSettings:
    """Branches into the shared space."""

    image_units: Counts = flag(
        [2048, 512],
        "Sizes of the image branch's FC layers; one entry: linear branch.",
    )
    text_units: Counts = flag(
        [1024, 512],
        "Sizes of the text branch's FC layers. Wang 2018: 1024,512 on LSTM "
        "states, 2048,512 on features; empty: none (Vilalta 2017).",
    )
    batch_normalization: str = flag(
        "last",
        "After which FC layer. Papers: last; the authors' code: first.",
        choices=("last", "first", "none"),
    )
    dropout: Rate = flag(0.5, "Rate after each ReLU. Papers: 0.5.")
    input_dropout: Rate = flag(0.0, "Rate on branch inputs. Papers: 0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Loss."""

    loss: str = flag(
        "wang2018",
        "The paper whose triplet loss is taken, or infonce: a softmax over the "
        "batch. Other flags of this group change single values of it.",
        choices=tuple(LOSSES),
    )
    temperature: Annotated[float, Limits(1e-6)] = flag(
        INFONCE["temperature"],
        "What similarities are divided by. CLIP: 0.07 at first.",
    )
    learn_temperature: bool = flag(
        False,
        "Learn it from there on, down to 0.01. CLIP does.",
    )
    margin: Amount | None = flag(None, "Gap of the hinge, a distance.")
    negatives: str | None = flag(
        None,
        "Negatives of a positive pair: the --num_negatives hardest of the "
        "batch (Wang), all (Kiros, Vilalta), or the hardest (VSE++).",
        choices=NEGATIVES,
    )
    num_negatives: Count | None = flag(
        None,
        "K. Wang 2016: 50; 2018: 10.",
    )
    structure_epochs: Amount = flag(
        0.0,
        "Epochs before the terms within a view count. Wang 2018: 0; of "
        "phrases 8, and 2 with them.",
    )
    distance: str | None = flag(
        None, "Wang: euclidean.", choices=tuple(DISTANCES)
    )
    reduction: str | None = flag(
        None,
        "Over the triplets of a term: sum, mean, or mean of those above 0.",
        choices=REDUCTIONS,
    )
    image_to_text_weight: Amount | None = flag(None, "Weight of that term.")
    text_to_image_weight: Amount | None = flag(None, "Weight of that term.")
    text_to_text_weight: Amount | None = flag(None, "Weight of that term.")
    image_to_image_weight: Amount | None = flag(None, "Weight of that term.")

    @property
    def kind(self) -> str:
        """`triplet` for the losses of papers, else the name of the loss."""
        return "triplet" if self.loss in PRESETS else self.loss


LOSS_FLAGS = {
    "triplet": ("margin", "negatives", "distance", "reduction"),
    "infonce": ("temperature", "learn_temperature"),
}
"""`LossSettings.kind` -> flags that only this kind reads."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings:
    """Pairs, and the head that scores them."""

    head_units: Counts = flag(
        [512, 256],
        "Sizes of the FC layers between the product of two embeddings and the "
        "last one, of one unit. Wang 2018: 512,256; 256: two layers; empty: "
        "one.",
    )
    head_dropout: Rate = flag(0.0, "Rate after each of their ReLUs.")
    product_scale: Amount = flag(
        0.0,
        "What the product is multiplied by; 0: by its size, which makes its "
        "entries about 1. Wang 2018: 1.",
    )
    pair_loss: str = flag(
        "logistic",
        "logistic: of each pair for itself, as many wrong ones as right "
        "(Wang 2018). softmax: of each right one among all wrong ones of the "
        "batch (of phrases: --candidates_per_image of the photo), at the cost "
        "of the head for each.",
        choices=PAIR_LOSSES,
    )
    num_candidates: Count = flag(
        1,
        "Wrong captions (of phrases: regions) drawn for each matching pair, of "
        "which the one judged best is the negative. Wang 2018: 1.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CcaSettings:
    """Canonical correlation analysis."""

    cca_dim: Whole = flag(
        0,
        "Size of the shared space of CCA; 0: 256, or as many as the features "
        "of the smaller side, if these are fewer.",
    )
    cca_regularization: Amount = flag(
        0.5,
        "Share of a side's mean variance that is added to the variance of "
        "each of its features.",
    )
    cca_power: Amount = flag(
        4.0,
        "A direction weighs (1 + its correlation) to this power. Gong 2014: 4.",
    )
    cca_background: Amount = flag(
        0.0,
        "What regions without words, --candidates_per_image of a photo, count "
        "for beside the pairs of phrase and region: 1: as much as all pairs; "
        "0: nothing. The papers tell of none.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """Batches."""

    images_per_batch: Annotated[int, Limits(2)] = flag(
        500,
        "Images a batch; the others of it are an image's negatives. Wang 2018: "
        "500; 2016: 1500.",
    )
    captions_per_image: Count = flag(2, "Captions of each. Wang: 2.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Training."""

    epochs: Count = flag(30, "Passes over the images.", free=True)
    patience: Whole = flag(
        0,
        "Stop after this many epochs without a better dev split; 0: never.",
        free=True,
    )
    precision: str = flag(
        "float32",
        "Keras dtype policy of the layers; loss and embeddings stay float32.",
        choices=("float32", "mixed_bfloat16"),
    )
    jit_compile: bool = flag(False, "Compile by XLA; for accelerators.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """Optimizer."""

    optimizer: str = flag(
        "adam",
        "sgd (Wang 2016), adam (2018), adamw, or with the addons extra one of "
        "tensorflow-addons by its name, such as LAMB.",
    )
    learning_rate: _Positive = flag(
        2e-4, "Wang 2016: 0.1 (sgd); 2018: 1e-4 on features, 2e-4 with LSTM."
    )
    momentum: Rate = flag(0.9, "Of sgd. Wang 2016: 0.9.")
    weight_decay: Amount = flag(
        0.0,
        "Decoupled from the gradient. Wang 2016: 5e-4.",
    )
    schedule: str = flag(
        "constant",
        "How the learning rate falls. Wang 2016: step.",
        choices=("constant", "step", "exponential", "cosine"),
    )
    decay_rate: Annotated[float, Limits(0, 1, above=True)] = flag(
        0.1, "Factor of step and exponential."
    )
    decay_epochs: _Positive = flag(10.0, "Epochs to each such factor.")
    clip_norm: Amount = flag(0.0, "Largest gradient norm; 0: any. Kiros: 2.")
