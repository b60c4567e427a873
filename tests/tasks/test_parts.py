import pathlib
import types

import numpy as np
import pytest

from tbnets import runs
from tbnets.losses import triplet
from tbnets.tasks import inputs
from tbnets.tasks import parts
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


@pytest.fixture
def no_data_root(monkeypatch):
    monkeypatch.delenv("TBNETS_DATA", raising=False)


def settings(root):
    return types.SimpleNamespace(data_root=str(root))


def test_paths_start_from_the_data_root(no_data_root):
    found = inputs.resolve(settings("some/data"), "flickr/captions.json")
    assert found == pathlib.Path("some/data/flickr/captions.json")


def test_absolute_paths_stay(no_data_root, tmp_path):
    found = inputs.resolve(settings("some/data"), tmp_path / "a.npy")
    assert found == tmp_path / "a.npy"


def test_environment_overrides_the_data_root(monkeypatch):
    monkeypatch.setenv("TBNETS_DATA", "/elsewhere")
    found = inputs.resolve(settings("some/data"), "a.npy")
    assert found == pathlib.Path("/elsewhere/a.npy")


def test_what_a_tool_made_here_is_found(no_data_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "manifest.json").write_text("{}")
    found = inputs.resolve(settings("some/data"), "features", "train")
    assert found == pathlib.Path("features")
    (tmp_path / "some" / "data" / "features").mkdir(parents=True)
    found = inputs.resolve(settings("some/data"), "features", "train")
    assert found == pathlib.Path("some/data/features")


def test_split_is_filled_in_under_either_name(monkeypatch, folder):
    monkeypatch.setenv("TBNETS_DATA", str(folder))
    pattern = "{split}_ims.npy"
    for split in ("dev", "val"):
        found = inputs.resolve(settings("."), pattern, split)
        assert found == folder / "dev_ims.npy"
    with pytest.raises(ValueError, match="test2"):
        inputs.resolve(settings("."), pattern, "test2")


def test_a_run_reads_below_the_environments_root(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("TBNETS_DATA", str(folder))
    moved = tiny.settings(tmp_path / "absent", tmp_path / "run")
    assert inputs.load_records(moved, "train").num_images == 12
    monkeypatch.delenv("TBNETS_DATA")
    with pytest.raises((ValueError, OSError), match="absent"):
        inputs.load_records(moved, "train")


def test_open_run_restores_a_checkpoint_by_name(finished):
    network, vocabulary, found, state = parts.open_run(finished)
    assert state.dims == {"image_dim": 8, "text_dim": None}
    assert vocabulary.words == state.words
    assert found.image_units == [8, 4]
    assert network.embed_images(np.ones((2, 8), "float32")).shape == (2, 4)


def test_open_run_names_the_checkpoint_that_is_not_there(finished):
    with pytest.raises(ValueError) as caught:
        parts.open_run(finished, "last")
    path = finished / "checkpoints" / "last.npz"
    assert f"run_dir={finished}, without {path}" in str(caught.value)


def test_open_run_of_an_absent_folder(tmp_path):
    with pytest.raises(ValueError, match="`run_dir` must be the folder of a"):
        parts.open_run(tmp_path / "absent")


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
        parts.open_run(run_dir)


def test_open_run_refuses_weights_of_another_network(finished, tmp_path):
    run_dir = tmp_path / "run"
    (run_dir / "checkpoints").mkdir(parents=True)
    content = (finished / "checkpoints" / "best.npz").read_bytes()
    (run_dir / "checkpoints" / "best.npz").write_bytes(content)
    text = (finished / "settings.json").read_text()
    assert '"word_dim": 6' in text
    changed = text.replace('"word_dim": 6', '"word_dim": 7')
    (run_dir / "settings.json").write_text(changed)
    with pytest.raises(ValueError, match="best.npz.*must fit.*Use the flags"):
        parts.open_run(run_dir)


def test_loss_follows_its_flags(folder, tmp_path):
    changes = {
        "margin": 0.3,
        "num_negatives": 4,
        "text_to_image_weight": 2.5,
        "text_to_text_weight": 0.05,
        "image_to_image_weight": 0.25,
        "distance": "cosine",
        "reduction": "sum",
        "negatives": "hardest",
        "captions_per_image": 3,
    }
    loss = parts.build_loss(tiny.settings(folder, tmp_path, **changes))
    assert loss.get_config() == {
        "margin": 0.3,
        "num_negatives": 4,
        "term_weights": dict(zip(triplet.TERMS, (1.0, 2.5, 0.05, 0.25))),
        "distance": "cosine",
        "reduction": "sum",
        "negatives": "hardest",
        "max_positives": 3,
    }
    # A text that stands on two images joins any number of captions.
    changes["equal_texts_match"] = True
    loss = parts.build_loss(tiny.settings(folder, tmp_path, **changes))
    assert loss.get_config()["max_positives"] is None


def test_same_seed_same_weights_and_another_seed_others(folder, tmp_path):
    def kernel(seed):
        found = tiny.settings(
            folder, tmp_path, seed=seed, text_encoder="features"
        )
        network = parts.build_network(found, None, 8, 7)
        return network.image_branch.weights[0].numpy()

    np.testing.assert_array_equal(kernel(3), kernel(3))
    assert not np.allclose(kernel(3), kernel(4))
