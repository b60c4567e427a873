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
    shutil.rmtree(train)
    inputs.check_features(settings(), ["train"], {"x": 1}, "last.npz")


def text_features(folder, ids=None, rows=None):
    """Features of captions: how often each letter stands in them."""
    settings = tiny.settings(
        folder, "run", text_encoder="features", text_features="{split}_txt.npy"
    )
    records = inputs.load_records(settings, "train")
    counts = [[text.count(key) for key in "abcdr"] for text in records.captions]
    counts = np.array(counts, np.float32)
    np.save(folder / "train_txt.npy", counts[rows or slice(None)])
    if ids is not None:
        lines = [ids(records, row) for row in rows or range(len(counts))]
        (folder / "train_txt_ids.txt").write_text("\n".join(lines) + "\n")
    found = inputs.load_text_features(settings, records)
    return found.batch(np.arange(len(counts))), counts


def caption_of(records, row):
    return records.captions[row]


def test_text_features_are_joined_by_the_ids_beside_them(tmp_path):
    folder = tiny.write_precomputed(tmp_path)
    found, wanted = text_features(folder)
    np.testing.assert_array_equal(found, wanted)
    # 12 images have 24 captions; their rows come in another order.
    turned = list(range(23, -1, -1))
    assert (wanted != wanted[turned]).any()
    found, wanted = text_features(folder, caption_of, turned)
    np.testing.assert_array_equal(found, wanted)


def test_text_features_of_other_captions_are_refused(tmp_path):
    folder = tiny.write_precomputed(tmp_path)
    expected = (
        "must hold every caption of split train. Received: .*train_txt.npy "
        "without 24 of 24 captions .* look like 'caption 0'. .* ids away"
    )
    with pytest.raises(ValueError, match=expected):
        text_features(folder, lambda records, row: f"caption {row}")
