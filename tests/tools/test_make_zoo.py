"""A run becomes a folder of the zoo, or is refused; nothing is half made."""

import json
import shutil

import keras
import make_zoo
import numpy as np
import pytest
import tensorflow as tf
from zoo_making import alike, cards

from tbnets.errors import InputError
from tbnets.serving import saved_files, zoo
from tbnets.serving.checksums import FOLDER, write_checksums
from tbnets.serving.endpoints import Endpoints
from tbnets.serving.export import write_saved_model
from tbnets.serving.served import load_saved_model
from tbnets.tasks.settings.records import FLAGFILE
from tests import saved_models, tiny, verbs
from tests.refusals import refused

# No graph is tested, except exported graphs.
pytestmark = pytest.mark.usefixtures("module_eagerly")

CARD = """# tiny

Words for
numbers.

## Data and terms

Made up.

## Not for

Anything.
"""


def tool(*arguments):
    return verbs.run("make_zoo", *arguments)


def anew(*arguments):
    """Calls the tool where a network's layers are named as in training."""
    keras.utils.clear_session(free_memory=False)
    return tool(*arguments)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tiny.write_precomputed(tmp_path_factory.mktemp("data"))
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    line = tiny.arguments(folder, run_dir, epochs=1).items()
    flags = (f"--{name}={value}" for name, value in line)
    trained = verbs.train(*flags)
    assert trained.returncode == 0, trained.stderr
    return run_dir


@pytest.fixture(scope="module")
def made(run_dir, tmp_path_factory):
    """Returns the zoo with the run's model, and what the tool said."""
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "card.md").write_text(CARD)
    ended = anew(
        f"--zoo={folder / 'zoo'}",
        f"--run_dir={run_dir}",
        "--name=tiny",
        f"--card={folder / 'card.md'}",
        "--table",
        "--most_lost=5",
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "zoo", ended.stdout


def test_run_becomes_a_zoo_model(made, run_dir):
    folder, said = made
    model = zoo.open_model(folder / "tiny")
    assert model.embed_text(["dog"]).shape == (1, 4)
    assert "as exported" in said and "MB" in said
    metrics = json.loads((folder / "tiny" / "metrics.json").read_text())
    report = json.loads((run_dir / "metrics.json").read_text())
    assert metrics["run_recall_sum"] == report["test"]["recall_sum"]
    assert metrics["test"].keys() == report["test"].keys()
    assert metrics["command"].endswith("model_zoo/tiny/tiny.flags")
    lines = (folder / "tiny" / "tiny.flags").read_text().splitlines()
    assert lines[0].startswith("#")
    before = (run_dir / FLAGFILE).read_text().splitlines()
    places = "--run_dir=", "--data_root="
    of_places = {line for line in before if line.startswith(places)}
    assert {*before} - {*lines} == of_places


def test_zoo_model_has_no_paths_of_the_machine(made, run_dir):
    for file in zoo.model_files(made[0] / "tiny").values():
        content = file.read_bytes()
        for place in (run_dir.parent.parent, made[0], "/root", "/home"):
            assert str(place).encode() not in content, file


def test_an_edited_card_is_renewed(made):
    folder = made[0]
    card = folder / "tiny" / "README.md"
    before = card.read_text()
    card.write_text(before.replace("Made up.", "Made up, by us."))
    with pytest.raises(ValueError, match="README.md was changed"):
        zoo.open_model(folder / "tiny")
    assert tool(f"--zoo={folder}", "--name=tiny").returncode == 0
    zoo.check_files(folder / "tiny")
    assert card.read_text() == before.replace("Made up.", "Made up, by us.")
    metrics = folder / "tiny" / "metrics.json"
    metrics.write_text(metrics.read_text() + "\n")
    ended = tool(f"--zoo={folder}", "--name=tiny")
    assert "metrics.json was changed" in ended.stderr
    metrics.write_text(metrics.read_text()[:-1])
    zoo.check_files(folder / "tiny")


def test_model_with_a_large_loss_of_recall_raises_an_error():
    options = make_zoo.Options(most_lost=0.2)
    make_zoo.check_loss(options, 100.0, 99.81)
    with refused("--most_lost"):
        make_zoo.check_loss(options, 100.0, 99.79)


@pytest.mark.skipif(
    keras.__version__.startswith("2."),
    reason="weights in a SavedModel of Keras 2 do not have the layers' names",
)
def test_a_model_is_exported_again_with_its_weights(made, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "zoo")
    path = folder / "tiny" / "1"
    before = zoo.open_model(folder / "tiny")
    wanted = before.embed_text(["dog runs", "a"])
    metadata = json.loads((path / saved_files.METADATA_FILE).read_text())
    metadata["tensorflow_version"] = "1.0"  # Of another exporter.
    (path / saved_files.METADATA_FILE).write_text(json.dumps(metadata))
    lite_file = folder / "tiny" / FOLDER / "int8" / "image.tflite"
    lite_file.parent.mkdir(parents=True)
    lite_file.write_bytes(b"lite")
    write_checksums(folder / "tiny")
    with saved_models.loaded_once():
        ended = anew(f"--zoo={folder}", "--name=tiny", "--again")
    assert ended.returncode == 0, ended.stderr
    assert "outputs     differ by 0.0e+00 at most" in ended.stdout
    after = zoo.open_model(folder / "tiny")
    np.testing.assert_array_equal(after.embed_text(["dog runs", "a"]), wanted)
    assert after.metadata["tensorflow_version"] != "1.0"
    assert after.metadata["metadata"] == before.metadata["metadata"]
    assert lite_file.read_bytes() == b"lite"
    metrics = json.loads((folder / "tiny" / "metrics.json").read_text())
    assert metrics == json.loads((made[0] / "tiny/metrics.json").read_text())
    card = (folder / "tiny" / "README.md").read_text()
    assert "Words after the 200th are not read." in " ".join(card.split())


def scaling(factor):
    """Returns the endpoints of a model that multiplies."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="rows")])
    def embed(rows):
        return {"embeddings": factor * rows, "status": tf.constant("")}

    return Endpoints({"embed": embed}, "embed")


def test_changed_outputs_are_reported(tmp_path):
    one, same, other = (
        load_saved_model(write_saved_model(scaling(factor), tmp_path / name))
        for name, factor in (("1", 1.0), ("2", 1.0), ("3", 1.1))
    )
    assert alike._compare(one.signatures, same) == 0
    with pytest.raises(InputError, match="embed, whose outputs differ by"):
        alike._compare(one.signatures, other)


def test_recall_sum_of_localization_adds_its_recalls():
    # 25 + 50 + 75.
    recalls = zip((1, 5, 10), (0.25, 0.5, 0.75))
    names = {f"phrase_to_region/recall_at_{k}": x for k, x in recalls}
    assert cards.recall_sum(names) == 150
    assert cards.recall_sum({"recall_sum": 300.5}) == 300.5


@pytest.mark.parametrize("name", zoo.names())
def test_zoo_cards_are_generated_from_their_metrics(name):
    folder = zoo.folder() / name
    text = cards.own_text(folder / "README.md")
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    card = cards.render_card(name, text, metrics)
    assert card == (folder / "README.md").read_text("utf-8")


def test_flag_file_paths_are_relative():
    portable = [
        "--image_units=1024,512",
        "--captions=flickr8k/dataset.json",
        "--margin=0.2",
    ]
    lines = [
        "--data_root=/home/me/data",
        "--run_dir=/home/me/runs/x",
        "--scenes=/tmp/scenes20k",
        "--image_features=/a/b/{split}_ims.npy,features/own",
    ]
    assert cards.portable_flags([*lines, *portable], "tiny")[1:] == [
        "--run_dir=runs/tiny",
        "--scenes=runs/scenes20k",
        "--image_features=data/{split}_ims.npy,features/own",
        *portable,
    ]
