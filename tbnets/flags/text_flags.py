"""Flags of the texts, and of what reads them."""

from tbnets.flags.flag import Flag, Limits, Other
from tbnets.layers.word_table import TRAININGS
from tbnets.text.word_tables import MISSING

_WORDS = ({"text_encoder": Other("features")},)
_NEW_WORDS = ({"text_encoder": Other("features"), "word_vectors": ("",)},)
_WORD_VECTORS = (
    {"text_encoder": Other("features"), "word_vectors": Other("")},
)
_RECURRENT = ({"text_encoder": ("lstm", "gru")},)
_STATES = ({"text_encoder": ("lstm", "gru", "h_lstm")},)
_TREES = ({"text_encoder": ("h_lstm",)},)

_COUNT = Limits(at_least=1)
_NOT_NEGATIVE = Limits(at_least=0)

TEXT_FLAGS = (
    Flag(
        "text_encoder",
        "string",
        "lstm",
        "What reads captions. lstm: Wang 2018; gru: Vilalta 2017; h_lstm: "
        "Niu 2017; mean: of word vectors; features: --text_features.",
        ("mean", "lstm", "gru", "h_lstm", "features"),
    ),
    Flag(
        "trees",
        "string",
        "",
        "Trees of the captions, of tools/parse_captions.py; empty with "
        "--scenes: theirs.",
        when=_TREES,
        is_place=True,
    ),
    Flag(
        "tied_children",
        "bool",
        False,
        "Noun phrases share the other children's matrices: Tai 2015.",
        when=_TREES,
    ),
    Flag(
        "text_features",
        "string",
        "",
        "Features of the captions: a store of "
        "tools/extract_text_features.py, or a .npy with a row a caption; "
        "may hold {split}.",
        when=({"text_encoder": ("features",)},),
        is_place=True,
    ),
    Flag(
        "min_count",
        "integer",
        1,
        "Times a word must stand in the training captions to be known.",
        when=_WORDS,
        limits=_COUNT,
    ),
    Flag(
        "max_words",
        "integer",
        0,
        "Most frequent words kept; 0: all.",
        when=_WORDS,
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "max_tokens",
        "integer",
        0,
        "Words kept of a caption; 0: all of them.",
        when=_WORDS,
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "word_dim",
        "integer",
        256,
        "Word vector size. Wang 2018: 256.",
        when=_NEW_WORDS,
        limits=_COUNT,
    ),
    Flag(
        "word_vectors",
        "string",
        "",
        "First vectors of the words: word2vec file (binary or text) or "
        "GloVe file; empty: random ones of --word_dim.",
        when=_WORDS,
        is_place=True,
    ),
    Flag(
        "word_vectors_training",
        "string",
        "trained",
        "What training does to them. trained: any change; regularized: "
        "their squared distance from the first ones costs "
        "--word_vectors_weight; frozen: none.",
        TRAININGS,
        _WORD_VECTORS,
    ),
    Flag(
        "word_vectors_weight",
        "float",
        0.001,
        "Weight of the squared distance from the first vectors, summed "
        "over all words.",
        when=(
            {
                "text_encoder": Other("features"),
                "word_vectors": Other(""),
                "word_vectors_training": ("regularized",),
            },
        ),
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "word_vectors_scale",
        "float",
        0.05,
        "Take the mean away from the vectors, and scale them to this "
        "standard deviation; 0: as in the file, for frozen ones.",
        when=_WORD_VECTORS,
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "new_word_dims",
        "integer",
        0,
        "Numbers that are learned of each word beside its vector.",
        when=(
            {
                "text_encoder": Other("features"),
                "word_vectors": Other(""),
                "word_vectors_training": Other("frozen"),
            },
        ),
        limits=_NOT_NEGATIVE,
    ),
    Flag(
        "missing_vectors",
        "string",
        "random",
        "What words without a vector get. random: numbers of the mean and "
        "spread of those that have one; mean: their mean; zero.",
        MISSING,
        _WORD_VECTORS,
    ),
    Flag(
        "word_dropout",
        "float",
        0.0,
        "Rate on word vectors. Papers: 0.",
        when=_WORDS,
        limits=Limits(at_least=0, below=1),
    ),
    Flag(
        "rnn_units",
        "integer",
        512,
        "State size. Wang 2018: 512.",
        when=_STATES,
        limits=_COUNT,
    ),
    Flag(
        "bidirectional",
        "bool",
        False,
        "Read captions both ways.",
        when=_RECURRENT,
    ),
    Flag(
        "pooling",
        "string",
        "last",
        "Which recurrent states make the text feature. Papers: last.",
        ("last", "mean", "max"),
        _RECURRENT,
    ),
    Flag(
        "mean_beside",
        "bool",
        False,
        "Append the mean of a caption's word vectors to its states; of a tree, "
        "to each node's that of its own words.",
        when=_STATES,
    ),
    Flag(
        "equal_texts_match",
        "bool",
        False,
        "A text that stands on two images matches both; a phrase, things "
        "that are called the same, and none of its photo is its negative.",
    ),
)
