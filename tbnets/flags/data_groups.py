"""Flags of the run itself, and of what it reads."""

from tbnets.data.captions import READERS
from tbnets.flags.flag import Flag
from tbnets.flags.flag import Limits
from tbnets.flags.flag import Other
from tbnets.flags.phrase_flags import PHRASE_FLAGS
from tbnets.layers.word_table import TRAININGS
from tbnets.text.word_tables import MISSING

DATA_ROOT_VARIABLE = "TBNETS_DATA"

_CAPTION_FILES = ({"scenes": ("",)},)
_PIXELS = ({"image_encoder": Other("features")},)
_FEATURES = ({"image_encoder": ("features",)},)
_OWN_PHOTOS = (
    {
        "image_encoder": ("features",),
        "image_features": ("",),
        "images": Other(""),
        "scenes": ("",),
    },
)
_NETWORK = ({"image_encoder": Other(("features", "small"))},)
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

DATA_GROUPS = {
    "run": (
        Flag(
            "run_dir",
            "string",
            "",
            "Folder of the run; runs/FOLDER for the photos of --images=FOLDER "
            "alone.",
            is_place=True,
            free=True,
        ),
        Flag("task", "string", "matching", "What the run is about."),
        Flag("model", "string", "embedding", "What is trained for it."),
        Flag(
            "export",
            "bool",
            True,
            "Write a SavedModel of the best epoch.",
            free=True,
        ),
        Flag(
            "evaluate_memory",
            "integer",
            512,
            "Memory of an evaluation, MiB.",
            free=True,
            limits=_COUNT,
        ),
    ),
    "captions": (
        Flag(
            "captions_format",
            "string",
            "karpathy",
            "Format of --captions; docs/data_formats.md describes each. Not "
            "given, table for a .csv, .tsv or .jsonl.",
            tuple(READERS),
            _CAPTION_FILES,
        ),
        Flag(
            "data_root",
            "string",
            "data",
            "Folder that relative data paths start from. Not given on the "
            f"command line, the environment variable {DATA_ROOT_VARIABLE} "
            "says it, then a flagfile.",
            is_place=True,
            free=True,
        ),
        Flag(
            "scenes",
            "string",
            "",
            "Folder of the embedded data set, rendered there when absent; "
            "takes the place of --captions and --images.",
            is_place=True,
        ),
        Flag(
            "num_scenes",
            "integers",
            ("2000", "250", "250"),
            "Scenes to render for train,dev,test with --scenes.",
            when=({"scenes": Other("")},),
            limits=Limits(at_least=0, at_most=1_000_000, length=3),
        ),
        Flag(
            "captions",
            "string",
            "",
            "File or folder of captions; may hold {split}.",
            when=_CAPTION_FILES,
            is_place=True,
        ),
        Flag(
            "split_lists",
            "string",
            "",
            "Lists of photos, one a line, that take the place of the "
            "captions' own splits, such as flickr30k/{split}.txt.",
            when=_CAPTION_FILES,
            is_place=True,
        ),
        Flag("train_split", "string", "train", "Split that is learned from."),
        Flag(
            "dev_split", "string", "dev", "Split that chooses the best epoch."
        ),
        Flag(
            "test_split",
            "string",
            "test",
            "Split that is reported once, at the end.",
        ),
    ),
    "images": (
        Flag(
            "image_encoder",
            "string",
            "features",
            "features: --image_features, or features of --images by --cnn, go "
            "straight to the branch; small: a small convolutional network; or "
            "EfficientNetLite0 to 2, "
            "SqueezeNet or a network of keras.applications by name.",
        ),
        Flag(
            "cnn",
            "string",
            "EfficientNetLite0",
            "Network whose last layer makes the features of --images.",
            when=_OWN_PHOTOS,
        ),
        Flag(
            "cache",
            "string",
            "",
            "Folder to keep these features in; empty: FOLDER.tbnets beside "
            "--images=FOLDER.",
            when=_OWN_PHOTOS,
            is_place=True,
            free=True,
        ),
        Flag(
            "image_size",
            "integer",
            64,
            "Side of the decoded image, pixels.",
            when=_PIXELS,
            limits=_COUNT,
        ),
        Flag(
            "image_weights",
            "string",
            "",
            "Weights of a network by name: imagenet (EfficientNetLite: as pip "
            "installed it; others: fetched by Keras), or a file; empty: "
            "random.",
            when=_NETWORK,
            is_place=True,
        ),
        Flag(
            "fine_tune",
            "bool",
            False,
            "Train the network by name too.",
            when=_NETWORK,
        ),
        Flag(
            "image_features",
            "string",
            "",
            "Features of the images: a store of "
            "tools/extract_image_features.py, or a .npy with ids beside it in "
            "_ids.txt; may hold {split}. Several, with commas between, are "
            "put side by side by id. Instead of --images.",
            when=_FEATURES,
            is_place=True,
        ),
    ),
    "features": (
        Flag(
            "images",
            "string",
            "",
            "Folder of image files, to train from pixels, or from features "
            "that --cnn extracts of them; of phrase localization, to draw "
            "what it finds.",
            when=(
                {"image_encoder": Other("features"), "scenes": ("",)},
                {"image_features": ("",), "scenes": ("",)},
                {"cnn_weights": Other(""), "scenes": ("",)},
            ),
            is_place=True,
        ),
        Flag(
            "image_transform",
            "list",
            (),
            "Rescaling of features of images or regions, inside the model, in "
            "this order: signed_sqrt, l2, then center, standardize or ternary "
            "(Vilalta 2017) by the training split.",
            when=_FEATURES,
        ),
        Flag(
            "cnn_weights",
            "string",
            "",
            "Weights of --cnn: imagenet, a file, or random. With "
            "--image_features of tools/extract_image_features.py: those they "
            "were made with, so that the exported model starts at the photo; "
            "empty: it starts at the features.",
            when=_FEATURES,
            is_place=True,
            free=True,
        ),
    ),
    "phrases": PHRASE_FLAGS,
    "texts": (
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
            "Trees of the captions, of tools/parse_captions.py.",
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
            "Append the mean of a caption's word vectors to its states.",
            when=_RECURRENT,
        ),
        Flag(
            "equal_texts_match",
            "bool",
            False,
            "A text that stands on two images matches both; a phrase, things "
            "of other photos that are called the same.",
        ),
    ),
}
