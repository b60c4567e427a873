"""Presets of Keras Hub: opened, rebuilt, refused."""

import json
import shutil
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.cli import demo, serve
from tbnets.errors import InputError, MissingFileError, MissingPackageError
from tbnets.extras.hub import PresetPhotos, presets
from tbnets.features import hub as hub_names
from tbnets.features.cnn_weights import weights_sha256
from tbnets.models.keras_file import load_model
from tbnets.serving import zoo
from tests import refusals, saved_models

CAPTIONS = np.array(["a dog runs", "the red ball", ""])
PIXELS = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 3))
PIXELS = PIXELS.astype("float32")


@pytest.fixture
def clip(hub_presets):
    """Returns the folder of a tiny CLIP."""
    return hub_presets["clip"]


@pytest.mark.parametrize("kind", ["clip", "siglip", "resnet"])
def test_presets_are_rebuilt_from_their_config(hub_presets, kind):
    preset = presets.open_preset(f"hub:{hub_presets[kind]}", "image")
    assert preset.sides == ("image", "text")[: 1 if kind == "resnet" else 2]
    config = preset.config()
    again = presets.rebuild(json.loads(json.dumps(config)))
    assert again.config() == config
    assert again.description() == preset.description()
    assert weights_sha256(again.backbone) != weights_sha256(preset.backbone)
    assert hub_presets[kind] not in json.dumps([config, preset.description()])


def test_broken_presets_are_refused(clip, tmp_path, recwarn):
    broken = {
        "config.json": b"{",
        "model.weights.h5": b"\x89HDF",
        "another": None,
    }
    for file, content in broken.items():
        folder = shutil.copytree(clip, tmp_path / file)
        if content:
            (folder / file).write_bytes(content)
        else:  # Weights of another network.
            path = folder / "config.json"
            config = json.loads(path.read_text())
            config["config"]["vision_encoder"]["config"]["hidden_dim"] = 32
            path.write_text(json.dumps(config))
        recwarn.clear()
        with refusals.refused("preset"):
            presets.open_preset(str(folder))
        assert not list(recwarn)


def test_unknown_presets_and_missing_sides_are_refused(hub_presets):
    for name in ("clip_vit_base_patch61", "./nowhere", "gs://bucket/preset"):
        with pytest.raises(MissingFileError, match=name):
            presets.open_preset(name, "text")
    with pytest.raises(InputError, match="ResNetBackbone"):
        presets.open_preset(hub_presets["resnet"], "text")


def test_names_and_handles_are_downloaded_once(monkeypatch, clip):
    asked = []

    def download(handle):
        asked.append(handle)
        return clip

    for module, name in (
        ("kagglehub", "model_download"),
        ("huggingface_hub", "snapshot_download"),
    ):
        fake = types.SimpleNamespace(**{name: download})
        monkeypatch.setitem(sys.modules, module, fake)
    for name, handle in (
        ("clip_vit_base_patch16", "keras/clip/keras/clip_vit_base_patch16/3"),
        ("hub:hf://someone/clip", "someone/clip"),
    ):
        opened = presets.open_preset(name, weights=False)
        assert opened.backbone.projection_dim == 6
        assert asked.pop() == handle and not asked
    files = presets.files(clip)
    assert files.keys() > {"config.json", "assets/tokenizer/merges.txt"}


def test_a_network_of_both_sides_is_made_and_exported(
    clip, hub_presets, monkeypatch
):
    import keras_hub

    monkeypatch.setenv("TBNETS_CACHE", str(hub_presets.cache))
    network, tokenizer = tbnets.from_preset(clip)
    backbone = keras_hub.models.Backbone.from_preset(clip)
    ids = tokenizer(CAPTIONS)
    texts = network.embed_text(ids)
    expected = keras.ops.normalize(backbone.get_text_embeddings(ids[:2] - 1))
    np.testing.assert_allclose(texts[:2, :1], expected[:, :1], atol=1e-5)
    with saved_models.loaded_once():
        model = zoo.open_model(f"hub:{clip}")
        # `tbnets serve` and `tbnets demo` use the exported model, too.
        assert demo.Options(model=f"hub:{clip}").open({}).path == model.path
        folders = serve.folders_of([f"clip=hub:{clip}"])
        assert folders == {"clip": model.path}
    found = model.embed_text(CAPTIONS.tolist())
    np.testing.assert_allclose(found, texts, atol=1e-5)
    assert [*hub_presets.cache.glob("hub/*/clip/1")] == [model.path]
    pixels = PIXELS.round()
    files = [tf.io.encode_png(each.astype("uint8")).numpy() for each in pixels]
    converter = keras_hub.layers.ImageConverter.from_preset(clip)
    resized = np.stack([PresetPhotos(converter, 16)(each) for each in pixels])
    expected = network.embed_images(resized)
    np.testing.assert_allclose(model.embed_images(files), expected, atol=1e-4)


def test_preset_folders_are_resolved_and_recorded_by_name(tmp_path):
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
    with pytest.raises(InputError, match="safetensors"):
        presets.open_preset(str(tmp_path))
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(MissingPackageError, match=r"tbnets\[hub\]"):
        presets.open_preset("clip_vit_base_patch16")
    monkeypatch.setattr(presets.keras, "__version__", "2.15.0")
    with pytest.raises(MissingPackageError):
        presets.open_preset("clip_vit_base_patch16")


def test_networks_of_presets_are_saved_and_loaded(clip, tmp_path):
    network, tokenizer = tbnets.from_preset(clip)
    ids = tokenizer(CAPTIONS[:2])
    images, texts = network.embed_images(PIXELS), network.embed_text(ids)
    network.save(tmp_path / "network.keras")
    loaded = load_model(tmp_path / "network.keras")
    np.testing.assert_array_equal(loaded.embed_images(PIXELS), images)
    np.testing.assert_array_equal(loaded.embed_text(ids), texts)
