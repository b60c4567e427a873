"""Runs on text features, trees and word vectors that others trained."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.sources import Sources
from tbnets.features.caption_encoder import MeanFeatures
from tbnets.tasks import registry, runs, texts
from tbnets.text.word_vectors import WordVectors
from tbnets.training import loop
from tests import tiny, verbs
from tests.refusals import refused
from tests.tiny_runs import TREES, prepared

# Which graph is traced does not matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")
ROWS = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
"""The word vectors of `tiny_runs.write_captioned`."""


@pytest.fixture
def folder(tiny_run, tmp_path):
    """A copy of the shared data, which includes word vectors."""
    return shutil.copytree(tiny_run.captioned, tmp_path / "data")


def prepare(folder, run_dir, queries=(), **changes):
    settings = tiny.settings(folder, run_dir, epochs=1, **changes)
    return prepared(settings, queries=queries)


def by_features(name):
    return {"text_encoder": "features", "text_features": name, "export": True}


def test_recipe_computes_and_serves_text_features(folder, tmp_path, capsys):
    recipe = folder / "of_words.flags"
    recipe.write_text("--features=mean_vector\n--word_vectors=vectors.txt\n")
    flags = by_features(recipe.name)
    session, train = prepare(folder, tmp_path / "run", ["red dog"], **flags)
    assert capsys.readouterr().err
    assert len([*(folder / "made").glob("of_words-*")]) == 1
    made_by = session.state.fitted["text_features_made_by"]
    assert made_by["text_features"] == "mean_vector"
    captions = train.records.captions
    encoder = MeanFeatures().fit(captions, WordVectors(tiny.WORDS, ROWS))
    wanted = encoder.transform([captions[1], captions[0]])
    np.testing.assert_allclose(train.texts.batch([1, 0]), wanted, atol=1e-6)
    loop.fit(session, train)
    scores = session.task.scores(session.network, train)
    opened = runs.open_run(tmp_path / "run", "last")
    assert opened.task.texts.reader(opened.state.fitted).dim == 5
    loaded = tf.saved_model.load(str(runs.export(opened)))
    embed_text = loaded.signatures["embed_text"]
    found = embed_text(captions=tf.constant(captions))["embeddings"]
    cosines = (found.numpy() * scores.text_embeddings).sum(axis=1)
    assert cosines.min() > 0.9999
    assert not capsys.readouterr().err
    recipe.write_text("--features=tfidf\n")
    with refused("--text_features"):
        runs.open_run(tmp_path / "run", "last")


def test_missing_text_features_raise_errors_before_training(folder, tmp_path):
    verbs.call(
        *("extract_text_features", "--features=tfidf", f"--captions={folder}"),
        f"--output={folder / 'tfidf'}",
    )
    path = folder / "dev_caps.txt"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join(["something else", *others]) + "\n")
    with refused("image_ids"):
        prepare(folder, tmp_path / "run", **by_features("tfidf"))
    path.write_text("\n".join([first, *others]) + "\n")
    (folder / "tfidf" / "encoder.npz").unlink()
    with refused("path"):
        prepare(folder, tmp_path / "run", **by_features("tfidf"))
    with refused("--word_vectors"):
        prepare(folder, tmp_path / "run", word_vectors="none.txt")
    assert not (tmp_path / "run").exists()


WORDS = {
    "word_vectors": "vectors.txt",
    "word_vectors_scale": 0,
    "word_dropout": 0,
}


def table(session):
    return session.network.text_encoder.embedding.embeddings.numpy().copy()


@pytest.mark.parametrize("training", ["trained", "frozen"])
def test_word_vectors_start_with_the_values_of_the_file(
    folder, tmp_path, training
):
    changes = WORDS | {"word_vectors_training": training}
    session, train = prepare(folder, tmp_path / "run", **changes)
    vocabulary = session.state.fitted["words"]
    first = table(session)
    for word, row in zip(tiny.WORDS, ROWS):
        np.testing.assert_allclose(first[vocabulary.index(word)], row)
    np.testing.assert_array_equal(first[0], 0)  # Padding.

    loop.fit(session, train)
    moved = np.abs(table(session) - first).max()
    assert moved == 0 if training == "frozen" else moved > 0.01
    reopened = runs.open_run(tmp_path / "run", "last")
    np.testing.assert_array_equal(table(reopened), table(session))


def test_word_vectors_are_centred_and_extended(folder, tmp_path):
    changes = WORDS | {"word_vectors_scale": 0.1, "new_word_dims": 3}
    session, _ = prepare(folder, tmp_path / "run", **changes)
    rows = np.array(ROWS, np.float64)
    rows -= rows.mean(axis=0)
    rows *= 0.1 / rows.std()
    first, vocabulary = table(session), session.state.fitted["words"]
    assert first.shape == (len(vocabulary), rows.shape[1] + 3)
    for word, row in zip(tiny.WORDS, rows):
        found = first[vocabulary.index(word)]
        np.testing.assert_allclose(found[:-3], row, atol=1e-6)
        assert 0 < np.abs(found[-3:]).max() <= 0.05
    np.testing.assert_array_equal(first[0], 0)


def test_word_vectors_file_is_not_read_with_a_model_to_start_from(
    folder, tmp_path
):
    found = tiny.settings(folder, tmp_path, word_vectors="none.txt")
    task = registry.open_task(found.replace(from_="a_model"))
    assert "word_vectors" not in task.fit()


def test_longest_caption_is_stored(folder, tmp_path):
    assert texts.most_words({}) == texts.most_words({"longest_text": 30}) == 200
    assert texts.most_words({"longest_text": 230}) == 230
    task = registry.open_task(tiny.settings(folder, tmp_path / "run"))
    lengths = [
        len(text.split()) for text in task.split("train").records.captions
    ]
    assert task.fit()["longest_text"] == max(lengths) == 3


def test_recipe_parses_trees_like_the_command(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run.captioned, tmp_path / "data")
    recipe = folder / "chains.flags"
    recipe.write_text("--parser=right_branching\n--processes=1\n")
    changes = TREES | {"trees": recipe.name}
    settings = tiny.settings(folder, tmp_path / "run", **changes)
    session, train = prepared(settings)
    scores = session.task.scores(session.network, train)
    assert scores.text_embeddings.shape == (24, 4)
    assert np.ptp(scores.text_embeddings, axis=0).all()
    recorded = session.state.fitted["recipes"]["trees"][recipe.name]
    assert recorded == {"parser": "right_branching", "parts": []}
    [made] = (folder / "made").glob("chains-*")
    verbs.call(
        *("parse_captions", f"--captions={folder}", f"--flagfile={recipe}"),
        f"--output={tmp_path / 'trees'}",
    )
    # What was parsed is kept by the tool alone: a recipe's file is whole.
    [path] = made.iterdir()
    assert path.read_bytes() == (tmp_path / "trees").read_bytes()


def test_scenes_are_found_from_another_folder_with_gold_trees(tmp_path):
    found = Sources(
        scenes="scenes", started_in=str(tmp_path), num_scenes=(1, 0, 0)
    ).rendered()
    scenes = tmp_path / "scenes"
    assert found.file("trees") == scenes / "trees"
    assert found.file("phrases") == scenes == found.photo_folder.parent
