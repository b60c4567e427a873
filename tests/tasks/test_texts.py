"""Runs on text features and on word vectors that others trained."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.features import caption_features
from tbnets.features.caption_encoder import MeanFeatures
from tbnets.features.tfidf import TfidfFeatures
from tbnets.tasks import registry, runs, texts
from tbnets.text.word_vectors import WordVectors
from tbnets.training import loop
from tests import tiny
from tests.refusals import refused
from tests.tiny_runs import prepared, save

ROWS = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
KINDS = {
    "tfidf": TfidfFeatures,
    "mean_vector": MeanFeatures,
}


@pytest.fixture
def folder(written, tmp_path):
    """A copy of what is `written`."""
    return shutil.copytree(written, tmp_path / "data")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Captions, word vectors and features of the captions."""
    folder = tiny.write_precomputed(tmp_path_factory.mktemp("tiny") / "data")
    rows = [
        f"{word} {' '.join(map(str, row))}\n"
        for word, row in zip(tiny.WORDS[:5], ROWS)
    ]
    (folder / "vectors.txt").write_text("".join(rows))
    captions = {
        split: (folder / f"{split}_caps.txt").read_text().splitlines()
        for split in tiny.SPLITS
    }
    for kind, make in KINDS.items():
        vectors = WordVectors(tiny.WORDS, ROWS)
        encoder = make().fit(captions["train"], vectors)
        writer = caption_features.open_writer(folder / kind, encoder)
        texts = [text for split in captions.values() for text in split]
        caption_features.extract_captions(texts, encoder, writer)
        writer.finish()
    return folder


def prepare(folder, run_dir, queries=(), **changes):
    settings = tiny.settings(folder, run_dir, epochs=1, **changes)
    return prepared(settings, queries=queries)


def by_features(kind):
    return {"text_encoder": "features", "text_features": kind, "export": True}


def test_raw_captions_of_a_saved_model_give_what_features_gave(
    folder, tmp_path, eagerly
):
    kind = "mean_vector"
    session, train = prepare(
        folder, tmp_path / "run", ["red dog"], **by_features(kind)
    )
    expected = session.task.scores(session.network, train).text_embeddings
    save(session, "last")
    opened = runs.open_run(tmp_path / "run", "last")
    loaded = tf.saved_model.load(str(runs.export(opened)))
    captions = tf.constant(train.records.captions)
    found = loaded.signatures["embed_text"](captions=captions)["embeddings"]
    cosines = (found.numpy() * expected).sum(axis=1)
    assert cosines.min() > 0.9999
    made_by = session.state.fitted["text_features_made_by"]
    assert made_by["text_features"] == kind


def test_features_that_a_recipe_names_are_made(
    folder, tmp_path, capsys, eagerly
):
    recipe = folder / "of_words.flags"
    recipe.write_text("--features=mean_vector\n--word_vectors=vectors.txt\n")
    flags = by_features(recipe.name)
    session, train = prepare(folder, tmp_path / "run", **flags)
    assert capsys.readouterr().err
    [made] = (folder / "made").glob("of_words-*")
    by_hand = caption_features.load_encoder(folder / "mean_vector")
    captions = train.records.captions
    np.testing.assert_array_equal(
        train.texts.batch([1, 0]),
        by_hand.transform([captions[1], captions[0]]),
    )
    assert session.task.texts.reader(session.state.fitted).dim == 5
    loop.fit(session, train)
    opened = runs.open_run(tmp_path / "run", "last")
    assert opened.task.texts.reader(opened.state.fitted).dim == 5
    assert not capsys.readouterr().err
    recipe.write_text("--features=tfidf\n")
    with refused("--text_features"):
        runs.open_run(tmp_path / "run", "last")


def test_what_features_lack_is_told_before_the_first_step(folder, tmp_path):
    path = folder / "dev_caps.txt"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join(["something else", *others]) + "\n")
    with refused("--text_features"):
        prepare(folder, tmp_path / "run", **by_features("tfidf"))
    path.write_text("\n".join([first, *others]) + "\n")
    (folder / "tfidf" / "encoder.npz").unlink()
    with refused("encoder.npz"):
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
def test_word_vectors_begin_as_in_the_file(folder, tmp_path, training, eagerly):
    changes = WORDS | {"word_vectors_training": training}
    session, train = prepare(folder, tmp_path / "run", **changes)
    vocabulary = session.state.fitted["words"]
    first = table(session)
    for word, row in zip(tiny.WORDS[:5], ROWS):
        np.testing.assert_allclose(first[vocabulary.index(word)], row)
    np.testing.assert_array_equal(first[0], 0)  # Padding.

    loop.fit(session, train)
    moved = np.abs(table(session) - first).max()
    assert moved == 0 if training == "frozen" else moved > 0.01
    reopened = runs.open_run(tmp_path / "run", "last")
    np.testing.assert_array_equal(table(reopened), table(session))


def test_word_vectors_are_centred_and_new_numbers_stand_beside(
    folder, tmp_path
):
    changes = WORDS | {"word_vectors_scale": 0.1, "new_word_dims": 3}
    session, _ = prepare(folder, tmp_path / "run", **changes)
    rows = np.array(ROWS[:5], np.float64)
    rows -= rows.mean(axis=0)
    rows *= 0.1 / rows.std()
    first, vocabulary = table(session), session.state.fitted["words"]
    assert first.shape == (len(vocabulary), rows.shape[1] + 3)
    for word, row in zip(tiny.WORDS[:5], rows):
        found = first[vocabulary.index(word)]
        np.testing.assert_allclose(found[:-3], row, atol=1e-6)
        assert 0 < np.abs(found[-3:]).max() <= 0.05
    np.testing.assert_array_equal(first[0], 0)


def test_word_vectors_are_not_read_where_words_have_those_of_a_model(
    folder, tmp_path
):
    found = tiny.settings(folder, tmp_path, word_vectors="none.txt")
    task = registry.open_task(found.replace(from_="a_model"))
    assert "word_vectors" not in task.fit()


@pytest.mark.parametrize(
    ("fitted", "most"),
    [({}, 200), ({"longest_text": 30}, 200), ({"longest_text": 230}, 230)],
)
def test_a_served_model_reads_what_was_learned_of(fitted, most):
    assert texts.most_words(fitted) == most


def test_a_run_knows_its_longest_caption(folder, tmp_path):
    task = registry.open_task(tiny.settings(folder, tmp_path / "run"))
    lengths = [
        len(text.split()) for text in task.split("train").records.captions
    ]
    assert task.fit()["longest_text"] == max(lengths) == 3
