"""Runs that read texts by a preset of Keras Hub, frozen or trained too."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets import runs
from tbnets.errors import InputError
from tbnets.features.hub_features import HubFeatures
from tbnets.serving.saved_files import read_metadata
from tbnets.training import loop
from tests import tiny, tiny_phrases

CAPTIONS = ["A red dog, 20!", "", "✓", "the ball"]


@pytest.fixture
def folder(tmp_path):
    return tiny.write_precomputed(tmp_path / "data")


def prepare(folder, run_dir, preset, resume=False, **changes):
    changes = {"epochs": 2, "text_encoder": f"hub:{preset}", **changes}
    settings = tiny.settings(folder, run_dir, **changes)
    return runs.prepare(settings, runs.start(settings, resume))


def trained(session, train):
    """Trains; returns the weights."""
    loop.fit(session, train)
    return [np.asarray(one) for one in session.network.get_weights()]


def embedded(session):
    """Returns the embeddings of `CAPTIONS` by the network at hand."""
    reader = session.task.data.texts.reader(session.state.fitted)
    return session.network.embed_text(reader(tf.constant(CAPTIONS))).numpy()


def test_a_preset_that_learns_goes_on_bit_for_bit_and_is_served(
    folder, hub_presets, tmp_path, eagerly
):
    clip, more = hub_presets["clip"], {"fine_tune_text": True}
    session, train = prepare(folder, tmp_path / "once", clip, **more)
    before = embedded(session)
    wanted = trained(session, train)
    again = folder, tmp_path / "twice", clip
    trained(*prepare(*again, **more, epochs=1))
    session, train = prepare(*again, True, **more)
    found = trained(session, train)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert session.network.text_encoder is not None
    _check_served(tmp_path / "twice", before)


def test_a_run_of_a_frozen_preset_is_served(
    folder, hub_presets, tmp_path, eagerly
):
    run_dir = tmp_path / "run"
    session, train = prepare(folder, run_dir, hub_presets["clip"], epochs=1)
    before = embedded(session)
    trained(session, train)
    assert session.network.text_encoder is None
    _check_served(run_dir, before)


def _check_served(run_dir, before):
    """Asks what is opened, exported and loaded again, which says the same."""
    opened = runs.open_run(run_dir, "last")
    after = embedded(opened)
    assert abs(after - before).max() > 0
    path = runs.export(opened)
    signature = tf.saved_model.load(str(path)).signatures["embed_text"]
    served = signature(captions=tf.constant(CAPTIONS))["embeddings"]
    np.testing.assert_allclose(served, after, atol=1e-5)
    told = read_metadata(path)
    assert told["metadata"]["settings"]["text_encoder"] == "hub:clip"
    assert told["vocabulary_size"] is None
    assert str(run_dir.parent) not in str(told)


def test_frozen_features_are_made_once_and_are_those_of_the_tool(
    folder, hub_presets, tmp_path, capsys
):
    session, train = prepare(folder, tmp_path / "run", hub_presets["siglip"])
    rows = np.arange(len(train.records.captions))
    encoder = HubFeatures.of(f"hub:{hub_presets['siglip']}")
    wanted = encoder.transform(train.records.captions)
    np.testing.assert_array_equal(train.texts.batch(rows), wanted)
    assert len([*folder.glob("made/hub_siglip-*")]) == 1
    assert "store" in capsys.readouterr().out
    prepare(folder, tmp_path / "again", hub_presets["siglip"])
    assert "store" not in capsys.readouterr().out


@pytest.mark.parametrize("model", ["cca", "similarity"])
def test_frozen_presets_are_read_by_all_models(
    folder, hub_presets, tmp_path, model
):
    more = {"cca": {"cca_dim": 4}, "similarity": {"head_units": "8"}}[model]
    preset = hub_presets["clip"]
    session, train = prepare(
        folder, tmp_path / "run", preset, model=model, **more
    )
    assert train.texts.shape == (6,)
    assert session.network.text_encoder is None


@pytest.mark.parametrize("fine_tune", [False, True])
def test_phrases_are_texts_too(hub_presets, tmp_path, fine_tune):
    settings = tiny_phrases.settings(
        tiny_phrases.write_phrases(tmp_path / "data"),
        tmp_path / "run",
        text_encoder=f"hub:{hub_presets['bert']}",
        fine_tune_text=fine_tune,
    )
    session, train = runs.prepare(settings, runs.start(settings, False))
    reader = session.task.data.texts.reader(session.state.fitted)
    phrases = session.task.data.train.said.captions[:3]
    found = train.texts.batch(np.arange(3))
    made = reader(tf.constant(phrases)).numpy()[:, : found.shape[1]]
    np.testing.assert_allclose(found[:, : made.shape[1]], made, atol=1e-5)


def test_words_of_another_preset_are_refused(folder, hub_presets, tmp_path):
    preset = shutil.copytree(hub_presets["clip"], tmp_path / "preset")
    more = {"fine_tune_text": True, "epochs": 1}
    session, _ = prepare(folder, tmp_path / "run", preset, **more)
    fitted = session.state.fitted
    fitted["text_encoder_made_by"]["tokenizer_sha256"] = "another"
    with pytest.raises(InputError, match="the preset that the run began with"):
        session.task.data.load("dev", fitted)


@pytest.mark.parametrize("fine_tune", [False, True])
def test_what_can_not_be_served_is_refused_before_all_else(
    folder, hub_presets, tmp_path, fine_tune
):
    more = {"fine_tune_text": fine_tune, "export": True}
    with pytest.raises(InputError, match="LookupTableInsertV2.*--noexport"):
        prepare(folder, tmp_path / "run", hub_presets["roberta"], **more)
    assert not (folder / "made").exists()


def test_a_preset_without_texts_is_refused(folder, hub_presets, tmp_path):
    with pytest.raises(InputError, match="turns texts into vectors"):
        prepare(folder, tmp_path / "run", hub_presets["vit"])
