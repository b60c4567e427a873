"""Rows of other packages beside those of tbnets; what is timed is not judged.

Where a package is not installed its rows are not compared: `pip install
".[peers]"` has those of PyTorch, the stack of TensorFlow 2.15 the addons.
"""

import importlib
import json
import re

import numpy as np
import pytest
from benchmarks import peers, peers_arrays, scale

from tests import verbs

NUMPY_ALONE = peers.Table(
    "ranks",
    [
        peers.Row("product alone", "peers_ranking:product"),
        peers.Row("exact ranks", "peers_ranking:exact_ranks"),
        peers.Row("a package", "not_there:step", "not-there"),
        peers.Row("a mistake", "peers_arrays:labels", "mistaken"),
    ],
    captions=3,
    sizes=(4,),
)


def test_rows_take_turns_and_what_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "TABLES", {"ranks": NUMPY_ALONE})
    line = "--repeats=1", "--embedding_dim=3", f"--folder={tmp_path}"
    ended = verbs.run("benchmark", "--benchmark=peers", *line)
    assert ended.returncode == 0, ended.stderr
    out = ended.stdout
    assert "ranks: ranks; 4 images, 12 captions, 3-d" in out
    assert re.search(r"product alone +\d+\.\d +1\.00 +\d+$", out, re.M)
    assert re.search(
        r"exact ranks +\d+\.\d +\d+\.\d\d +\d+  [\d.]+ *$", out, re.M
    )
    assert re.search(r"a package .*not installed: pip install not-there", out)
    assert re.search(r"a mistake .*failed: TypeError", out)
    [kept] = json.loads((tmp_path / "peers.json").read_text())
    assert kept["images"] == 4 and len(kept["rows"]) == 4
    assert (tmp_path / "peers.png").stat().st_size > 1000


def test_an_unknown_table_is_refused():
    for name in ("peers", "scale"):
        ended = verbs.run("benchmark", f"--benchmark={name}", "--part=no")
        assert ended.returncode == 1 and "`--part`" in ended.stderr


def test_what_is_said_of_a_row():
    ours = {"ms": 10.0, "value": 2.0}
    row = {"ms": 20.0, "value": 2.00001, "same": True}
    assert peers._says(row, ours) == "same value"
    # 5 of 10 ms, and 3 instead of 2.
    faster = row | {"ms": 5.0}
    assert peers._says(faster, ours) == "same value, AHEAD: 0.50 of tbnets"
    other = peers._says(row | {"value": 3.0}, ours)
    assert other == "OTHER VALUE, 5.0e-01"
    assert peers._says(row | {"same": False}, ours) == "other definition"


def test_captions_at_growing_sizes(tmp_path):
    line = "--part=captions", "--num_images=10,20", "--repeats=1"
    ended = verbs.run(
        "benchmark", "--benchmark=scale", *line, f"--folder={tmp_path}"
    )
    assert ended.returncode == 0, ended.stderr
    for size in (10, 20):
        numbers = rf"^ +{size} +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ +\d+ +\d+$"
        assert re.search(numbers, ended.stdout, re.M), ended.stdout
    kept = json.loads((tmp_path / "scale.json").read_text())
    assert [row["size"] for row in kept["captions"]] == [10, 20]
    assert (tmp_path / "scale.png").stat().st_size > 1000


def test_a_size_that_would_take_too_long_is_left_out():
    rows = [{"size": 10, "floor": 1.0, "seconds": 2.0}]
    # Four times the size, 16 times the time: 32 s.
    loss = scale.PARTS["loss"]
    assert scale._too_long(loss, rows, 40, 32) == ""
    assert "32 s, more than 31" in scale._too_long(loss, rows, 40, 31)
    assert scale._too_long(loss, [], 40, 0) == ""


def test_recall_sum_of_ranks_known():
    # Both images find their caption first, captions theirs second.
    owners = np.array([0, 1])
    captions, photos = np.array([[0, 1], [1, 0]]), np.array([[1, 0], [0, 1]])
    assert peers_arrays.recall_sum(owners, captions, photos) == 500


def _values(table):
    """Returns the values of rows that are of one definition, by name."""
    if table.make == "step":
        for name, size in (("IMAGE", 7), ("TEXT", 6), ("HIDDEN", 5)):
            setattr(peers_arrays, f"{name}_DIM", size)
    arrays = getattr(peers_arrays, table.make)(12, table.captions, 8)
    values = {}
    for row in table.rows[1:]:
        module, function = row.builder.split(":")
        try:
            build = getattr(
                importlib.import_module(f"benchmarks.{module}"), function
            )
            value = build(arrays)()
        except ImportError:
            continue
        if row.same and value is not None:
            values[row.name] = float(value)
    return values


@pytest.mark.parametrize("name", peers.TABLES)
def test_rows_of_one_definition_have_one_value(name, eagerly, monkeypatch):
    for size in ("IMAGE_DIM", "TEXT_DIM", "HIDDEN_DIM"):
        monkeypatch.setattr(peers_arrays, size, getattr(peers_arrays, size))
    values = _values(peers.TABLES[name])
    if len(values) < 2:
        pytest.skip("needs another package: pip install '.[peers]'")
    own, *others = values.values()
    assert others == pytest.approx([own] * len(others), rel=1e-4), values
