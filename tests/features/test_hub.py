"""Presets of Keras Hub: opened, rebuilt, refused."""

import json
import shutil
import sys

import h5py
import keras
import numpy as np
import pytest

from tbnets.errors import (
    InputError,
    MissingFileError,
    MissingPackageError,
    UnreachableError,
)
from tbnets.extras import hub
from tbnets.extras.hub import preset_files, presets
from tbnets.extras.hub.preset_files import SHARDS, WEIGHTS
from tbnets.extras.hub.presets import Preset
from tbnets.features import hub as hub_names
from tbnets.features.cnn_weights import weights_sha256
from tbnets.layers.branch import Branch
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.keras_file import load_model
from tests import refusals


@pytest.fixture
def clip(hub_presets):
    """Returns the folder of a tiny CLIP."""
    return hub_presets["clip"]


@pytest.fixture
def copy(clip, tmp_path):
    """Returns a copy of the folder, for damage."""
    return shutil.copytree(clip, tmp_path / "copy")


@pytest.mark.parametrize("kind", ["clip", "siglip", "resnet"])
def test_a_preset_tells_what_it_turns_into_vectors(hub_presets, kind):
    preset = presets.open_preset(f"hub:{hub_presets[kind]}", "image")
    assert preset.sides == ("image", "text")[: 1 if kind == "resnet" else 2]
    config = preset.config()
    again = presets.rebuild(json.loads(json.dumps(config)))
    assert again.config() == config
    assert again.description() == preset.description()
    assert weights_sha256(again.backbone) != weights_sha256(preset.backbone)
    assert hub_presets[kind] not in json.dumps([config, preset.description()])


LAMBDA = {
    "class_name": "__lambda__",
    "config": {"value": ["4wAA", None, None]},
}
OTHERS = [
    LAMBDA,
    {"class_name": "Lambda", "config": {"function": LAMBDA}},
    {"module": "keras.layers", "class_name": "Lambda", "config": {}},
    {"module": "os", "class_name": "function", "config": "system"},
    {"module": "builtins", "class_name": "function", "config": "tbnets>run"},
    {"class_name": "Branch", "registered_name": "tbnets>Branch", "config": {}},
    {"class_name": "X", "registered_name": "keras_hub>Nothing", "config": {}},
    {"module": "keras.utils", "class_name": "get_file", "config": {}},
    {"module": "keras", "class_name": "Model", "config": {}},
    {"module": "keras.initializers", "class_name": "tbnets>B", "config": {}},
    {"module": ["keras"], "class_name": "DTypePolicy", "config": {}},
    {"vocabulary": "/etc/passwd"},
]


def test_what_is_not_keras_hubs_own_is_not_made(clip):
    config = presets.open_preset(clip, weights=False).config()
    for hostile in OTHERS:
        config["backbone"]["config"]["vision_encoder"] = hostile
        deeper = {"config": [{"deeper": [hostile]}]}
        with pytest.raises(InputError):
            presets.rebuild(config)
        with pytest.raises(InputError):
            preset_files.check_config(deeper, "a file")


def test_every_file_of_a_folder_is_checked(copy):
    preset = presets.open_preset(str(copy), weights=False)
    reads = {
        "config.json": lambda: presets.open_preset(str(copy)),
        "tokenizer.json": lambda: preset.tokenizer,
        "image_converter.json": lambda: preset.image_converter,
    }
    for file, read in reads.items():
        kept = (copy / file).read_text()
        held = json.loads(kept)
        held["config"]["name"] = LAMBDA
        (copy / file).write_text(json.dumps(held))
        with pytest.raises(InputError, match=f"__lambda__.*{file}"):
            read()
        (copy / file).write_text("{")
        with pytest.raises(InputError, match=file):
            read()
        (copy / file).unlink()
        with pytest.raises(MissingFileError, match=file):
            read()
        (copy / file).write_text(kept)


def test_weights_that_are_cut_or_missing_are_refused(copy):
    weights = copy / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:5000])
    with refusals.refused("preset"):
        presets.open_preset(str(copy))
    weights.unlink()
    with pytest.raises(MissingFileError, match=WEIGHTS):
        presets.open_preset(str(copy))
    (copy / SHARDS).write_text('{"weight_map": {"a": ["../b.h5"]}}')
    with pytest.raises(InputError, match=r"\.\./b\.h5"):
        presets.open_preset(str(copy))


def test_a_preset_or_a_side_that_is_not_there_is_refused(hub_presets):
    for name, kind, named in (
        ("clip_vit_base_patch61", InputError, "clip_vit_base_patch16"),
        ("./nowhere", MissingFileError, "nowhere"),
        ("gs://bucket/preset", InputError, "kaggle"),
        (hub_presets["resnet"], InputError, "ResNetBackbone"),
    ):
        with pytest.raises(kind, match=named):
            presets.open_preset(name, "text")


def test_a_name_is_fetched_from_its_handle(monkeypatch, clip):
    asked = []

    def fetch(handle, file):
        asked.append(f"{handle}/{file}")
        if file != preset_files.CONFIG:
            raise OSError("404")
        return f"{clip}/{file}"

    monkeypatch.setitem(preset_files._FETCH, "kaggle", fetch)
    with pytest.raises(UnreachableError, match="404"):
        presets.open_preset("hub:clip_vit_base_patch16")
    assert asked[0] == "keras/clip/keras/clip_vit_base_patch16/3/config.json"
    found = presets.open_preset("clip_vit_base_patch16", weights=False)
    assert found.backbone.projection_dim == 6


def test_weights_that_would_fill_the_memory_are_not_read(copy, monkeypatch):
    import keras_hub

    with h5py.File(copy / WEIGHTS, "a") as file:
        file.create_dataset("w", (10**9,), "f4", chunks=True)  # 4 GB, unwritten

    def read(*_):
        pytest.fail("the weights are read")

    monkeypatch.setattr(keras_hub.models.Backbone, "load_weights", read)
    with pytest.raises(InputError):
        presets.open_preset(str(copy))


def test_weights_of_another_network_are_refused_in_one_error(copy, recwarn):
    config = json.loads((copy / "config.json").read_text())
    config["config"]["vision_encoder"]["config"]["hidden_dim"] = 32
    (copy / "config.json").write_text(json.dumps(config))
    recwarn.clear()
    with pytest.raises(InputError, match=str(copy)):
        presets.open_preset(str(copy))
    assert not list(recwarn)


def test_the_folder_of_a_preset_is_found_and_not_told(tmp_path):
    (tmp_path / "own").mkdir()
    assert hub_names.placed("hub:own", "", tmp_path) == f"hub:{tmp_path}/own"
    assert hub_names.placed("hub:clip_base", "", tmp_path) == "hub:clip_base"
    assert hub_names.placed("own", "", tmp_path) == "own"
    assert hub_names.unplaced(f"hub:{tmp_path}/own") == "hub:own"
    assert (
        hub_names.unplaced("hub:kaggle://a/b/keras/c")
        == "hub:kaggle://a/b/keras/c"
    )


def test_missing_packages_are_named(monkeypatch, tmp_path):
    pytest.importorskip("keras_hub")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingPackageError, match="safetensors"):
        presets.open_preset(str(tmp_path))
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(MissingPackageError, match=r"tbnets\[hub\]"):
        presets.open_preset("clip_vit_base_patch16")
    monkeypatch.setattr(presets.keras, "__version__", "2.15.0")
    with pytest.raises(MissingPackageError):
        presets.open_preset("clip_vit_base_patch16")


# Backbones and preprocessors of Keras Hub as objects, not as presets.

CAPTIONS = np.array(["a dog runs", "the red ball", ""])
PIXELS = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 3))
PIXELS = PIXELS.astype("float32")


def objects_of(folder, preprocessor):
    backbone = presets.keras_hub().models.Backbone.from_preset(folder)
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
    preprocessor = getattr(presets.keras_hub().models, preprocessor)
    backbone, preprocessor = objects_of(folder, preprocessor)
    preset = hub.open_preset(folder)
    ids = hub.HubTokenizer(preset)(CAPTIONS)
    tokenizer = hub.HubTokenizer(backbone, preprocessor=preprocessor)
    np.testing.assert_array_equal(tokenizer(CAPTIONS), ids)
    if kind == "siglip":
        return  # Its networks are found as those of a CLIP.
    texts = hub.HubTextEncoder.of(backbone, preprocessor)(ids)
    close = {"rtol": 1e-5, "atol": 1e-6}
    wanted = hub.HubTextEncoder.of(preset)(ids)
    np.testing.assert_allclose(texts, wanted, **close)
    if kind != "bert":
        encoder = hub.PresetEncoder(backbone, preprocessor=preprocessor)
        wanted = hub.PresetEncoder(preset)(PIXELS)
        np.testing.assert_allclose(encoder(PIXELS), wanted, **close)


def test_a_network_of_objects_is_saved_and_loaded(hub_presets, tmp_path):
    preprocessor = presets.keras_hub().models.CLIPPreprocessor
    objects = objects_of(hub_presets["clip"], preprocessor)
    network = EmbeddingNetwork(
        Branch((4,)),
        Branch((4,)),
        hub.PresetEncoder(*objects[:1], preprocessor=objects[1]),
        hub.HubTextEncoder.of(*objects),
    )
    ids = hub.HubTokenizer(objects[0], preprocessor=objects[1])(CAPTIONS[:2])
    images, texts = network.embed_images(PIXELS), network.embed_text(ids)
    network.save(tmp_path / "network.keras")
    loaded = load_model(tmp_path / "network.keras")
    np.testing.assert_array_equal(loaded.embed_images(PIXELS), images)
    np.testing.assert_array_equal(loaded.embed_text(ids), texts)


def test_objects_that_do_not_fit_are_rejected(hub_presets):
    backbone = presets.keras_hub().models.Backbone.from_preset(
        hub_presets["bert"]
    )
    with refusals.refused("preprocessor"):
        hub.HubTokenizer(backbone)
    with refusals.refused("preprocessor"):
        Preset.of(backbone, keras.layers.Rescaling(2.0))
    with refusals.refused("backbone"):
        Preset.of(keras.layers.Rescaling(2.0))
    with refusals.refused("preset"):
        tokenizer = presets.keras_hub().models.BertTokenizer.from_preset(
            hub_presets["bert"]
        )
        hub.PresetEncoder(backbone, preprocessor=tokenizer)
