"""Tests of where the data of a run are looked for."""

import pathlib

import numpy as np
import pytest

from tbnets.data.sources import Sources
from tests import tiny
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


def test_paths_start_from_the_data_root():
    found = Sources(data_root="some/data").resolve("flickr/captions.json")
    assert found == pathlib.Path("some/data/flickr/captions.json")


def test_absolute_paths_stay(tmp_path):
    found = Sources(data_root="some/data").resolve(tmp_path / "a.npy")
    assert found == tmp_path / "a.npy"


def test_what_a_tool_made_here_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "manifest.json").write_text("{}")
    found = Sources(data_root="some/data").resolve("features", "train")
    assert found == pathlib.Path("features")
    (tmp_path / "some" / "data" / "features").mkdir(parents=True)
    found = Sources(data_root="some/data").resolve("features", "train")
    assert found == pathlib.Path("some/data/features")


def test_split_is_filled_in_under_either_name(folder):
    pattern = "{split}_ims.npy"
    for split in ("dev", "val"):
        found = Sources(data_root=folder).resolve(pattern, split)
        assert found == folder / "dev_ims.npy"
    with pytest.raises(ValueError, match="test2"):
        Sources(data_root=folder).resolve(pattern, "test2")


def test_stores_of_splits_that_were_made_here_are_found(here):
    write_store(here / "features" / "train")
    found = Sources().resolve("features/{split}", "train")
    assert found == pathlib.Path("features/train")
    write_store(here / "data" / "features" / "train")
    found = Sources().resolve("features/{split}", "train")
    assert found == pathlib.Path("data/features/train")


def test_arrays_of_splits_that_were_made_here_are_found(here):
    (here / "features").mkdir()
    np.save(here / "features" / "dev_ims.npy", np.ones((1, 1)))
    pattern = "features/{split}_ims.npy"
    for split in ("dev", "val"):
        found = Sources().resolve(pattern, split)
        assert found == pathlib.Path("features/dev_ims.npy")
    with pytest.raises(ValueError, match="that features/.* has: 'dev'.*test"):
        Sources().resolve(pattern, "test")
    with pytest.raises(ValueError, match="that data/absent/.* has: no split"):
        Sources().resolve("absent/{split}", "test")


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


@pytest.mark.parametrize(
    "flag, way",
    [
        ("phrases", "docs/phrases.md"),
        ("captions", "--scenes"),
        ("trees", "--trees=features/parsed.flags"),
    ],
)
def test_what_is_not_named_says_where_it_comes_from(flag, way):
    with pytest.raises(ValueError, match=f"`--{flag}` must name .*{way}"):
        Sources().value(flag)
