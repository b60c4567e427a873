"""Runs on photos that presets of Keras Hub turn into vectors."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.cli import run_line
from tbnets.extras.hub.texts import HubTokenizer
from tbnets.features.photo_features import PhotoFeatures, build_named_cnn
from tbnets.serving.saved_files import read_metadata
from tbnets.serving.served import load_saved_model
from tbnets.tasks import photo_readers, registry, runs
from tbnets.training import loop
from tests import tiny
from tests.features.test_photo_features import photo
from tests.refusals import refused
from tests.tasks.matching.test_own_photos import (
    NAMES,
    PHOTOS,
    SIZES,
    write_captions,
)
from tests.tiny_runs import assert_same_weights, prepared, save


@pytest.fixture(scope="module")
def written(tmp_path_factory, hub_presets):
    """Photos, captions and the presets `vit`, `resnet` and `clip`."""
    root = tmp_path_factory.mktemp("presets")
    (root / "photos").mkdir()
    for seed, name in enumerate(NAMES):
        (root / "photos" / name).write_bytes(photo(seed))
    write_captions(root / "own.csv", NAMES)
    for kind in ("vit", "resnet", "clip"):
        shutil.copytree(hub_presets[kind], root / kind)
    return root


@pytest.fixture(scope="module")
def vit(hub_presets):
    """Returns the `Cnn` of the ViT: read it only."""
    return build_named_cnn(f"hub:{hub_presets['vit']}", None)


@pytest.fixture
def folder(written, tmp_path, monkeypatch, eagerly):
    """The current folder: a copy of what is `written`."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_for(*more):
    """Returns the settings of a small run."""
    small = ("--text_encoder=mean", "--min_count=1", "--images_per_batch=4")
    small += ("--epochs=2", "--run_dir=run", "--noexport")
    return run_line.settings(tiny.typed(*PHOTOS, *SIZES, *small, *more))


def begun(*more):
    """Returns (session, train) of a run that begins."""
    return prepared(settings_for(*more))


FINE = (
    *("--image_encoder=hub:vit", "--fine_tune", "--image_features="),
    *("--text_encoder=hub:clip", "--fine_tune_text", "--images_per_batch=8"),
    "--epochs=1",
)
TEXTS = ["A red dog, 20!", "", "✓", "the ball"]


def text_reader(session):
    return session.task.texts.reader(session.state.fitted)


def embedded(session, reader):
    """Returns the embeddings of `TEXTS` by the network at hand."""
    return session.network.embed_text(reader(tf.constant(TEXTS))).numpy()


def test_fine_tuned_presets_are_opened_and_served(folder, vit):
    session, train = begun(*FINE)
    before = session.network.text_encoder.get_weights()
    loop.fit(session, train)
    shutil.rmtree("vit")  # Of images nothing is read again.
    opened = runs.open_run("run", "last")
    assert_same_weights(session.network, opened.network)
    for tuned, start in (
        (opened.network.image_encoder.network, vit.network.get_weights()),
        (opened.network.text_encoder, before),
    ):
        pairs = zip(tuned.get_weights(), start, strict=True)
        assert 0 < max(np.abs(a - b).max() for a, b in pairs) < 0.1
    path = runs.export(opened)
    model, metadata = load_saved_model(path), read_metadata(path)
    contents = [(folder / "photos" / name).read_bytes() for name in NAMES[:2]]
    photos = opened.task.photo_reader(
        opened.state.fitted["image_features_made_by"]
    )
    expected = opened.network.embed_images(photos(contents), training=False)
    found = model.embed_images(contents)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    expected = embedded(opened, text_reader(opened))
    np.testing.assert_allclose(model.embed_text(TEXTS), expected, atol=1e-5)
    assert metadata["vocabulary_size"] is None
    assert str(folder) not in str(metadata)  # Nor the folders of presets.
    exported = metadata["metadata"]["settings"]
    assert exported["image_encoder"] == "hub:vit"
    assert exported["text_encoder"] == "hub:clip"
    fitted = opened.state.fitted
    fitted["text_encoder_made_by"]["tokenizer_sha256"] = "another"
    with refused("--text_encoder"):
        opened.task.load("dev", fitted)


def test_presets_that_cannot_be_served_are_refused_before_any_work(
    folder, monkeypatch
):
    with refused("preset"):
        begun(*FINE, "--text_encoder=hub:vit")
    graph = tf.compat.v1.GraphDef()  # A part of the graph of RoBERTa's words.
    graph.node.add(name="insert", op="LookupTableInsertV2")
    monkeypatch.setattr(HubTokenizer, "graph_def", lambda self: graph)
    for fine_tune in ("--fine_tune_text", "--nofine_tune_text"):
        with refused("--text_encoder"):
            begun(*FINE, fine_tune, "--export")
    assert not (folder / "made").exists()


def test_served_frozen_presets_equal_their_stored_features(folder, vit):
    """Calls the endpoints eagerly: other tests save presets and reopen them."""
    (folder / "vit.flags").write_text("--cnn=hub:vit\n")
    session, train = begun(
        *("--image_features=vit.flags", "--cnn_weights=hub:vit"),
        *("--text_encoder=hub:clip", "--data_root=."),
    )
    rows = train.images.batch(range(len(train.records.image_ids)))
    contents = [
        (folder / "photos" / name).read_bytes()
        for name in train.records.image_ids
    ]
    alone = settings_for("--image_features=hub:vit", "--data_root=.")
    data = registry.open_task(alone).data
    [same] = data.recipe_results("image_features").values()
    digest = same.folder.name.removeprefix("hub_vit-")
    assert (folder / "made" / f"vit-{digest}").is_dir()
    features = PhotoFeatures(vit)
    np.testing.assert_allclose(features(contents), rows, atol=1e-5)
    assert session.network.text_encoder is None
    save(session, "last")
    opened = runs.open_run("run", "last")
    endpoints = opened.task.endpoints(opened.network, opened.state.fitted)
    served = endpoints.functions["embed_image"](tf.constant(contents))
    expected = session.network.embed_images(rows, training=False)
    np.testing.assert_allclose(served["embeddings"], expected, atol=1e-5)
    served = endpoints.functions["embed_text"](tf.constant(TEXTS))
    expected = embedded(session, text_reader(session))
    np.testing.assert_allclose(served["embeddings"], expected, atol=1e-5)
    settings = photo_readers.start_at_photo(session.settings, "imagenet")
    weights = photo_readers.weights_of_run(
        settings, session.task.data.original_sources
    )
    with refused("weights"):
        photo_readers.photo_reader(
            session.state.fitted["image_features_made_by"], weights
        )


def test_preset_extracts_features_of_own_photos(folder):
    own = ("--image_encoder=hub:vit", "--cnn_weights=imagenet")
    session, _ = begun(*own)
    made_by = session.state.fitted["image_features_made_by"]
    assert made_by["cnn"] == "hub:ViTBackbone"
    assert str(folder) not in json.dumps(made_by)
    (folder / "moved").mkdir()
    (folder / "vit").rename("moved/vit")
    again = settings_for(
        "--image_encoder=hub:moved/vit", "--cnn_weights=imagenet"
    )
    assert runs.start(again, True)
    session = prepared(again, True)[0]
    reader = session.task.photo_reader(made_by)
    assert reader.dim == session.state.fitted["image_dim"] == 16
