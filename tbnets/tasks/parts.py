"""Settings -> parts: the one place where flags meet constructors.

Each function takes the run's settings (see `flags`) and returns one part:
network, loss, reader of photos; `inputs` does the same for the data. `runs`
puts the parts together for training, `open_run` for everything after it.
"""

import pathlib

import keras
import tensorflow as tf

from tbnets import flags
from tbnets.features.full_network import ternary
from tbnets.features.full_network import ternary_bounds
from tbnets.features.photo_features import open_photo_features
from tbnets.images import decode_images
from tbnets.layers import image_encoders
from tbnets.layers import text_encoders
from tbnets.layers.branch import Branch
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.store.shards import open_store
from tbnets.store.shards import read_made_by
from tbnets.tasks import inputs
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import checkpoints


def _build_image_encoder(settings):
    if settings.image_encoder == "features":
        return FeatureTransform(tuple(settings.image_transform))
    if settings.image_encoder == "small":
        return image_encoders.SmallConvNet()
    return image_encoders.ApplicationEncoder(
        settings.image_encoder,
        settings.image_size,
        settings.image_weights or None,
        settings.fine_tune,
    )


def _build_text_encoder(settings, vocabulary):
    if settings.text_encoder == "features":
        return None
    if settings.text_encoder == "mean":
        return text_encoders.MeanOfWords(
            len(vocabulary),
            settings.word_dim,
            settings.word_dropout,
            seed=settings.seed * 1000 + 300,
        )
    return text_encoders.RecurrentEncoder(
        len(vocabulary),
        settings.text_encoder,
        embedding_dim=settings.word_dim,
        units=settings.rnn_units,
        bidirectional=settings.bidirectional,
        pooling=settings.pooling,
        word_dropout=settings.word_dropout,
        seed=settings.seed * 1000 + 300,
    )


def input_shapes(settings, image_dim=None, text_dim=None):
    """Returns the dict of shapes `EmbeddingNetwork.build` takes.

    Args:
        settings: the run's settings.
        image_dim: size of the image features, where there are any.
        text_dim: size of the text features, where there are any.
    """
    images = (None, image_dim)
    if settings.image_encoder != "features":
        images = (None, settings.image_size, settings.image_size, 3)
    return {"images": images, "captions": (None, text_dim)}


def build_network(settings, vocabulary, image_dim=None, text_dim=None):
    """Returns a built `EmbeddingNetwork` with initial weights from the seed.

    Args:
        settings: the run's settings.
        vocabulary: `Vocabulary`, or None with text features.
        image_dim: size of the image features, where there are any.
        text_dim: size of the text features, where there are any.
    """
    keras.utils.set_random_seed(settings.seed)
    keras.mixed_precision.set_global_policy(settings.precision)
    common = {
        "batch_normalization": settings.batch_normalization,
        "dropout": settings.dropout,
        "input_dropout": settings.input_dropout,
    }
    network = EmbeddingNetwork(
        image_branch=Branch(
            settings.image_units, seed=settings.seed * 1000 + 100, **common
        ),
        text_branch=Branch(
            settings.text_units, seed=settings.seed * 1000 + 200, **common
        ),
        image_encoder=_build_image_encoder(settings),
        text_encoder=_build_text_encoder(settings, vocabulary),
    )
    network.build(input_shapes(settings, image_dim, text_dim))
    return network


def build_photo_reader(settings, state):
    """Returns what turns encoded photos into the network's input.

    Args:
        settings: the run's settings.
        state: the `RunState`, which knows what made the image features.

    Returns:
        Function string `[n]` -> float32 `[n, ...]`; None where the network
        takes features and `cnn_weights` names no network for them.

    Raises:
        ValueError: the features' making is unknown, or differs from that of
            the weights or of the store.
    """
    if settings.image_encoder != "features":
        return lambda photos: decode_images(photos, settings.image_size)
    if not settings.cnn_weights:
        return None
    source = state.image_source
    if "cnn" not in source:
        raise ValueError(
            "`--cnn_weights` must come with features that "
            "tools/extract_image_features.py made. Received: --image_features="
            f"{settings.image_features}, which do not tell what made them, or "
            "are several side by side. Extract them by that tool, all layers "
            "at once, or leave --cnn_weights out."
        )
    weights = settings.cnn_weights
    if weights != "imagenet":
        weights = inputs.resolve(settings, weights)
    features = open_photo_features(source, weights)
    if "ternary" not in source:
        return features
    [path] = inputs.feature_paths(settings, settings.train_split)[0]
    store = open_store(path)
    inputs.check_made_alike(store.made_by, path, source, "the run")
    low, high = source["ternary"]["low"], source["ternary"]["high"]
    bounds = ternary_bounds(**store.statistics, low=low, high=high)
    return lambda photos: tf.cast(
        ternary(features(photos), *bounds), tf.float32
    )


def build_loss(settings):
    """Returns the `TripletLoss` of the settings."""
    terms = ("image_to_text", "text_to_image", "text_to_text", "image_to_image")
    return TripletLoss(
        margin=settings.margin,
        num_negatives=settings.num_negatives,
        term_weights={
            term: getattr(settings, f"{term}_weight") for term in terms
        },
        distance=settings.distance,
        reduction=settings.reduction,
        negatives=settings.negatives,
        # A batch holds every image once, see `data.batches.sample_epoch`.
        max_positives=None
        if settings.equal_texts_match
        else settings.captions_per_image,
    )


def open_run(run_dir, checkpoint="best", more_splits=()):
    """Rebuilds the network of a run with the weights of a checkpoint.

    Args:
        run_dir: folder made by `tools/train.py`.
        checkpoint: `best` or `last`.
        more_splits: splits that the run was not started with, whose image
            features are wanted too.

    Returns:
        (network, vocabulary, settings, state): the built network, its
        `Vocabulary` (None with text features), the run's settings and the
        `RunState` of the checkpoint.

    Raises:
        ValueError: the folder is no run, the checkpoint is damaged, or the
            image features of the run were since extracted otherwise.
    """
    settings = flags.read_settings(run_dir)
    path = pathlib.Path(run_dir) / "checkpoints" / f"{checkpoint}.npz"
    if not path.exists():
        raise ValueError(
            "`run_dir` must hold a finished epoch. Received: "
            f"run_dir={run_dir}, without {path}. Let it train longer."
        )
    _, _, state = checkpoints.read_checkpoint(path)
    if state.image_source:
        splits = (settings.train_split, settings.dev_split, settings.test_split)
        for paths in inputs.feature_paths(settings, *splits, *more_splits):
            inputs.check_made_alike(
                read_made_by(*paths),
                ", ".join(paths),
                state.image_source,
                path,
            )
    vocabulary = Vocabulary(state.words) if state.words else None
    network = build_network(settings, vocabulary, **state.dims)
    checkpoints.restore_checkpoint(path, network)
    return network, vocabulary, settings, state
