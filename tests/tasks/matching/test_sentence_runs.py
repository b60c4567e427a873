"""Runs on own photos whose captions a sentence encoder reads."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.cli import run_line
from tbnets.features.text_presets import PresetFeatures
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
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
from tests.tiny_runs import assert_same_weights, prepared

TEXTS = ["A red dog, 20!", "", "✓", "The dogs running"]


@pytest.fixture(scope="module")
def written(tmp_path_factory, module_eagerly):
    """A folder with photos, their features, captions and an encoder."""
    root = tmp_path_factory.mktemp("sentences")
    (root / "photos").mkdir()
    for seed, name in enumerate(NAMES):
        (root / "photos" / name).write_bytes(photo(seed))
    write_captions(root / "own.csv", NAMES)
    tiny_bert.write_folder(root / "bert")
    with pytest.MonkeyPatch.context() as patch, tiny_cnn.known():
        patch.chdir(root)
        prepared(settings_for("--text_encoder=mean", "--run_dir=other"))
    return root


@pytest.fixture
def folder(written, tmp_path, monkeypatch):
    """The current folder: a copy of what is `written`."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with tiny_cnn.known(), saved_models.loaded_once():
        yield tmp_path


def settings_for(*more):
    """Returns the settings of a small run."""
    small = ("--min_count=1", "--images_per_batch=4", "--epochs=2")
    small += ("--run_dir=run", "--data_root=.", "--noexport")
    return run_line.settings(tiny.typed(*PHOTOS, *CNN, *SIZES, *small, *more))


def embedded(session):
    """Returns the embeddings of `TEXTS` by the network and its reader."""
    reader = session.task.texts.reader(session.state.fitted)
    return session.network.embed_text(reader(tf.constant(TEXTS))).numpy()


def assert_served(session):
    """Compares the network with its SavedModel, which reads strings."""
    model, wanted = load_saved_model(runs.export(session)), embedded(session)
    np.testing.assert_allclose(model.embed_text(TEXTS), wanted, atol=1e-5)
    return model, wanted


def test_a_sentence_encoder_can_be_fine_tuned(folder):
    more = "--text_encoder=hub:bert", "--fine_tune_text", "--epochs=1"
    session, train = prepared(settings_for(*more))
    before = session.network.text_encoder.get_weights()
    loop.fit(session, train)
    after = session.network.text_encoder.get_weights()
    assert max(abs(a - b).max() for a, b in zip(before, after)) > 0
    shutil.rmtree("made", ignore_errors=True)
    opened = runs.open_run("run", "last")
    np.testing.assert_array_equal(embedded(opened), embedded(session))


def test_settings_that_do_not_fit_raise_errors(folder):
    for name, *words in (
        ("fine_tune_text", "--text_encoder=minilm,mean", "--fine_tune_text"),
        ("min_count", "--text_encoder=minilm", "--min_count=2"),
    ):
        line = tiny.typed(*PHOTOS, *words)
        with refused(f"--{name}"):
            run_line.check_read(line, run_line.settings(line))
    with refused("--text_encoder"):
        tiny.typed(*PHOTOS, "--text_encoder=minilm,lstm")


@pytest.mark.parametrize("beside", ["", ",mean"])
def test_features_of_sentences_are_those_of_the_reader(folder, beside):
    session, train = prepared(settings_for(f"--text_encoder=hub:bert{beside}"))
    captions = train.records.captions
    rows = train.texts.batch(np.arange(len(captions)))
    features = rows[:, : tiny_bert.DIM].view(np.float32)
    wanted = PresetFeatures.of("hub:bert").transform(captions)
    np.testing.assert_allclose(features, wanted, atol=1e-6)
    reader = session.task.texts.reader(session.state.fitted)
    read = reader(tf.constant(captions)).numpy()
    if beside:
        width = min(rows.shape[1], read.shape[1])
        ids = slice(tiny_bert.DIM, width)
        np.testing.assert_array_equal(read[:, ids], rows[:, ids])
        assert not rows[:, width:].any()


def test_a_run_is_trained_resumed_served_and_started_from(folder):
    encoder = "--text_encoder=hub:bert,mean"
    session, train = prepared(settings_for(encoder))
    with tiny.copied_after(1, "run", "again"):
        loop.fit(session, train)
    again, train = prepared(settings_for(encoder, "--run_dir=again"), True)
    assert again.state.epoch == 1
    loop.fit(again, train)
    assert_same_weights(session.network, again.network)
    opened = runs.open_run("run", "last")
    assert_same_weights(session.network, opened.network)
    model, wanted = assert_served(opened)
    assert model.vocabulary is not None
    # Models exported with Keras 2 cannot be started from (docs/fine_tuning.md).
    if not keras.__version__.startswith("2."):
        line = "--from=run/saved_model", "--run_dir=from"
        started, _ = prepared(settings_for(*line))
        np.testing.assert_allclose(embedded(started), wanted, atol=1e-6)
        network, endpoints = rebuild("run/saved_model", "random")
        texts = network.embed_text(endpoints.tokenizer(TEXTS))
        np.testing.assert_allclose(texts, wanted, atol=1e-6)
