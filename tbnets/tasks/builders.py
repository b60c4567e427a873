"""Builds networks, losses and optimizers from settings."""

import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import keras

from tbnets.checks import checked_number
from tbnets.errors import InputError, check_choice
from tbnets.features import hub, image_encoders
from tbnets.features.photo_features import RANDOM
from tbnets.layers import text_encoders
from tbnets.layers.branch import Branch
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.heads import CanonicalProjection, PairHead
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses.presets import TERMS
from tbnets.losses.triplet import TripletLoss
from tbnets.models.cca import CCA
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.hm_lstm import HMLSTM
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.seeds import seed_of
from tbnets.startup import allow_tensor_float_32, no_accelerator
from tbnets.tasks.settings.learning_groups import LOSSES
from tbnets.tasks.settings.settings import Settings, unused_flags
from tbnets.tasks.texts import text_preset
from tbnets.text.packed_trees import TreeRows
from tbnets.training.optimizers import build_optimizer, build_schedule


def build_image_encoder(settings: Settings, fitted):
    """Returns the layer that encodes images."""
    if settings.image_encoder == "features":
        return FeatureTransform(settings.features.image_transform)
    if hub.is_hub(settings.image_encoder):
        return _build_preset_encoder(settings, fitted["image_preset"])
    checked_number("image_size", settings.images.image_size, 1, whole=True)
    if settings.image_encoder == "small":
        return image_encoders.SmallConvNet()
    weights = settings.features.cnn_weights or "imagenet"
    if weights not in (RANDOM, "imagenet"):
        weights = pathlib.Path(settings.started_in) / weights
    weights = None if weights == RANDOM else weights
    options = settings.images.image_size, weights, settings.images.fine_tune
    return image_encoders.ApplicationEncoder(settings.image_encoder, *options)


def _build_preset_encoder(settings: Settings, config):
    size, preset = settings.images.image_size or None, json.dumps(config)
    weights = settings.features.cnn_weights
    check_choice("--cnn_weights", weights, ("", RANDOM), "Leave it out.")
    if weights != RANDOM:
        name = settings.image_encoder
        name = hub.placed(name, *settings.sources().starts)
        preset = hub.package().open_preset(name, "image", size)
    encoder = hub.package().PresetEncoder
    return encoder(preset, size, settings.images.fine_tune)


def build_text_encoder(settings: Settings, fitted):
    """Returns the layer that encodes texts, or None for text features."""
    if settings.reads_text_features:
        return None
    if settings.reads_captions_by_preset:
        return hub.package().HubTextEncoder.of(text_preset(settings))
    options, words = settings.texts, len(fitted["words"])
    table = fitted.get("word_vectors")
    common = {
        "embedding_dim": options.word_dim if table is None else table.shape[1],
        "word_dropout": options.word_dropout,
        "seed": seed_of(settings.run.seed, "text_encoder"),
    }
    if table is not None or settings.run.from_:
        common["word_training"] = options.word_vectors_training
    if options.text_encoder == "mean":
        return text_encoders.MeanOfWords(words, **common)
    common |= {"units": options.rnn_units, "mean_beside": options.mean_beside}
    if options.text_encoder == "h_lstm":
        return TreeEncoder(words, **common)
    return text_encoders.RecurrentEncoder(words, options.text_encoder, **common)


class Builder(NamedTuple):
    """The functions and flags with which a model is built and compiled.

    Args:
        build: function that takes the settings and the result of `Task.fit`,
            and returns a built Keras model.
        compile: function that takes (network, settings, steps_per_epoch,
            mining), with the task's `mining`.
        flag_groups: names of the `Settings` groups that the functions read.
        fixed: (flag, value) pairs that the model fixes, such as one epoch.
        usual: (flag, value) pairs of the model's defaults, which a run prints.
        tasks: names of the supported tasks, or () for all tasks.
    """

    build: Callable
    compile: Callable
    flag_groups: tuple
    fixed: tuple = ()
    usual: tuple = ()
    tasks: tuple = ()


def _built(network, settings: Settings, fitted):
    shapes = {"images": (None, fitted["image_dim"])}
    shapes["captions"] = (None, fitted["text_dim"])
    if settings.image_encoder != "features":
        size = getattr(
            network.image_encoder, "image_size", settings.images.image_size
        )
        shapes["images"] = (None, size, size, 3)
    if settings.texts.text_encoder == "h_lstm":
        shapes["captions"] = (None, *TreeRows.shape)
    if "region_dim" in fitted:
        shapes["regions"] = (None, fitted["region_dim"])
    network.build(shapes)
    if fitted.get("word_vectors") is not None:
        table = network.text_encoder.embedding.embeddings
        table.assign(fitted["word_vectors"])
    return network


def _build_branch(settings: Settings, name):
    options = settings.branches
    is_text = name == "text_branch"
    units = options.text_units if is_text else options.image_units
    return Branch(
        units,
        options.batch_normalization,
        options.dropout,
        options.input_dropout,
        seed_of(settings.run.seed, name),
    )


def _two_branches(settings: Settings, fitted):
    """Sets the seed and the precision, and builds branches and encoders."""
    keras.utils.set_random_seed(settings.run.seed)
    keras.mixed_precision.set_global_policy(settings.training.precision)
    allow_tensor_float_32(settings.training.tensor_float_32)
    return {
        "image_branch": _build_branch(settings, "image_branch"),
        "text_branch": _build_branch(settings, "text_branch"),
        "image_encoder": build_image_encoder(settings, fitted),
        "text_encoder": build_text_encoder(settings, fitted),
    }


def build_embedding_network(settings: Settings, fitted):
    """Returns a built `EmbeddingNetwork`, initialised from the seed.

    `fitted` contains `words`, `image_dim`, `text_dim` and optionally
    `word_vectors`.
    """
    layers = _two_branches(settings, fitted)
    return _built(EmbeddingNetwork(**layers), settings, fitted)


def build_similarity_network(settings: Settings, fitted):
    """Returns a built `SimilarityNetwork`, initialised from the seed."""
    branches = _two_branches(settings, fitted)
    units = settings.pairs.head_units
    seed = seed_of(settings.run.seed, "head")
    head = PairHead(units, settings.pairs.head_dropout, seed=seed)
    return _built(SimilarityNetwork(**branches, head=head), settings, fitted)


def build_hm_lstm(settings: Settings, fitted):
    """Returns a built `HMLSTM`, initialised from the seed."""
    layers = _two_branches(settings, fitted)
    if settings.correspondences.region_branch == "own":
        layers["region_branch"] = _build_branch(settings, "region_branch")
        transform = FeatureTransform(settings.features.image_transform)
        layers["region_encoder"] = transform
    return _built(HMLSTM(**layers), settings, fitted)


BACKGROUND = 0.5
"""Weight of regions without a phrase in CCA, relative to the pairs."""


def build_cca(settings: Settings, fitted):
    """Returns a built `CCA`, whose projections are not computed yet.

    Raises ValueError if word vectors would have to be learned by gradient
    descent.
    """
    texts = settings.texts
    frozen = texts.word_vectors and texts.word_vectors_training == "frozen"
    if not settings.reads_text_features and not (
        texts.text_encoder == "mean" and frozen
    ):
        raise InputError(
            "--text_encoder",
            "be features, or mean with frozen word vectors, with --model=cca, "
            "which is not trained by gradients",
            f"--text_encoder={texts.text_encoder}",
            "Set --text_encoder=features and "
            "--text_features=features/tfidf.flags, or --text_encoder=mean, "
            "--word_vectors and --word_vectors_training=frozen.",
        )
    keras.utils.set_random_seed(settings.run.seed)
    keras.mixed_precision.set_global_policy("float32")
    allow_tensor_float_32(False)
    regions, phrases = settings.regions, settings.phrases
    has_candidates = regions and regions.regions and phrases
    has_candidates = has_candidates and phrases.negative_regions == "photo"
    background = BACKGROUND if has_candidates else 0.0
    encoder = build_text_encoder(settings, fitted)
    text_dim = encoder.output_dim if encoder else fitted["text_dim"]
    known = filter(None, (fitted["image_dim"], text_dim))
    dim = settings.cca.cca_dim or min(256, *known)
    network = CCA(
        image_branch=CanonicalProjection(dim),
        text_branch=CanonicalProjection(dim, background > 0),
        image_encoder=build_image_encoder(settings, fitted),
        text_encoder=encoder,
        regularization=settings.cca.cca_regularization,
        power=settings.cca.cca_power,
        background=background,
    )
    return _built(network, settings, fitted)


def build_loss(settings: Settings):
    """Returns the loss. Raises ValueError if all its terms have weight 0."""
    weights = settings.loss.term_weights
    if not any(weights.values()):
        raise InputError(
            f"`--{TERMS[0]}_weight` or another weight must be > 0. Received: "
            f"{weights}. Raise a weight."
        )
    kind, arguments = LOSSES[settings.loss.loss]
    values, unused = settings.values(), unused_flags(settings)
    names = arguments.keys() & values.keys() - unused.keys()
    options = {name: values[name] for name in names}
    if kind is TripletLoss:
        # Sparse gradients are faster on CPUs. XLA compiles only dense ones.
        is_sparse = no_accelerator() and not settings.training.jit_compile
        options["gradient"] = "sparse" if is_sparse else "dense"
    return kind(term_weights=weights, **options)


def first_hard_epoch(settings: Settings):
    """Returns the 0-based epoch from which hard negatives are used, or None.

    Raises ValueError if every epoch would use hard negatives.
    """
    phrases, epochs = settings.phrases, settings.epochs
    last = phrases.hard_negative_epochs if phrases else 0
    if last and last >= epochs:
        raise InputError(
            "--hard_negative_epochs",
            "be < --epochs, because hard negatives need a trained network",
            f"--hard_negative_epochs={last} with --epochs={epochs}",
            "Lower it, or raise --epochs.",
        )
    return epochs - last if last else None


def _build_optimizer(settings: Settings, steps_per_epoch):
    options = settings.optimizer
    rate = build_schedule(
        options.schedule,
        options.learning_rate,
        decay_steps=options.decay_epochs * steps_per_epoch,
        total_steps=settings.epochs * steps_per_epoch,
    )
    return build_optimizer(
        options.optimizer,
        rate,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
    )


def compile_embedding_network(
    network, settings: Settings, steps_per_epoch, mining=None
):
    """Compiles an embedding network or `HMLSTM` with its loss and optimizer."""
    regions, options = settings.correspondences, {}
    if regions:
        options["region_mean_weight"] = regions.region_mean_weight
    fine_tuned = first_hard_epoch(settings)
    network.compile(
        _build_optimizer(settings, steps_per_epoch),
        build_loss(settings),
        gradient_clip_norm=settings.optimizer.clip_norm or None,
        structure_steps=settings.loss.structure_epochs * steps_per_epoch,
        structure_end=fine_tuned and fine_tuned * steps_per_epoch,
        mining=mining,
        jit_compile=settings.training.jit_compile,
        encode_chunk=settings.training.encode_chunk or None,
        **options,
    )


def compile_similarity_network(
    network, settings: Settings, steps_per_epoch, mining
):
    """Compiles a `SimilarityNetwork` with its pair loss and optimizer."""
    network.compile(
        _build_optimizer(settings, steps_per_epoch),
        gradient_clip_norm=settings.optimizer.clip_norm or None,
        num_candidates=settings.pairs.num_candidates,
        sampling_seed=settings.run.seed,
        pair_loss=settings.pairs.pair_loss,
        mining=mining,
        jit_compile=settings.training.jit_compile,
        encode_chunk=settings.training.encode_chunk or None,
    )


_BY_STEPS = ("branches", "training", "optimizer")
BUILDERS = {
    "embedding": Builder(
        build_embedding_network, compile_embedding_network, (*_BY_STEPS, "loss")
    ),
    "similarity": Builder(
        build_similarity_network,
        compile_similarity_network,
        (*_BY_STEPS, "pairs"),
    ),
    "hm_lstm": Builder(
        build_hm_lstm,
        compile_embedding_network,
        (*_BY_STEPS, "loss", "regions", "correspondences"),
        fixed=(("text_encoder", "h_lstm"),),
        tasks=("matching",),
    ),
    "cca": Builder(
        build_cca,
        lambda network, *_: network.compile(),
        ("cca",),
        fixed=(("epochs", 1), ("patience", 0)),
        usual=(
            ("text_encoder", "features"),
            ("text_features", "features/tfidf.flags"),
        ),
    ),
}
