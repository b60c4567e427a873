"""A run that begins with a trained model: its words, weights and flags."""

import shutil

import numpy as np
import pytest

from tbnets import tasks
from tbnets.serving import saved_files, zoo
from tbnets.tasks import runs, trained
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tbnets.training import checkpoints
from tbnets.training.optimizers import create_optimizer_variables
from tests import tiny, tiny_phrases

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")
FLAGS = {"image_units": "8,4", "text_units": "6,4", "dropout": 0.1}
KEPT = ("word_dim", "image_units", "text_units", "text_encoder")
"""Of the flags of `tiny`, those that a run has from the model."""


def prepared(found):
    return runs.prepare(found, runs.start(found, False))


def begun(found):
    """Returns a session of a run, with checkpoints of its first weights."""
    session, _ = prepared(found)
    save(session)
    return session


def save(session):
    network = session.network
    create_optimizer_variables(network.optimizer, network)
    for name in ("best", "last"):
        checkpoints.save_checkpoint(
            session.checkpoint(name), network, network.optimizer, session.state
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_precomputed(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def other(folder, tmp_path_factory):
    """The same images; captions with words that are new."""
    other = tmp_path_factory.mktemp("other") / "data"
    shutil.copytree(folder, other)
    path = other / "train_caps.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["a zebra", "cat on mat", *lines[2:]]) + "\n")
    return other


@pytest.fixture(scope="module")
def source(folder, tmp_path_factory):
    """A session of a run that others begin with."""
    run_dir = tmp_path_factory.mktemp("runs") / "source"
    session = begun(tiny.settings(folder, run_dir, seed=3, **FLAGS))
    for weight in session.network.weights:  # Statistics and biases, too.
        if "float" in str(weight.dtype):
            noise = np.random.default_rng(0).random(weight.shape)
            weight.assign(weight + noise)
    save(session)
    return session


def settings(data, run_dir, name, **changes):
    """Returns settings of a run that begins with a model."""
    line = tiny.arguments(data, run_dir, **changes)
    given = {k: v for k, v in line.items() if k in changes or k not in KEPT}
    return tiny.parse(f"--from={name}", *[f"--{k}={given[k]}" for k in given])


def test_a_run_begins_where_the_model_ended(source, other, tmp_path):
    words = source.state.fitted["words"]
    found = settings(other, tmp_path / "run", source.run_dir)
    session, train = prepared(found)
    assert session.state.fitted["words"][: len(words)] == words
    new = set(session.state.fitted["words"]) - set(words)
    assert new == {"a", "zebra", "on", "mat"}
    notes = session.task.data.notes(session.state.fitted)
    assert notes["words"] == "12, 4 of them new"
    table = session.network.text_encoder.embedding.embeddings.numpy()
    first = source.network.text_encoder.embedding.embeddings.numpy()
    np.testing.assert_array_equal(table[: len(words)], first)
    assert not (table[len(words) :] == first[1]).all(axis=1).any()
    # Before the first step it answers as the model does.
    captions = ["red dog", "cat runs"]
    answers = [
        one.network.embed_text(
            Tokenizer(Vocabulary(one.state.fitted["words"]))(captions)
        )
        for one in (source, session)
    ]
    np.testing.assert_array_equal(*answers)
    images = train.images.batch(range(5))
    np.testing.assert_array_equal(
        source.network.embed_images(images),
        session.network.embed_images(images),
    )
    assert int(session.network.optimizer.iterations) == 0


def test_flags_are_those_of_the_model_where_none_are_given(source, other):
    name = source.run_dir
    found = settings(other, "runs/new", name, learning_rate=0.5)
    assert (found.branches.image_units, found.branches.text_units) == (
        [8, 4],
        [6, 4],
    )
    assert (found.texts.text_encoder, found.texts.word_dim) == ("mean", 6)
    assert (
        found.branches.dropout,
        found.optimizer.learning_rate,
        found.run.seed,
    ) == (0.1, 0.5, 0)
    assert found.run.run_dir == "runs/new"
    assert found.values()["from"] == found.run.from_ == str(name)


def test_a_resumed_run_needs_the_model_no_more(source, other, tmp_path):
    name = tmp_path / "source"
    shutil.copytree(source.run_dir, name)
    found = settings(other, tmp_path / "run", name)
    session = begun(found)
    shutil.rmtree(name)
    resumed, _ = runs.prepare(found, runs.start(found, True))
    for again in (resumed, runs.open_run(tmp_path / "run")):
        assert again.state.fitted == session.state.fitted
        weights = session.network.weights, again.network.weights
        for one, two in zip(*weights, strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy())


def test_a_run_cut_before_its_first_epoch_begins_with_the_model_again(
    source, other, tmp_path
):
    found = settings(other, tmp_path / "run", source.run_dir)
    one, _ = prepared(found)
    del one
    again = tasks.settings_of(runs.record_before(tmp_path / "run"))
    assert again.run.from_ == found.run.from_
    two, _ = runs.prepare(again, runs.start(again, True))
    assert two.state.fitted["begun_with"]["words"] == 8


@pytest.mark.parametrize(
    "changes, said",
    [
        (
            {"image_units": "9,4"},
            "`--image_units` must be that .* begins with, 8,4. Received: "
            "--image_units=9,4 with --from=.*source. Leave one",
        ),
        ({"task": "localization"}, "`--task` must be that .*, matching. Rec"),
        ({"model": "cca"}, "`--model` must be that .*, embedding. Received"),
        (
            {"image_features": "{split}_wide.npy"},
            "of such inputs .*one of .8, 8. .*/fc1/kernel of .9, 8.",
        ),
    ],
)
def test_what_contradicts_the_model_names_both(
    source, other, tmp_path, changes, said
):
    for split, count in tiny.SPLITS.items():
        np.save(other / f"{split}_wide.npy", np.ones((count, 9), "float32"))
        ids = other / f"{split}_ids.txt"
        shutil.copy(ids, other / f"{split}_wide_ids.txt")
    with pytest.raises(ValueError, match=said):
        prepared(settings(other, tmp_path / "run", source.run_dir, **changes))
    assert not (tmp_path / "run").exists()


def test_word_vectors_are_none_of_a_run_that_has_words(source, other):
    name = source.run_dir
    with pytest.raises(ValueError, match="--word_vectors.*, without --from"):
        tiny.unread("--word_vectors=w.txt", f"--from={name}", "--run_dir=x")


@pytest.mark.parametrize(
    "name, said",
    [
        ("scenes_localizer", "Did you mean scenes_localization or ent"),
        ("nowhere/at/all", "where there is none. The zoo has"),
        (".", "a folder without checkpoints.best.npz. "),
    ],
)
def test_a_name_of_no_model_is_told_what_there_is(
    tmp_path, monkeypatch, name, said
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"--from={name}, .*{said}"):
        trained.open_trained(name)


def test_a_model_that_takes_no_steps_is_refused(source, tmp_path):
    kept = checkpoints.read_checkpoint(source.checkpoint("best"))
    kept.state.settings["model"] = "cca"
    path = tmp_path / "checkpoints" / "best.npz"
    path.parent.mkdir()
    checkpoints.save_checkpoint(path, source.network, None, kept.state)
    with pytest.raises(ValueError, match="of --model=cca, which is solved"):
        trained.open_trained(str(tmp_path))


def test_a_model_that_lacks_a_weight_is_refused(source, other, tmp_path):
    model = trained.open_trained(str(source.run_dir))
    flat = [(name, array.ravel()) for name, array in model.weights]
    with pytest.raises(ValueError, match="with one of .* where the run has"):
        model._replace(weights=flat).put_into(source.network)
    with pytest.raises(ValueError, match="with none where the run has"):
        model._replace(weights=model.weights[1:]).put_into(source.network)


def test_words_are_found_wherever_a_keras_counts_them(source):
    """Keras 2 puts frozen ones behind the other weights of an encoder."""
    model = trained.open_trained(str(source.run_dir))
    [words] = [one for one in model.weights if "embeddings" in one[0]]
    others = [one for one in model.weights if one is not words]
    expected = model._arrays(source.network)
    found = model._replace(weights=[words, *others])._arrays(source.network)
    assert found.keys() == expected.keys()
    assert all(found[name] is expected[name] for name in found)


def test_phrase_localization_begins_with_a_model(tmp_path):
    data = tiny_phrases.write_phrases(tmp_path / "data")
    before = begun(tiny_phrases.settings(data, tmp_path / "source"))
    found = tiny_phrases.settings(
        data, tmp_path / "run", seed=9, **{"from": tmp_path / "source"}
    )
    session, _ = prepared(found)
    for one, two in zip(before.network.weights, session.network.weights):
        np.testing.assert_array_equal(one.numpy(), two.numpy())


def test_a_folder_of_the_zoo_tells_what_is_newer_than_it():
    model = trained.open_trained(str(zoo.folder() / "scenes_localization"))
    made_by = model.fitted["image_features_made_by"]
    assert made_by["grids"] == made_by["scales"] == [1, 1]
    assert model.values()["image_units"] == [256, 128]


@pytest.mark.parametrize("name", zoo.names())
def test_models_of_the_zoo_name_their_optimizer(name):
    """A run from one goes on by its optimizer, not by the default."""
    metadata = saved_files.read_metadata(zoo.folder() / name / "1")
    assert "optimizer" in metadata["metadata"]["settings"]


def test_weights_of_the_zoo_find_their_branches():
    """HM-LSTM has three: its names count them as they were made."""
    model = trained.open_trained("scenes_hm_lstm")
    dims = {"image_dim": 152, "region_dim": 157, "text_dim": None}
    fitted = {**dims, "words": [*model.fitted["words"], "zebra"]}
    network = tasks.BUILDERS["hm_lstm"].build(model.settings, fitted)
    model.put_into(network)
    told = {name.partition("/")[2]: array for name, array in model.weights}
    for name, branch in (
        ("branch", network.image_branch),
        ("branch_1", network.text_branch),
        ("branch_2", network.region_branch),
    ):
        for place, one in enumerate(("fc1/kernel", "fc1/bias", "bn/gamma")):
            weight = branch.get_weights()[place]
            assert weight.dtype == "float32"
            np.testing.assert_array_equal(weight, told[f"{name}/{one}"])
    for name, encoder in (
        ("feature_transform", network.image_encoder),
        ("feature_transform_1", network.region_encoder),
    ):
        [mean, _] = encoder.get_weights()
        np.testing.assert_array_equal(mean, told[f"{name}/mean"])
    words = network.text_encoder.embedding.get_weights()[0]
    first = told["tree_encoder/words/embeddings"]
    np.testing.assert_array_equal(words[: len(first)], first)
    assert len(words) == len(first) + 1
