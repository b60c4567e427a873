"""Tests of where data are looked for, and of splits and their features."""

import contextlib
import dataclasses
import pathlib

import numpy as np
import pytest

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.data.store.writer import FeatureWriter
from tests import refusals, tiny


def write_store(path):
    writer = FeatureWriter(path, {"layers": "conv1"}, 1)
    writer.add(["a"], np.ones((1, 1)))
    writer.finish()
    return path


def test_features_with_other_extraction_settings_raise_an_error(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_store(tmp_path / "features" / "dev")
    store = {"dim": 1, "dtype": "float32", "kind": "images"}
    made_by = {"layers": "fc7", "store": store}
    for but in ((), ["layers"]):
        data = Data(Sources(image_features="features/{split}"))
        data.expect_made_by("image_features", made_by, "last.npz", but)
        with (
            contextlib.nullcontext()
            if but
            else refusals.refused("--image_features")
        ):
            data.open_features("image_features", "dev")


def test_a_store_that_splits_share_is_opened_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_store(tmp_path / "store")
    data = Data(Sources(image_features="store"))
    of_train = data.open_features("image_features", "train")
    assert data.open_features("image_features", "dev") is of_train


def text_features(folder, ids=None, rows=None):
    """Features of captions: how often each letter stands in them."""
    changes = {"text_encoder": "features", "text_features": "{split}_txt.npy"}
    settings = tiny.settings(folder, "run", **changes)
    split = tiny.split_of(settings, "train")
    records = split.records
    counts = [[text.count(key) for key in "abcdr"] for text in records.captions]
    counts = np.array(counts, np.float32)
    np.save(folder / "train_txt.npy", counts[rows or slice(None)])
    if ids is not None:
        lines = [ids(records, row) for row in rows or range(len(counts))]
        (folder / "train_txt_ids.txt").write_text("\n".join(lines) + "\n")
    return split.texts.batch(np.arange(len(counts))), counts


def test_text_features_are_matched_with_captions_by_id(tmp_path):
    folder = tiny.write_precomputed(tmp_path)
    with refusals.refused("--text_features"):  # Without ids: one row too few.
        text_features(folder, rows=range(23))
    found, wanted = text_features(folder)
    np.testing.assert_array_equal(found, wanted)
    # 12 images have 24 captions; their rows come in another order.
    turned = list(range(23, -1, -1))
    assert (wanted != wanted[turned]).any()
    found, wanted = text_features(
        folder, lambda records, row: records.captions[row], turned
    )
    np.testing.assert_array_equal(found, wanted)
    with refusals.refused("image_ids"):
        text_features(folder, lambda records, row: f"caption {row}")


@pytest.mark.parametrize(
    "images, data_root, found",
    [("", "", False), ("photos", "here", True), ("photos", "elsewhere", False)],
)
def test_photo_folder_is_none_if_the_first_photo_is_missing(
    tmp_path, images, data_root, found
):
    (tmp_path / "here" / "photos").mkdir(parents=True)
    (tmp_path / "here" / "photos" / "1.png").touch()
    (tmp_path / "own.csv").write_text("image,caption\n1.png,A dog\n")
    sources = Sources(
        captions=str(tmp_path / "own.csv"),
        images=images,
        data_root=str(tmp_path / data_root),
    )
    folder = Data(sources).split("all").photo_folder
    assert folder == (tmp_path / "here" / "photos" if found else None)


def test_only_photos_of_other_splits_may_be_missing(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.jpg").write_bytes(b"abc")
    (tmp_path / "folder.jpg").mkdir()
    rows = "deep/a.jpg,p,train\nfolder.jpg,q,other\nnone.jpg,r,other\n"
    (tmp_path / "own.csv").write_text(f"image,caption,split\n{rows}")
    sources = Sources(str(tmp_path), captions="own.csv", images=".")
    path = tmp_path / "deep" / "a.jpg"
    assert Data(sources).photos == [("deep/a.jpg", path)]
    with refusals.refused("--images"):
        Data(dataclasses.replace(sources, dev_split="other")).photos  # noqa: B018


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, beside the data root `data`."""
    monkeypatch.delenv("TBNETS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize("flag", ["phrases", "captions", "trees"])
def test_a_flag_without_a_value_raises_an_error(flag):
    with refusals.refused(f"--{flag}"):
        Sources().value(flag)


def test_arrays_are_found_under_either_name_of_a_split(here):
    pattern, place = "features/{split}_ims.npy", "features/dev_ims.npy"
    for root in ("", "data"):
        (here / root / "features").mkdir()
        np.save(here / root / place, np.ones((1, 1)))
        for split in ("dev", "val"):
            found = Sources().resolve(pattern, split)
            assert found == pathlib.Path(root, place)
    for missing in (pattern, "absent/{split}"):
        sources = Sources(image_features=missing)
        with refusals.refused("--image_features"):
            sources.file("image_features", split="test")
