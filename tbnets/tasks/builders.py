"""Builds networks, losses and optimizers from settings."""

import json
from collections.abc import Callable
from typing import NamedTuple

import keras

from tbnets.checks import checked_number
from tbnets.errors import InputError, check_choice
from tbnets.features import hub, image_encoders
from tbnets.features.photo_features import RANDOM
from tbnets.layers import text_encoders
from tbnets.layers.branch import Branch, CanonicalProjection, PairHead
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses.presets import TERMS
from tbnets.losses.triplet import TripletLoss
from tbnets.models.cca import CCA
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.hm_lstm import HMLSTM
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.seeds import seed_of
from tbnets.startup import allow_tensor_float_32, no_accelerator
from tbnets.tasks.photo_readers import weights_of_run
from tbnets.tasks.settings.learning_groups import LOSSES, TrainingSettings
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.texts import text_preset
from tbnets.text.packed_trees import TreeRows
from tbnets.training.optimizers import build_optimizer, build_schedule


def build_image_encoder(settings: Settings, fitted):
    """Returns the layer that encodes images."""
    if settings.image_encoder == "features":
        return FeatureTransform(settings.features.image_transform)
    if hub.is_hub(settings.image_encoder):
        return _build_preset_encoder(settings, fitted.get("image_preset", {}))
    checked_number("image_size", settings.images.image_size, 1, whole=True)
    if settings.image_encoder == "small":
        return image_encoders.SmallConvNet()
    weights = weights_of_run(settings, settings.sources()) or "imagenet"
    weights = None if weights == RANDOM else weights
    options = settings.images.image_size, weights, settings.images.fine_tune
    return image_encoders.ApplicationEncoder(settings.image_encoder, *options)


def _build_preset_encoder(settings: Settings, config):
    size, preset = settings.images.image_size or None, json.dumps(config)
    weights = settings.features.cnn_weights
    check_choice("--cnn_weights", weights, ("", RANDOM))
    if weights != RANDOM:
        name = settings.image_encoder
        name = hub.placed(name, *settings.sources().starts)
        preset = hub.package().open_preset(name, "image", size)
    encoder = hub.package().PresetEncoder
    return encoder(preset, size, settings.images.fine_tune)


def build_text_encoder(settings: Settings, fitted):
    """Returns the layer that encodes texts, or None for text features."""
    of_features = settings.texts.are_features
    if not settings.texts.learns_words:
        return None if of_features else text_preset(settings).layer()
    options, words = settings.texts, len(fitted["words"])
    table = fitted.get("word_vectors")
    common = {
        "embedding_dim": options.word_dim if table is None else table.shape[1],
        "word_dropout": options.word_dropout,
        "seed": seed_of(settings.run.seed, "text_encoder"),
    }
    if table is not None or settings.run.from_:
        common["word_training"] = options.word_vectors_training
    if of_features:
        return text_encoders.FeaturesAndMean(
            words, fitted["text_dim"], **common
        )
    if options.text_encoder == "mean":
        return text_encoders.MeanOfWords(words, **common)
    common |= {"units": options.rnn_units, "mean_beside": options.mean_beside}
    if options.text_encoder == "h_lstm":
        return TreeEncoder(words, **common)
    return text_encoders.RecurrentEncoder(words, options.text_encoder, **common)


def build_branch(settings: Settings, name):
    """Returns the `Branch` for an argument of a network, such as `text_branch`.

    `name` is a key of `seeds.STREAMS`.
    """
    options = settings.branches
    is_text = name == "text_branch"
    return Branch(
        options.text_units if is_text else options.image_units,
        options.batch_normalization,
        options.dropout,
        options.input_dropout,
        seed_of(settings.run.seed, name),
    )


def two_branches(settings: Settings, fitted):
    """Returns the layers of a `TwoBranchModel`, as a dict of its arguments."""
    return {
        "image_branch": build_branch(settings, "image_branch"),
        "text_branch": build_branch(settings, "text_branch"),
        "image_encoder": build_image_encoder(settings, fitted),
        "text_encoder": build_text_encoder(settings, fitted),
    }


def create_embedding_network(settings: Settings, fitted):
    """Returns an `EmbeddingNetwork`."""
    return EmbeddingNetwork(**two_branches(settings, fitted))


def create_similarity_network(settings: Settings, fitted):
    """Returns a `SimilarityNetwork`."""
    layers = two_branches(settings, fitted)
    seed = seed_of(settings.run.seed, "head")
    head = PairHead(
        settings.pairs.head_units, settings.pairs.head_dropout, seed=seed
    )
    return SimilarityNetwork(**layers, head=head)


def create_hm_lstm(settings: Settings, fitted):
    """Returns an `HMLSTM`."""
    layers = two_branches(settings, fitted)
    if settings.correspondences.region_branch == "own":
        layers["region_branch"] = build_branch(settings, "region_branch")
        transform = FeatureTransform(settings.features.image_transform)
        layers["region_encoder"] = transform
    return HMLSTM(**layers)


BACKGROUND = 0.5
"""Weight of regions without a phrase in CCA, relative to the pairs."""


def create_cca(settings: Settings, fitted):
    """Returns a `CCA`, whose projections are not computed yet."""
    regions, phrases = settings.regions, settings.phrases
    has_candidates = regions and regions.regions and phrases
    has_candidates = has_candidates and phrases.negative_regions == "photo"
    background = BACKGROUND if has_candidates else 0.0
    encoder = build_text_encoder(settings, fitted)
    text_dim = encoder.output_dim if encoder else fitted["text_dim"]
    known = filter(None, (fitted["image_dim"], text_dim))
    dim = settings.cca.cca_dim or min(256, *known)
    return CCA(
        image_branch=CanonicalProjection(dim),
        text_branch=CanonicalProjection(dim, background > 0),
        image_encoder=build_image_encoder(settings, fitted),
        text_encoder=encoder,
        regularization=settings.cca.cca_regularization,
        power=settings.cca.cca_power,
        background=background,
    )


class ModelSpec(NamedTuple):
    """A value of --model.

    Args:
        create: function that takes the settings and the `Fitted` values of
            the training data, and returns a Keras model.
        flag_groups: names of the `Settings` groups that the model reads.
        tasks: names of the tasks that the model supports; () for all.
        usual_files: names of the flag files in `configs/usual` that contain
            defaults for flags that the user left unset.
    """

    create: Callable
    flag_groups: tuple
    tasks: tuple = ()
    usual_files: tuple = ()


_STEPS = "branches", "training", "optimizer"
MODELS = {
    "embedding": ModelSpec(create_embedding_network, (*_STEPS, "loss")),
    "similarity": ModelSpec(create_similarity_network, (*_STEPS, "pairs")),
    "hm_lstm": ModelSpec(
        create_hm_lstm,
        (*_STEPS, "loss", "regions", "correspondences"),
        tasks=("matching",),
        usual_files=("hm_lstm",),
    ),
    "cca": ModelSpec(create_cca, ("cca",), usual_files=("cca",)),
}
"""Maps the values of --model to models."""


def build_network(settings: Settings, fitted):
    """Returns the built network of a run, initialised from the seed.

    `fitted` contains the `Fitted` values of the training data: at least
    `image_dim`, `text_dim` and, if the network learns words, `words`.
    """
    training = settings.training or TrainingSettings()
    keras.utils.set_random_seed(settings.run.seed)
    keras.mixed_precision.set_global_policy(training.precision)
    allow_tensor_float_32(training.tensor_float_32)
    network = MODELS[settings.run.model].create(settings, fitted)
    if not network.built:
        network.build(_input_shapes(network, settings, fitted))
    if (table := fitted.get("word_vectors")) is not None:
        network.text_encoder.embedding.embeddings.assign(table)
    return network


def _input_shapes(network, settings, fitted):
    shapes = {"images": (None, fitted["image_dim"])}
    is_width = not settings.texts.learns_words
    shapes["captions"] = (None, fitted["text_dim"] if is_width else None)
    if settings.image_encoder != "features":
        size = settings.images.image_size
        size = getattr(network.image_encoder, "image_size", size)
        shapes["images"] = (None, size, size, 3)
    if settings.texts.text_encoder == "h_lstm":
        shapes["captions"] = (None, *TreeRows.shape)
    if "region_dim" in fitted:
        shapes["regions"] = (None, fitted["region_dim"])
    return shapes


def build_loss(settings: Settings):
    """Returns the loss. Raises ValueError if all its terms have weight 0."""
    weights = settings.loss.term_weights
    if not any(weights.values()):
        flag = f"--{TERMS[0]}_weight"
        raise InputError(flag, "be > 0, or another weight", str(weights))
    loss_class, arguments = LOSSES[settings.loss.loss]
    values, unused = settings.values(), settings.unused()
    names = arguments.keys() & values.keys() - unused.keys()
    options = {name: values[name] for name in names}
    if loss_class is TripletLoss:
        # Sparse gradients are faster on CPUs. XLA compiles only dense ones.
        is_sparse = no_accelerator() and not settings.training.jit_compile
        options["gradient"] = "sparse" if is_sparse else "dense"
    return loss_class(term_weights=weights, **options)


def first_hard_epoch(settings: Settings):
    """Returns the 0-based epoch from which hard negatives are used, or None.

    Raises ValueError if every epoch would use hard negatives.
    """
    phrases, epochs = settings.phrases, settings.epochs
    last = phrases.hard_negative_epochs if phrases else 0
    if last and last >= epochs:
        expected = "be < --epochs, because it needs a trained network"
        received = f"{last} with --epochs={epochs}"
        raise InputError("--hard_negative_epochs", expected, received)
    return epochs - last if last else None


def _build_optimizer(settings: Settings, steps_per_epoch):
    options = settings.optimizer
    rate = build_schedule(
        options.schedule,
        options.learning_rate,
        decay_steps=options.decay_epochs * steps_per_epoch,
        total_steps=settings.epochs * steps_per_epoch,
    )
    decay = options.weight_decay
    return build_optimizer(options.optimizer, rate, weight_decay=decay)


def compile_network(network, settings: Settings, steps_per_epoch, mining=None):
    """Compiles a network with the values of the groups that its run uses.

    `mining` is described in `EmbeddingNetwork.compile`.
    """
    if settings.optimizer is None:
        network.compile()
        return
    options = {
        "optimizer": _build_optimizer(settings, steps_per_epoch),
        "gradient_clip_norm": settings.optimizer.gradient_clip_norm or None,
        "mining": mining,
        "jit_compile": settings.training.jit_compile,
        "encode_chunk": settings.training.encode_chunk or None,
    }
    if settings.loss:
        last = first_hard_epoch(settings)
        options["loss"] = build_loss(settings)
        structure_steps = settings.loss.structure_epochs * steps_per_epoch
        options["structure_steps"] = structure_steps
        options["structure_end"] = last and last * steps_per_epoch
    if settings.pairs:
        options["num_candidates"] = settings.pairs.num_candidates
        options["sampling_seed"] = settings.run.seed
        options["loss"] = settings.pairs.pair_loss
    if regions := settings.correspondences:
        options["region_mean_weight"] = regions.region_mean_weight
    network.compile(**options)
