"""Tests of where the data of a run are looked for."""

import pathlib

import numpy as np
import pytest

from tbnets.data.sources import Sources
from tbnets.data.splits import NoSuchSplit
from tests import refusals, tiny
from tests.data.test_open import write_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_precomputed(tmp_path_factory.mktemp("data"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, beside the data root `data`."""
    monkeypatch.delenv("TBNETS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


def test_paths_start_from_the_data_root(tmp_path):
    found = Sources(data_root="some/data").resolve("flickr/captions.json")
    assert found == pathlib.Path("some/data/flickr/captions.json")
    found = Sources(data_root="some/data").resolve(tmp_path / "a.npy")
    assert found == tmp_path / "a.npy"


@pytest.mark.parametrize("flag", ["phrases", "captions", "trees"])
def test_what_is_not_named_is_asked_for(flag):
    with refusals.of(f"--{flag}"):
        Sources().value(flag)


@pytest.mark.parametrize("name", ["features", "features/{split}"])
def test_stores_that_were_made_here_are_found(here, name):
    path = pathlib.Path(name.replace("{split}", "train"))
    for root in ("", "data"):  # The data root comes first.
        write_store(here / root / path)
        assert Sources().resolve(name, "train") == root / path


def test_split_is_filled_in_under_either_name(folder):
    pattern = "{split}_ims.npy"
    for split in ("dev", "val"):
        found = Sources(data_root=folder).resolve(pattern, split)
        assert found == folder / "dev_ims.npy"
    with pytest.raises(NoSuchSplit):
        Sources(data_root=folder).resolve(pattern, "test2")


def test_arrays_of_splits_that_were_made_here_are_found(here):
    (here / "features").mkdir()
    np.save(here / "features" / "dev_ims.npy", np.ones((1, 1)))
    pattern = "features/{split}_ims.npy"
    for split in ("dev", "val"):
        found = Sources().resolve(pattern, split)
        assert found == pathlib.Path("features/dev_ims.npy")
    for missing in (pattern, "absent/{split}"):
        with pytest.raises(NoSuchSplit):
            Sources().resolve(missing, "test")


def test_a_run_reads_below_the_environments_root(folder, monkeypatch, tmp_path):
    line = tiny.arguments("absent", tmp_path / "run")
    del line["data_root"]
    line = [f"--{name}={value}" for name, value in line.items()]
    monkeypatch.setenv("TBNETS_DATA", str(folder))
    moved = tiny.parse(*line)
    assert tiny.split_of(moved, "train").records.num_images == 12
    monkeypatch.delenv("TBNETS_DATA")
    with pytest.raises((ValueError, OSError), match="data"):
        tiny.split_of(tiny.parse(*line), "train").records  # noqa: B018
