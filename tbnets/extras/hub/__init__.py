"""Uses Keras Hub presets as image and text networks."""

import hashlib
import pathlib
import re

import keras

from tbnets.data import archives
from tbnets.data.images import decode_images
from tbnets.extras.hub import presets, texts
from tbnets.extras.hub.presets import PresetEncoder as PresetEncoder
from tbnets.extras.hub.presets import PresetPhotos as PresetPhotos
from tbnets.extras.hub.presets import build_hub_cnn as build_hub_cnn
from tbnets.extras.hub.presets import converter_of as converter_of
from tbnets.extras.hub.presets import files as files
from tbnets.extras.hub.presets import keras_hub as keras_hub
from tbnets.extras.hub.presets import open_preset as open_preset
from tbnets.extras.hub.texts import HubTextEncoder as HubTextEncoder
from tbnets.extras.hub.texts import HubTokenizer as HubTokenizer
from tbnets.extras.hub.texts import TextPreset as TextPreset
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.progress import say
from tbnets.serving.assembled import cache_folder, graph_makers
from tbnets.serving.export import export_saved_model


def from_preset(name):
    """Returns the network and the tokenizer of `tbnets.from_preset`."""
    return _network(presets.open_preset(name, "image"))


def _network(preset):
    preset.require("text")
    network = EmbeddingNetwork(
        keras.layers.Identity(),
        keras.layers.Identity(),
        image_encoder=PresetEncoder(preset),
        text_encoder=HubTextEncoder.of(preset),
    )
    side = network.image_encoder.image_size
    shapes = {"images": (None, side, side, 3), "captions": (None, None)}
    network.build(shapes)
    return network, HubTokenizer(preset)


def exported(name) -> pathlib.Path:
    """Returns the SavedModel of a preset; exports it on first use.

    The model takes encoded photos and captions. It is kept in the folder `hub`
    of the cache, until a file of the preset changes its size or time, or tbnets
    or TensorFlow changes.
    """
    paths = presets.files(name)
    stamps = {key: archives.stamp(path) for key, path in paths.items()}
    key = presets.folder_of(name).absolute(), stamps
    text = f"{key} {graph_makers(presets, texts)}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    short = re.sub(r"\W+", "_", presets.folder_of(name).name)
    folder = cache_folder() / "hub" / digest / short / "1"
    if folder.is_dir():
        return folder
    say(f"exporting {name} to {folder.parent}")
    preset = presets.open_preset(name, "image")
    network, tokenizer = _network(preset)
    encoder = network.image_encoder
    side = encoder.image_size
    photos = PresetPhotos(preset.image_converter, side)
    return export_saved_model(
        network,
        tokenizer,
        folder,
        image_shape=(side, side, 3),
        read_photos=lambda contents: decode_images(contents, photos),
        metadata={"preset": preset.description()},
    )
