"""Tests of manifests that earlier versions wrote."""

import json

import numpy as np
import pytest

from tbnets.store.manifest import read_manifest, without_retired
from tbnets.store.opening import open_features
from tbnets.store.writer import FeatureWriter

OLD = """{
  "complete": true, "dim": 2, "dtype": "float32",
  "extraction": {"cnn": "Tiny"}, "failed": [],
  "format": "tbnets-features-1", "kind": "images",
  "shards": [], "statistics": null
}"""
STATISTICS = {"file": "statistics.npz", "images": 2, "of": "train"}


def write(folder, **changes):
    """Writes the manifest OLD with some changes."""
    value = {**json.loads(OLD), **changes}
    (folder / "manifest.json").write_text(json.dumps(value))
    return folder


def test_a_store_without_statistics_opens(tmp_path):
    store = open_features(write(tmp_path))
    assert store.made_by == {
        "cnn": "Tiny",
        "store": {"dim": 2, "dtype": "float32", "kind": "images"},
    }


def test_a_store_without_statistics_is_written_on(tmp_path):
    writer = FeatureWriter(write(tmp_path), {"cnn": "Tiny"}, 2)
    writer.add_shard(["a"], np.ones((1, 2)))
    writer.finish()
    assert "statistics" not in (tmp_path / "manifest.json").read_text()
    assert open_features(tmp_path).ids == ("a",)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "int8"},
        {"statistics": {**STATISTICS, "sha256": "2c26b46"}},
        {"dtype": "int8", "statistics": {**STATISTICS, "sha256": "2c26b46"}},
    ],
)
def test_ternary_stores_are_refused(tmp_path, changes):
    with pytest.raises(ValueError) as error:
        read_manifest(write(tmp_path, **changes))
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'manifest.json'}: expected")
    assert "extract again with --dtype=float16" in message
    assert "train with --image_transform=ternary" in message


def test_descriptions_of_before_compare_equal():
    old = {"cnn": "Tiny", "store": {"dim": 2, "statistics_sha256": None}}
    new = {"cnn": "Tiny", "store": {"dim": 2}}
    assert without_retired(old) == new == without_retired(new)
    assert without_retired({"side_by_side": [old, {}]}) == {
        "side_by_side": [new, {}]
    }
    # Features of regions tell what made their boxes.
    assert without_retired({**old, "proposals": old}) == {
        **new,
        "proposals": new,
    }
    assert without_retired({}) == {}
    ternary = {"store": {"statistics_sha256": "2c26b46"}}
    assert without_retired(ternary) == ternary
