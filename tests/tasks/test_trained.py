"""A run that begins with a trained model: its words, weights and flags."""

import shutil

import numpy as np
import pytest

from tbnets.errors import InputError, MissingFileError
from tbnets.serving import saved_files, zoo
from tbnets.tasks import runs, trained
from tbnets.tasks.builders import build_network
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tbnets.training import checkpoints, loop
from tests import tiny
from tests.refusals import refused
from tests.tiny_runs import assert_same_weights, begun, prepared, save

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")
FLAGS = {"image_units": "8,4", "text_units": "6,4", "dropout": 0.1}
KEPT = ("word_dim", "image_units", "text_units", "text_encoder")
"""Of the flags of `tiny`, those that a run has from the model."""


@pytest.fixture(scope="module")
def other(tiny_run, tmp_path_factory):
    """The same images; captions with words that are new."""
    other = tmp_path_factory.mktemp("other") / "data"
    shutil.copytree(tiny_run.captioned, other)
    path = other / "train_caps.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["a zebra", "cat on mat", *lines[2:]]) + "\n")
    return other


@pytest.fixture(scope="module")
def source(tiny_run, tmp_path_factory):
    """A session of a run that others begin with."""
    run_dir = tmp_path_factory.mktemp("runs") / "source"
    session = begun(tiny_run.settings(run_dir, seed=3, **FLAGS))
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


def test_run_starts_with_the_weights_and_words_of_the_model(
    source, other, tmp_path
):
    words = source.state.fitted["words"]
    found = settings(other, tmp_path / "run", source.run_dir)
    session, train = prepared(found)
    assert session.state.fitted["words"][: len(words)] == words
    new = set(session.state.fitted["words"]) - set(words)
    assert new == {"a", "zebra", "on", "mat"}
    notes = session.task.notes(session.state.fitted)
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


def test_epoch_0_is_kept_if_no_epoch_is_better(tiny_run, tmp_path, capsys):
    still = {"batch_normalization": "none", "learning_rate": 1e-30}
    start = begun(tiny_run.settings(tmp_path / "start", **still))
    found = settings(
        tiny_run.captioned,
        tmp_path / "run",
        tmp_path / "start",
        epochs=3,
        patience=2,
        learning_rate=1e-30,
    )
    session, examples = prepared(found)
    loop.fit(session, examples)
    assert (session.state.best_epoch, session.state.epoch) == (0, 2)
    before = session.state.before["dev/recall_sum"]
    assert session.state.best_metric == before
    told = capsys.readouterr().out
    assert "epoch   0/3  before" in told
    assert "no epoch is better on the dev split" in told
    resumed, examples = prepared(found, resume=True)
    loop.fit(resumed, examples)
    assert resumed.state.epoch == 2
    report = runs.finish(resumed)
    assert report["best_epoch"] == 0
    assert report["dev"]["recall_sum"] == before
    assert_same_weights(start.network, resumed.network)


def test_unset_flags_take_the_values_of_the_model(source, other):
    name = source.run_dir
    found = settings(other, "runs/new", name, learning_rate=0.5)
    expected = {
        "image_units": [8, 4],
        "text_units": [6, 4],
        "text_encoder": "mean",
        "word_dim": 6,
        "dropout": 0.1,
        "learning_rate": 0.5,
        "seed": 0,
        "run_dir": "runs/new",
        "from": str(name),
    }
    assert expected.items() <= found.values().items()
    assert found.run.from_ == str(name)


def test_resumed_run_does_not_need_the_model(source, other, tmp_path):
    name = tmp_path / "source"
    shutil.copytree(source.run_dir, name)
    found = settings(other, tmp_path / "run", name)
    session = begun(found)
    shutil.rmtree(name)
    for again in (prepared(found, True)[0], runs.open_run(tmp_path / "run")):
        assert again.state.fitted == session.state.fitted
        assert_same_weights(session.network, again.network)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"image_units": "9,4"}, "--image_units"),
        ({"task": "localization"}, "--task"),
        ({"model": "cca"}, "--model"),
        ({"image_features": "{split}_ims.npy,{split}_ims.npy"}, "--from"),
    ],
)
def test_flags_that_contradict_the_model_raise_errors(
    source, other, tmp_path, changes, name
):
    with refused(name):
        prepared(settings(other, tmp_path / "run", source.run_dir, **changes))
    assert not (tmp_path / "run").exists()


def test_invalid_models_to_start_from_raise_errors(source, tmp_path):
    for name in ("scenes_localizer", "nowhere/at/all", str(tmp_path)):
        with refused("--from", kind=MissingFileError):
            trained.open_trained(name)
    kept = checkpoints.read_checkpoint(source.checkpoint("best"))
    kept.state.settings["model"] = "cca"  # It takes no steps.
    path = tmp_path / "checkpoints" / "best.npz"
    path.parent.mkdir()
    checkpoints.save_checkpoint(path, source.network, None, kept.state)
    with refused("--from", kind=InputError):
        trained.open_trained(str(tmp_path))


def test_missing_or_reshaped_weights_raise_errors(source):
    model = trained.open_trained(str(source.run_dir))
    flat = [(name, array.ravel()) for name, array in model.weights]
    for weights in (flat, model.weights[1:]):
        with refused("--from"):
            model._replace(weights=weights).put_into(source.network)


def test_localization_starts_from_a_model(tiny_run, tmp_path):
    before = begun(tiny_run.settings(tmp_path / "source", "localization"))
    changes = {"from": tmp_path / "source", "seed": 9}
    settings = tiny_run.settings(tmp_path / "run", "localization", **changes)
    assert_same_weights(before.network, prepared(settings)[0].network)


def test_zoo_metadata_has_defaults_of_newer_settings():
    model = trained.open_trained(str(zoo.folder() / "scenes_localization"))
    made_by = model.fitted["image_features_made_by"]
    assert made_by["grids"] == made_by["scales"] == [1, 1]
    assert model.values()["image_units"] == [256, 128]


def test_zoo_metadata_names_the_optimizer():
    """A run from one goes on by its optimizer, not by the default."""
    for name in zoo.names():
        metadata = saved_files.read_metadata(zoo.folder() / name / "1")
        assert "optimizer" in metadata["metadata"]["settings"], name


def test_zoo_weights_are_assigned_to_their_branches():
    """HM-LSTM has three: its names count them as they were made."""
    model = trained.open_trained("scenes_hm_lstm")
    words = [*model.fitted["words"], "zebra"]
    fitted = {"image_dim": 152, "region_dim": 157, "words": words}
    network = build_network(model.settings, fitted)
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
