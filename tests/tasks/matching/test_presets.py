"""Runs on own photos whose photos or captions presets turn into vectors."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.extras.hub.texts import HubTokenizer
from tbnets.features.photo_features import PhotoFeatures, build_named_cnn
from tbnets.features.text_presets import PresetFeatures
from tbnets.serving.saved_files import read_metadata
from tbnets.serving.served import load_saved_model
from tbnets.tasks import photo_readers, registry, runs
from tbnets.tasks.trained import rebuild
from tbnets.training import loop
from tests import saved_models, tiny, tiny_bert
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.refusals import refused
from tests.tasks.matching.test_own_photos import (
    CNN,
    NAMES,
    PHOTOS,
    SIZES,
    write_captions,
)
from tests.tiny_runs import assert_same_weights, prepared, save

MEAN = "--text_encoder=mean"
TEXTS = ["A red dog, 20!", "", "✓", "the dogs running"]


@pytest.fixture(scope="module")
def written(tmp_path_factory, module_eagerly):
    """A folder with photos, their features, captions and `bert`.

    `bert` is a folder as the package sentence-transformers writes it.
    """
    root = tmp_path_factory.mktemp("presets")
    (root / "photos").mkdir()
    for seed, name in enumerate(NAMES):
        (root / "photos" / name).write_bytes(photo(seed))
    write_captions(root / "own.csv", NAMES)
    tiny_bert.write_folder(root / "bert")
    with pytest.MonkeyPatch.context() as patch, tiny_cnn.known():
        patch.chdir(root)
        prepared(settings_for(*CNN, MEAN, "--run_dir=other"))
    return root


@pytest.fixture
def folder(written, tmp_path, monkeypatch):
    """The current folder: a copy of the `written` folder."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with tiny_cnn.known(), saved_models.loaded_once():
        yield tmp_path


@pytest.fixture
def hub_folder(folder, hub_presets):
    """The same with the presets `vit` and `clip` of Keras Hub."""
    for kind in ("vit", "clip"):
        shutil.copytree(hub_presets[kind], folder / kind)
    return folder


@pytest.fixture(scope="module")
def vit(hub_presets):
    """Returns the `Cnn` of the ViT; do not change it."""
    return build_named_cnn(f"hub:{hub_presets['vit']}", None)


def settings_for(*more):
    """Returns the settings of a small run."""
    small = ("--min_count=1", "--images_per_batch=4", "--epochs=2")
    small += ("--run_dir=run", "--data_root=.", "--noexport")
    return tiny.parse(*PHOTOS, *SIZES, *small, *more)


def begun(*more):
    """Returns (session, train) of a run that begins."""
    return prepared(settings_for(*more))


def embedded(session):
    """Returns the embeddings of `TEXTS` by the network and its reader."""
    reader = session.task.texts.reader(session.state.fitted)
    return session.network.embed_text(reader(tf.constant(TEXTS))).numpy()


def largest_change(weights, others):
    pairs = zip(weights, others, strict=True)
    return max(np.abs(one - other).max() for one, other in pairs)


FINE = (
    *("--image_encoder=hub:vit", "--fine_tune", "--image_features="),
    *("--text_encoder=hub:clip", "--fine_tune_text", "--images_per_batch=8"),
    "--epochs=1",
)


def test_fine_tuned_presets_are_opened_and_served(hub_folder, vit):
    session, train = begun(*FINE)
    before = session.network.text_encoder.get_weights()
    loop.fit(session, train)
    shutil.rmtree("vit")  # The weights of images are in the checkpoint.
    opened = runs.open_run("run", "last")
    network = opened.network
    assert_same_weights(session.network, network)
    for tuned, start in (
        (network.image_encoder.network, vit.network.get_weights()),
        (network.text_encoder, before),
    ):
        assert 0 < largest_change(tuned.get_weights(), start) < 0.1
    path = runs.export(opened)
    model, metadata = load_saved_model(path), read_metadata(path)
    contents = [(hub_folder / "photos" / x).read_bytes() for x in NAMES[:2]]
    fitted = opened.state.fitted
    photos = opened.task.photo_reader(fitted["image_features_made_by"])
    expected = network.embed_images(photos(contents), training=False)
    found = model.embed_images(contents)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    expected = embedded(opened)
    np.testing.assert_allclose(model.embed_text(TEXTS), expected, atol=1e-5)
    assert metadata["vocabulary_size"] is None
    assert str(hub_folder) not in str(metadata)
    exported = metadata["metadata"]["settings"]
    assert exported["image_encoder"] == "hub:vit"
    assert exported["text_encoder"] == "hub:clip"
    fitted["text_encoder_made_by"]["tokenizer_sha256"] = "another"
    with refused("--text_encoder"):
        opened.task.load("dev", fitted)


def test_presets_that_cannot_be_served_are_refused_before_any_work(
    hub_folder, monkeypatch
):
    shutil.rmtree("made", ignore_errors=True)
    with refused("preset"):
        begun(*FINE, "--text_encoder=hub:vit")
    graph = tf.compat.v1.GraphDef()  # A part of the graph of RoBERTa's words.
    graph.node.add(name="insert", op="LookupTableInsertV2")
    monkeypatch.setattr(HubTokenizer, "graph_def", lambda self: graph)
    for fine_tune in ("--fine_tune_text", "--nofine_tune_text"):
        with refused("--text_encoder"):
            begun(*FINE, fine_tune, "--export")
    assert not (hub_folder / "made").exists()


def test_served_frozen_presets_equal_their_stored_features(hub_folder, vit):
    """Calls the endpoints eagerly: other tests save presets and reopen them."""
    (hub_folder / "vit.flags").write_text("--cnn=hub:vit\n")
    session, train = begun(
        *("--image_features=vit.flags", "--cnn_weights=hub:vit"),
        "--text_encoder=hub:clip",
    )
    names = train.records.image_ids
    rows = train.images.batch(range(len(names)))
    contents = [(hub_folder / "photos" / x).read_bytes() for x in names]
    alone = settings_for("--image_features=hub:vit", MEAN)
    data = registry.open_task(alone).data
    [same] = data.recipe_results("image_features").values()
    digest = same.folder.name.removeprefix("hub_vit-")
    assert (hub_folder / "made" / f"vit-{digest}").is_dir()
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
    expected = embedded(session)
    np.testing.assert_allclose(served["embeddings"], expected, atol=1e-5)
    settings = photo_readers.start_at_photo(session.settings, "imagenet")
    weights = photo_readers.weights_of_run(
        settings, session.task.data.original_sources
    )
    with refused("weights"):
        photo_readers.photo_reader(
            session.state.fitted["image_features_made_by"], weights
        )


def test_preset_extracts_features_of_own_photos(hub_folder):
    words = MEAN, "--cnn_weights=imagenet"
    session, _ = begun("--image_encoder=hub:vit", *words)
    made_by = session.state.fitted["image_features_made_by"]
    assert made_by["cnn"] == "hub:ViTBackbone"
    assert str(hub_folder) not in json.dumps(made_by)
    (hub_folder / "moved").mkdir()
    (hub_folder / "vit").rename("moved/vit")
    again = settings_for("--image_encoder=hub:moved/vit", *words)
    assert runs.start(again, True)
    session = prepared(again, True)[0]
    reader = session.task.photo_reader(made_by)
    assert reader.dim == session.state.fitted["image_dim"] == 16


def test_a_sentence_encoder_can_be_fine_tuned(folder):
    more = "--text_encoder=hub:bert", "--fine_tune_text", "--epochs=1"
    session, train = begun(*CNN, *more)
    before = session.network.text_encoder.get_weights()
    loop.fit(session, train)
    after = session.network.text_encoder.get_weights()
    assert largest_change(before, after) > 0
    shutil.rmtree("made", ignore_errors=True)
    opened = runs.open_run("run", "last")
    np.testing.assert_array_equal(embedded(opened), embedded(session))


def test_settings_that_do_not_fit_raise_errors(folder):
    for name, *words in (
        ("fine_tune_text", "--text_encoder=minilm,mean", "--fine_tune_text"),
        ("min_count", "--text_encoder=minilm", "--min_count=2"),
    ):
        with refused(f"--{name}"):
            tiny.unread(*PHOTOS, *words)
    with refused("--text_encoder"):
        tiny.typed(*PHOTOS, "--text_encoder=minilm,lstm")


@pytest.mark.parametrize("beside", ["", ",mean"])
def test_features_of_sentences_are_those_of_the_reader(folder, beside):
    session, train = begun(*CNN, f"--text_encoder=hub:bert{beside}")
    captions = train.records.captions
    rows = train.texts.batch(np.arange(len(captions)))
    features = rows[:, : tiny_bert.DIM].view(np.float32)
    wanted = PresetFeatures.of("hub:bert").transform(captions)
    np.testing.assert_allclose(features, wanted, atol=1e-6)
    if beside:
        reader = session.task.texts.reader(session.state.fitted)
        read = reader(tf.constant(captions)).numpy()
        width = min(rows.shape[1], read.shape[1])
        ids = slice(tiny_bert.DIM, width)
        np.testing.assert_array_equal(read[:, ids], rows[:, ids])
        assert not rows[:, width:].any()


def test_a_run_is_trained_resumed_served_and_started_from(folder):
    encoder = (*CNN, "--text_encoder=hub:bert,mean")
    session, train = begun(*encoder)
    with tiny.copied_after(1, "run", "again"):
        loop.fit(session, train)
    again, train = prepared(settings_for(*encoder, "--run_dir=again"), True)
    assert again.state.epoch == 1
    loop.fit(again, train)
    assert_same_weights(session.network, again.network)
    opened = runs.open_run("run", "last")
    assert_same_weights(session.network, opened.network)
    model, wanted = load_saved_model(runs.export(opened)), embedded(opened)
    np.testing.assert_allclose(model.embed_text(TEXTS), wanted, atol=1e-5)
    assert model.vocabulary is not None
    # Models exported with Keras 2 cannot be started from (docs/fine_tuning.md).
    if not keras.__version__.startswith("2."):
        line = "--from=run/saved_model", "--run_dir=from"
        started, _ = begun(*CNN, *line)
        np.testing.assert_allclose(embedded(started), wanted, atol=1e-6)
        network, endpoints = rebuild("run/saved_model", "random")
        texts = network.embed_text(endpoints.tokenizer(TEXTS))
        np.testing.assert_allclose(texts, wanted, atol=1e-6)
