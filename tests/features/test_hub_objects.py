"""Backbones and preprocessors of Keras Hub as objects, not as presets."""

import keras
import numpy as np
import pytest

from tbnets.extras import hub
from tbnets.extras.hub.presets import Preset
from tbnets.layers.branch import Branch
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.keras_file import load_model
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tests.refusals import refused

keras_hub = pytest.importorskip("keras_hub")
CAPTIONS = np.array(["a dog runs", "the red ball", ""])
PIXELS = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 3))
PIXELS = PIXELS.astype("float32")
IDS = np.arange(2)


def objects_of(folder, preprocessor):
    backbone = keras_hub.models.Backbone.from_preset(folder)
    return backbone, preprocessor.from_preset(folder)


@pytest.mark.parametrize(
    "kind, preprocessor",
    [
        ("bert", "BertTokenizer"),
        ("clip", "CLIPPreprocessor"),
        ("siglip", "SigLIPPreprocessor"),
    ],
)
def test_objects_are_read_like_their_preset(hub_presets, kind, preprocessor):
    folder = hub_presets[kind]
    preprocessor = getattr(keras_hub.models, preprocessor)
    backbone, preprocessor = objects_of(folder, preprocessor)
    preset = hub.open_preset(folder)
    ids = hub.HubTokenizer(preset)(CAPTIONS)
    tokenizer = hub.HubTokenizer(backbone, preprocessor=preprocessor)
    np.testing.assert_array_equal(tokenizer(CAPTIONS), ids)
    texts = hub.HubTextEncoder.of(backbone, preprocessor)(ids)
    close = {"rtol": 1e-5, "atol": 1e-6}
    wanted = hub.HubTextEncoder.of(preset)(ids)
    np.testing.assert_allclose(texts, wanted, **close)
    if kind != "bert":
        encoder = hub.PresetEncoder(backbone, preprocessor=preprocessor)
        wanted = hub.PresetEncoder(preset)(PIXELS)
        np.testing.assert_allclose(encoder(PIXELS), wanted, **close)


def test_a_network_of_objects_is_trained_saved_and_served(
    hub_presets, tmp_path, eagerly
):
    preprocessor = keras_hub.models.CLIPPreprocessor
    objects = objects_of(hub_presets["clip"], preprocessor)
    backbone, preprocessor = objects
    tokenizer = hub.HubTokenizer(backbone, preprocessor=preprocessor)
    network = EmbeddingNetwork(
        Branch((4,)),
        Branch((4,)),
        hub.PresetEncoder(backbone, preprocessor=preprocessor),
        hub.HubTextEncoder.of(*objects),
    )
    network.compile("adam")
    ids = tokenizer(CAPTIONS[:2]).numpy()
    data = {"images": PIXELS, "captions": ids}
    data |= {"image_ids": IDS, "caption_image_ids": IDS}
    network.fit(data, verbose=0)
    network.save(tmp_path / "network.keras")
    loaded = load_model(tmp_path / "network.keras")
    images, texts = network.embed_images(PIXELS), network.embed_text(ids)
    np.testing.assert_array_equal(loaded.embed_images(PIXELS), images)
    np.testing.assert_array_equal(loaded.embed_text(ids), texts)
    served = load_saved_model(
        export_saved_model(network, tokenizer, tmp_path / "1")
    )
    answers = served.embed_text([*CAPTIONS[:2]])
    np.testing.assert_allclose(answers, texts, atol=1e-6)


def test_objects_that_do_not_fit_are_rejected(hub_presets):
    backbone = keras_hub.models.Backbone.from_preset(hub_presets["bert"])
    with refused("preprocessor"):
        hub.HubTokenizer(backbone)
    with refused("preprocessor"):
        Preset.of(backbone, keras.layers.Rescaling(2.0))
    with refused("backbone"):
        Preset.of(keras.layers.Rescaling(2.0))
    with refused("preset"):
        tokenizer = keras_hub.models.BertTokenizer.from_preset(
            hub_presets["bert"]
        )
        hub.PresetEncoder(backbone, preprocessor=tokenizer)
