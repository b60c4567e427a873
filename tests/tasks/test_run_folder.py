"""Tests of a run's folder that was cut, damaged, or is written by another."""

import gc
import json
import os
import shutil

import pytest

from tbnets.cli.train import Options, checked_settings
from tbnets.errors import InputError
from tbnets.files import fcntl, try_lock
from tbnets.tasks import builders, registry, runs
from tbnets.tasks.runs import LOCK, check_run_folder
from tbnets.training import checkpoints
from tests import tiny
from tests.refusals import refused
from tests.tiny_runs import assert_same_weights, prepared, save
from tests.training.test_checkpoints import rewritten


@pytest.fixture(scope="module")
def folder(tiny_run):
    return tiny_run.captioned


@pytest.fixture(scope="module")
def begun(folder, tmp_path_factory):
    """Returns the folder of a run after an epoch, without its training."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        session, _ = prepared(tiny.settings(folder.name, run_dir))
    session.state.epoch, session.state.best_epoch = 1, 1
    session.state.history = [{"dev/recall_sum": 1.0, "seconds": 1.0}]
    save(session)
    return run_dir


@pytest.fixture
def run_dir(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "run")


def resume(folder, run_dir, **changes):
    return prepared(tiny.settings(folder, run_dir, **changes), True)[0]


def test_folder_of_a_killed_start_counts_as_empty(tmp_path):
    for name in (LOCK, f".settings.json.{12 * '0'}.partial"):
        (tmp_path / name).touch()
    assert check_run_folder(tmp_path, resume=False) == tmp_path
    with refused("--resume"):
        check_run_folder(tmp_path, resume=True)


def test_a_read_only_folder_is_refused_before_any_work(folder, tmp_path):
    for name in ("disk/run", "disk"):
        (tmp_path / "disk").mkdir(exist_ok=True)
        (tmp_path / "disk").chmod(0o555)
        with refused("--run_dir"):
            runs.start(tiny.settings(folder, tmp_path / name), False)
    (tmp_path / "disk").chmod(0o755)


def test_killed_start_can_be_repeated(folder, tmp_path):
    settings = tiny.settings(folder, tmp_path / "run")
    run = runs.start(settings, False)
    runs.prepare(settings, run)
    for name in ("vocabulary.txt", "run.flags"):  # The files written last.
        assert runs.start(settings, False) == runs.start(settings, True) == run
        (run / name).unlink()
    assert runs.start(settings, False) == runs.start(settings, True) == run


def test_start_removes_an_old_best_checkpoint(folder, run_dir):
    (run_dir / "checkpoints" / "last.npz").unlink()
    settings = tiny.settings(folder, run_dir, seed=3)
    prepared(settings)
    assert list((run_dir / "checkpoints").iterdir()) == []


@pytest.mark.skipif(fcntl is None, reason="this system has no locks")
def test_lock_excludes_other_training_but_not_readers(folder, run_dir):
    with open(run_dir / LOCK, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("77 of here\n")
        file.flush()
        with pytest.raises(FileExistsError, match=f"{run_dir}.* 77"):
            resume(folder, run_dir)
        assert runs.open_run(run_dir).state.epoch == 1
    session = resume(folder, run_dir)
    assert session.state.epoch == 1
    # The run is locked as long as its session exists.
    with open(run_dir / LOCK) as file:
        assert file.read().startswith(f"{os.getpid()} of ")
        assert try_lock(file.fileno()) is False
        del session
        gc.collect()
        assert try_lock(file.fileno())


def test_run_started_meanwhile_by_another_process_is_an_error(folder, begun):
    settings = tiny.settings(folder, begun, seed=3)
    with pytest.raises(InputError, match="--seed=0"):
        runs.prepare(settings, begun)


def test_run_resumes_from_any_folder(folder, run_dir, monkeypatch):
    monkeypatch.chdir(run_dir.parent)
    line = tiny.typed("--resume", "--run_dir=run", "--data_root=data")
    settings = checked_settings(line.take(Options), line).settings
    assert settings.captions.data_root == str(run_dir.parent / "data")
    line = tiny.typed("--resume", "--run_dir=run")
    settings = checked_settings(line.take(Options), line).settings
    session, _ = prepared(settings, True)
    assert session.state.epoch == 1
    record = json.loads((run_dir / "settings.json").read_text())
    assert record["started_in"] == str(folder.parent)


def test_resume_refuses_other_flags(folder, run_dir):
    # The settings in the checkpoint count, not the edited file.
    (run_dir / "settings.json").write_text('{"margin": 0.3}')
    with refused("--resume"):
        runs.start(tiny.settings(folder, run_dir, margin=0.3), True)


@pytest.mark.parametrize("content", [None, "{"])
def test_resumed_run_rewrites_damaged_settings(folder, run_dir, content):
    path = run_dir / "settings.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with refused("run_dir"):
        runs.open_run(run_dir)
    assert resume(folder, run_dir).state.epoch == 1
    assert runs.open_run(run_dir).settings.run.seed == 0


@pytest.mark.parametrize(
    "part, changes",
    [
        ("fitted", {"words": 5}),
        ("fitted", {"image_dim": "8"}),
        ("fitted", {"left_out": []}),
        ("settings", {"task": "tusk"}),
        # No network can be built of these.
        ("settings", {"text_units": [8, 0]}),
    ],
)
def test_invalid_checkpoint_values_name_the_checkpoint(run_dir, part, changes):
    path = run_dir / "checkpoints" / "best.npz"
    values = getattr(checkpoints.read_checkpoint(path).state, part)
    rewritten(path, **{part: {**values, **changes}})
    with refused(path):
        runs.open_run(run_dir)


def test_run_resumes_without_its_initial_weights_file(
    folder, run_dir, monkeypatch
):
    build, read = builders.build_image_encoder, []

    def noted(settings, fitted):
        read.append(settings.features.cnn_weights)
        return build(settings, fitted)

    monkeypatch.setattr(builders, "build_image_encoder", noted)
    path = run_dir / "settings.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "cnn_weights": "gone.h5"}))
    session = runs.open_run(run_dir)
    assert session.settings.features.cnn_weights == "gone.h5" and read == [
        "random"
    ]
    for name in ("best", "last"):
        checkpoint = run_dir / "checkpoints" / f"{name}.npz"
        kept = checkpoints.read_checkpoint(checkpoint).state.settings
        rewritten(checkpoint, settings={**kept, "cnn_weights": "gone.h5"})
    before = registry.settings_of(runs.record_before(run_dir))
    again, _ = prepared(before, True)
    assert read == ["random"] * 2
    assert again.settings.features.cnn_weights == "gone.h5"
    assert_same_weights(session.network, again.network)
