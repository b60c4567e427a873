"""Settings of the texts, and of what reads them."""

import dataclasses

from tbnets.layers.text_encoders import TRAININGS
from tbnets.tasks.settings.flag import (
    PRESET,
    Amount,
    Count,
    OneOf,
    Place,
    Rate,
    Whole,
    flag,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts, and what reads them."""

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
    tied_children: bool = flag(
        False,
        "Noun phrases share the other children's matrices: Tai 2015.",
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
    pooling: str = flag(
        "last",
        "Which recurrent states make the text feature. Papers: last.",
        choices=("last", "mean", "max"),
    )
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
