"""Tests a run of two workers: first the chief runs, then worker 1."""

import pathlib

import pytest

from tbnets.errors import MissingFileError
from tbnets.tasks import runs
from tbnets.training import loop
from tbnets.training.distribution import Workers, WorkerTask
from tests import tiny
from tests.refusals import refused

ADDRESSES = {"worker 0": "localhost:1", "worker 1": "localhost:2"}


class Apart(Workers):
    """A worker that reads the values that the chief recorded.

    Args:
        index: index of the worker; 0 is the chief.
        said: list of values that the chief appends and worker 1 removes.
    """

    def __init__(self, index, said):
        super().__init__(
            None, WorkerTask(f"worker {index}", not index, ADDRESSES)
        )
        self.said = said

    def from_chief(self, value=None):
        """Returns the value of the chief."""
        if self.is_chief:
            self.said.append(value)
            return value
        return self.said.pop(0)


@pytest.fixture(scope="module")
def run(tmp_path_factory, module_eagerly):
    """Returns the settings, and the values and session of the chief."""
    folder = tmp_path_factory.mktemp("run")
    data, said = tiny.write_precomputed(folder / "data"), []
    least = {"image_units": 4, "text_units": 4, "images_per_batch": 12}
    least |= {"batch_normalization": "none", "epochs": 2, "patience": 0}
    settings = tiny.settings(data, folder / "run", **least)
    return settings, said, train(settings, Apart(0, said))


def train(settings, workers):
    run_dir = runs.start(settings, False)
    session, train = runs.prepare(settings, run_dir, (), workers)
    loop.fit(session, train)
    return session


def files_of(run_dir):
    paths = sorted(p for p in pathlib.Path(run_dir).rglob("*") if p.is_file())
    return {path: path.stat().st_mtime_ns for path in paths}


def test_worker_1_receives_the_chiefs_metrics_and_writes_nothing(
    run, tmp_path, monkeypatch
):
    settings, said, chief = run
    before, said = files_of(chief.run_dir), list(said)
    # A real worker 1 starts before the first checkpoint.
    monkeypatch.setattr(runs, "check_run_folder", lambda folder, **_: folder)
    other = settings.replace(run_dir=str(tmp_path / "none"))
    monkeypatch.setattr(runs, "start", lambda *_: tmp_path / "none")
    session = train(other, Apart(1, said))
    assert not said
    assert session.state.history == chief.state.history
    assert session.state.best_epoch == chief.state.best_epoch
    assert not (tmp_path / "none").exists()
    assert files_of(chief.run_dir) == before


def test_a_worker_with_other_settings_is_rejected(run, tmp_path):
    settings, said, _ = run
    other = settings.replace(margin=0.7, run_dir=str(tmp_path))
    with refused("the flags"):
        train(other, Apart(1, list(said)))
    there = [said[0], {"epochs": 1}]
    with refused("--run_dir"):
        train(settings.replace(run_dir=str(tmp_path)), Apart(1, there))


def test_workers_read_data_after_the_chief(run, tmp_path):
    settings, _, _ = run
    places = {"data_root": str(tmp_path / "data"), "run_dir": str(tmp_path)}
    said = []
    with pytest.raises(MissingFileError):
        train(settings.replace(**places), Apart(0, said))
    assert [list(one) for one in said[1:]] == [["epochs"]]
