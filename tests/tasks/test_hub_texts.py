"""Runs that read texts by a preset of Keras Hub, frozen or trained too.

They are trained and served in tests/tasks/matching/test_presets.py.
"""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.extras.hub.texts import HubTokenizer
from tbnets.features.text_presets import PresetFeatures
from tests import tiny
from tests.refusals import refused
from tests.tiny_runs import prepared


@pytest.fixture
def folder(tmp_path):
    return tiny.write_precomputed(tmp_path / "data")


def prepare(folder, run_dir, preset, resume=False, **changes):
    changes = {"epochs": 2, "text_encoder": f"hub:{preset}", **changes}
    return prepared(tiny.settings(folder, run_dir, **changes), resume)


def test_frozen_features_are_computed_once_for_all_models(
    folder, hub_presets, tmp_path, capsys
):
    session, train = prepare(folder, tmp_path / "run", hub_presets["bert"])
    rows = np.arange(len(train.records.captions))
    encoder = PresetFeatures.of(f"hub:{hub_presets['bert']}")
    wanted = encoder.transform(train.records.captions)
    np.testing.assert_array_equal(train.texts.batch(rows), wanted)
    assert len([*folder.glob("made/hub_bert-*")]) == 1
    assert capsys.readouterr().out
    cca = {"model": "cca", "cca_dim": 4}
    session, train = prepare(
        folder, tmp_path / "cca", hub_presets["bert"], **cca
    )
    assert train.texts.shape == (8,)
    assert session.network.text_encoder is None
    assert not capsys.readouterr().out


def test_preset_embeds_phrases(tiny_run, hub_presets, tmp_path):
    settings = tiny_run.settings(
        tmp_path / "run",
        "localization",
        text_encoder=f"hub:{hub_presets['bert']}",
        fine_tune_text=True,
    )
    session, train = prepared(settings)
    fitted = session.state.fitted
    phrases = session.task.train.text_records.captions[:3]
    found = train.texts.batch(np.arange(3))
    made = session.task.texts.reader(fitted)(tf.constant(phrases)).numpy()
    width = min(found.shape[1], made.shape[1])
    np.testing.assert_array_equal(found[:, :width], made[:, :width])
    fitted["text_encoder_made_by"]["tokenizer_sha256"] = "another"
    with refused("--text_encoder"):
        session.task.load("dev", fitted)


def test_unservable_preset_raises_an_error_before_any_work(
    folder, hub_presets, tmp_path, monkeypatch
):
    graph = tf.compat.v1.GraphDef()  # As RoBERTa's words are read by, in part.
    graph.node.add(name="insert", op="LookupTableInsertV2")
    monkeypatch.setattr(HubTokenizer, "graph_def", lambda self: graph)
    for fine_tune in (False, True):
        more = {"fine_tune_text": fine_tune, "export": True}
        with refused("--text_encoder"):
            prepare(folder, tmp_path / "run", hub_presets["bert"], **more)
        assert not (folder / "made").exists()


def test_image_preset_for_texts_raises_an_error(folder, hub_presets, tmp_path):
    with refused("preset"):
        prepare(folder, tmp_path / "run", hub_presets["vit"])
