"""Tests of where the data of a run is looked for."""

import pathlib
import shutil

import numpy as np
import pytest

from tbnets.store.writer import FeatureWriter
from tbnets.tasks import inputs
from tests import tiny


def write_store(path, layers="conv1", name="a"):
    writer = FeatureWriter(path, {"layers": layers}, 1)
    writer.add_shard([name], np.ones((1, 1)))
    writer.finish()
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, beside the data root `data`."""
    monkeypatch.delenv("TBNETS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


def settings(pattern="features/{split}"):
    return tiny.settings("data", "run", image_features=pattern)


def test_stores_of_splits_that_were_made_here_are_found(here):
    write_store(here / "features" / "train")
    found = inputs.resolve(settings(), "features/{split}", "train")
    assert found == pathlib.Path("features/train")
    write_store(here / "data" / "features" / "train")
    found = inputs.resolve(settings(), "features/{split}", "train")
    assert found == pathlib.Path("data/features/train")


def test_arrays_of_splits_that_were_made_here_are_found(here):
    (here / "features").mkdir()
    np.save(here / "features" / "dev_ims.npy", np.ones((1, 1)))
    pattern = "features/{split}_ims.npy"
    for split in ("dev", "val"):
        found = inputs.resolve(settings(), pattern, split)
        assert found == pathlib.Path("features/dev_ims.npy")
    with pytest.raises(ValueError, match="that features/.* has: 'dev'.*test"):
        inputs.resolve(settings(), pattern, "test")
    with pytest.raises(ValueError, match="that data/absent/.* has: no split"):
        inputs.resolve(settings(), "absent/{split}", "test")


def test_features_of_splits_are_compared_with_a_description(here):
    train = write_store(here / "features" / "train")
    write_store(here / "features" / "dev", "fc7")
    store = {"dim": 1, "dtype": "float32", "kind": "images"}
    made_by = {"layers": "conv1", "store": store}
    # There are no features of test.
    for splits in (["train"], ["train", "test"], []):
        inputs.check_features(settings(), splits, made_by, "last.npz")
    with pytest.raises(ValueError) as error:
        inputs.check_features(settings(), ["train", "dev"], made_by, "last.npz")
    assert (
        "--image_features=features/dev, which differ from those of last.npz: "
        "layers: conv1 in last.npz, fc7 in features/dev. Extract"
    ) in str(error.value)
    # As earlier versions wrote it.
    old = {**made_by, "store": {**store, "statistics_sha256": None}}
    inputs.check_features(settings(), ["train"], old, "last.npz")
    shutil.rmtree(train)
    inputs.check_features(settings(), ["train"], {"x": 1}, "last.npz")
