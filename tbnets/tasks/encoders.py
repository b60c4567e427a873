"""Settings -> the layers that read images and texts."""

import json
import pathlib

from tbnets.checked_numbers import checked_number
from tbnets.errors import check_choice
from tbnets.features import hub, image_encoders
from tbnets.features.hub_text_encoder import HubTextEncoder
from tbnets.features.photo_features import RANDOM
from tbnets.layers import text_encoders
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.tree_encoder import TreeEncoder
from tbnets.seeds import seed_of
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.texts import text_preset


def build_image_encoder(settings: Settings, fitted):
    """Returns the layer that a network reads images by."""
    if settings.image_encoder == "features":
        return FeatureTransform(settings.features.image_transform)
    if hub.is_hub(settings.image_encoder):
        return _build_preset_encoder(settings, fitted["image_preset"])
    checked_number("image_size", settings.images.image_size, 1, whole=True)
    if settings.image_encoder == "small":
        return image_encoders.SmallConvNet()
    weights = settings.images.image_weights
    if weights not in ("", RANDOM, "imagenet"):
        weights = pathlib.Path(settings.started_in) / weights
    given = None if weights in ("", RANDOM) else weights
    own = settings.images.image_size, given, settings.images.fine_tune
    return image_encoders.ApplicationEncoder(settings.image_encoder, *own)


def _build_preset_encoder(settings: Settings, config):
    """Builds it of what is kept of it; opens it where its weights matter."""
    size, preset = settings.images.image_size or None, json.dumps(config)
    weights = settings.images.image_weights
    check_choice("--image_weights", weights, ("", RANDOM), "Leave it out.")
    if weights != RANDOM:
        name = settings.image_encoder
        name = hub.placed(name, *settings.sources().starts)
        preset = hub.open_preset(name, "image", size)
    return image_encoders.PresetEncoder(preset, size, settings.images.fine_tune)


def build_text_encoder(settings: Settings, fitted):
    """Returns the layer that a network reads texts by; None of features."""
    if settings.reads_text_features:
        return None
    if settings.reads_captions_by_preset:
        return HubTextEncoder.of(text_preset(settings))
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
        return TreeEncoder(words, tied=options.tied_children, **common)
    return text_encoders.RecurrentEncoder(
        words,
        options.text_encoder,
        pooling=options.pooling,
        **common,
    )
