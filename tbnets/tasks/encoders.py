"""Settings -> the layers that read images and texts."""

import json
import pathlib

from tbnets.checked_numbers import checked_number
from tbnets.data.sources import Sources
from tbnets.errors import check_choice
from tbnets.features import hub, image_encoders
from tbnets.features.hub_text_encoder import HubTextEncoder
from tbnets.features.photo_features import RANDOM
from tbnets.layers import text_encoders
from tbnets.layers.feature_transform import FeatureTransform
from tbnets.layers.tree_encoder import TreeEncoder
from tbnets.seeds import seed_of
from tbnets.tasks.texts import reads_features, text_preset


def build_image_encoder(settings, fitted):
    """Returns the layer that a network reads images by."""
    if settings.image_encoder == "features":
        return FeatureTransform(settings.image_transform)
    if hub.is_hub(settings.image_encoder):
        return _build_preset_encoder(settings, fitted["image_preset"])
    checked_number("image_size", settings.image_size, 1, whole=True)
    if settings.image_encoder == "small":
        return image_encoders.SmallConvNet()
    weights = settings.image_weights
    if weights not in ("", RANDOM, "imagenet"):
        weights = pathlib.Path(settings.started_in) / weights
    given = None if weights in ("", RANDOM) else weights
    own = settings.image_size, given, settings.fine_tune
    return image_encoders.ApplicationEncoder(settings.image_encoder, *own)


def _build_preset_encoder(settings, config):
    """Builds it of what is kept of it; opens it where its weights matter."""
    size, preset = settings.image_size or None, json.dumps(config)
    weights = settings.image_weights
    check_choice("--image_weights", weights, ("", RANDOM), "Leave it out.")
    if weights != RANDOM:
        name = settings.image_encoder
        name = hub.placed(name, *Sources.of(settings).starts)
        preset = hub.open_preset(name, "image", size)
    return image_encoders.PresetEncoder(preset, size, settings.fine_tune)


def build_text_encoder(settings, fitted):
    """Returns the layer that a network reads texts by; None of features."""
    if reads_features(settings):
        return None
    if settings.reads("fine_tune_text"):
        return HubTextEncoder.of(text_preset(settings))
    table, words = fitted.get("word_vectors"), len(fitted["words"])
    common = {
        "embedding_dim": settings.word_dim if table is None else table.shape[1],
        "word_dropout": settings.word_dropout,
        "seed": seed_of(settings.seed, "text_encoder"),
    }
    if table is not None or settings.from_:
        common["word_training"] = settings.word_vectors_training
    if settings.text_encoder == "mean":
        return text_encoders.MeanOfWords(words, **common)
    common |= {"units": settings.rnn_units, "mean_beside": settings.mean_beside}
    if settings.text_encoder == "h_lstm":
        return TreeEncoder(words, tied=settings.tied_children, **common)
    return text_encoders.RecurrentEncoder(
        words,
        settings.text_encoder,
        bidirectional=settings.bidirectional,
        pooling=settings.pooling,
        **common,
    )
