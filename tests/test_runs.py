"""Tests of a run's folder: how it starts, opens and ends."""

import json
import shutil

import numpy as np
import pytest

from tbnets import runs
from tbnets.training import checkpoints
from tests import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_precomputed(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """Returns the folder of a run that was saved without being trained."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    settings = tiny.settings(folder, run_dir, text_encoder="mean")
    session, _ = runs.prepare(settings, runs.start(settings, False))
    checkpoints.save_checkpoint(
        session.checkpoint("best"), session.network, None, session.state
    )
    return run_dir


def test_open_run_restores_a_checkpoint_by_name(finished):
    session = runs.open_run(finished)
    fitted = session.state.fitted
    assert (fitted["image_dim"], fitted["text_dim"]) == (8, None)
    assert fitted["words"][:2] == ["", "[UNK]"]
    assert session.settings.image_units == [8, 4]
    assert session.network.embed_images(np.ones((2, 8), "float32")).shape == (
        2,
        4,
    )


def test_open_run_names_the_checkpoint_that_is_not_there(finished):
    with pytest.raises(ValueError) as caught:
        runs.open_run(finished, "last")
    path = finished / "checkpoints" / "last.npz"
    assert f"run_dir={finished}, without {path}" in str(caught.value)


def test_open_run_of_an_absent_folder(tmp_path):
    with pytest.raises(ValueError, match="`run_dir` must be the folder of a"):
        runs.open_run(tmp_path / "absent")


@pytest.mark.parametrize("kept", [0, 100, 0.5])
def test_open_run_names_a_damaged_checkpoint(finished, tmp_path, kept):
    run_dir = tmp_path / "run"
    (run_dir / "checkpoints").mkdir(parents=True)
    content = (finished / "checkpoints" / "best.npz").read_bytes()
    size = kept if isinstance(kept, int) else int(kept * len(content))
    (run_dir / "checkpoints" / "best.npz").write_bytes(content[:size])
    (run_dir / "settings.json").write_bytes(
        (finished / "settings.json").read_bytes()
    )
    with pytest.raises(ValueError, match="best.npz must be a whole tbnets"):
        runs.open_run(run_dir)


def edited(finished, tmp_path, **changes):
    """Returns a copy of a run with changed settings.json."""
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    path = run_dir / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return run_dir


def test_edited_settings_change_no_network(finished, tmp_path):
    run_dir = edited(
        finished, tmp_path, image_transform=["l2"], word_dim=7, margin=9.0
    )
    images = np.arange(16, dtype="float32").reshape(2, 8)
    found, wanted = runs.open_run(run_dir), runs.open_run(finished)
    assert found.settings.image_transform == []
    assert found.settings.margin == wanted.settings.margin
    np.testing.assert_array_equal(
        found.network.embed_images(images), wanted.network.embed_images(images)
    )


def test_places_may_be_edited_as_data_move(finished, tmp_path, monkeypatch):
    run_dir = edited(finished, tmp_path, captions="moved", data_root="there")
    found = runs.open_run(run_dir).settings
    assert (found.captions, found.data_root) == ("moved", "there")
    monkeypatch.setenv("TBNETS_DATA", "elsewhere")
    assert runs.open_run(run_dir).settings.data_root == "elsewhere"
    found = runs.open_run(run_dir, data_root="named").settings
    assert found.data_root == "named"


def test_resume_of_a_mistyped_folder_starts_nothing(folder, tmp_path):
    settings = tiny.settings(folder, tmp_path / "rum")
    with pytest.raises(ValueError, match="`--resume` must come with .*/rum"):
        runs.start(settings, resume=True)
    assert not (tmp_path / "rum").exists()


def test_resume_of_a_run_killed_in_its_first_epoch_starts_it(folder, tmp_path):
    settings = tiny.settings(folder, tmp_path / "run")
    assert runs.start(settings, resume=False) == tmp_path / "run"
    assert runs.start(settings, resume=True) == tmp_path / "run"
