"""A run that an older version left opens, evaluates, exports and resumes."""

import json
import pathlib
import shutil

import keras
import pytest

from tbnets.cli import run_line
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.training import loop
from tests import tiny

# Of the version before `tasks/` and `flags/`: format tbnets-checkpoint-1.
OLD = pathlib.Path(__file__).parents[1] / "before_rooms"


pytestmark = pytest.mark.skipif(
    keras.__version__.startswith("2."),
    reason="the run was trained by Keras 3, which counts other weights",
)


@pytest.fixture
def old_run(tmp_path, monkeypatch):
    """The run in a folder of its own, and the data it was made on."""
    monkeypatch.chdir(tmp_path)
    tiny.write_precomputed(tmp_path / "data")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in ("best", "last"):
        shutil.copy(OLD / f"{name}.npz", "run/checkpoints")
    shutil.copy(OLD / "settings.json", "run")
    return tmp_path / "run"


def test_it_opens_and_evaluates_as_it_did(old_run):
    session = runs.open_run(old_run)
    assert session.settings.task == "matching"
    assert session.state.fitted["image_dim"] == 8
    test = session.task.data.load("test", session.state.fitted)
    metrics = session.task.scores(session.network, test).metrics()
    expected = json.loads((OLD / "metrics.json").read_text())["test"]
    assert metrics == pytest.approx(expected)


def test_it_exports(old_run):
    model = load_saved_model(runs.export(runs.open_run(old_run, "last")))
    assert model.metadata["metadata"]["epoch"] == 3
    assert model.embed_text(["red dog"]).shape == (1, 4)


def test_it_resumes(old_run, eagerly):
    line = tiny.typed("--epochs=4")
    before = runs.record_before(old_run)
    settings = run_line.settings(line, before)
    settings = settings.replace(run_dir="run")
    session, train = runs.prepare(settings, runs.start(settings, True))
    # By the code that it was started with.
    assert type(session.network.optimizer) is keras.optimizers.Adam
    assert session.state.epoch == 3
    loop.fit(session, train)
    assert [len(session.state.history), session.state.epoch] == [4, 4]
    assert session.state.fitted["words"][:2] == ["", "[UNK]"]
