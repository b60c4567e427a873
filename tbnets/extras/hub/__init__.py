"""Keras Hub presets as image and text networks."""

from tbnets.extras.hub.presets import (
    PresetEncoder,
    PresetPhotos,
    build_hub_cnn,
    converter_of,
    files,
    keras_hub,
    open_preset,
)
from tbnets.extras.hub.texts import HubFeatures, HubTextEncoder, HubTokenizer

__all__ = [
    "HubFeatures",
    "HubTextEncoder",
    "HubTokenizer",
    "PresetEncoder",
    "PresetPhotos",
    "build_hub_cnn",
    "converter_of",
    "files",
    "keras_hub",
    "open_preset",
]
