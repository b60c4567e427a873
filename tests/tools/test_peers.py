"""Rows of other packages beside those of tbnets; what is timed is not judged.

Values of rows that need PyTorch are compared by the benchmark alone: PyTorch
and TensorFlow are not for one process. Here are those of faiss, and, on the
stack of TensorFlow 2.15, those of the addons.
"""

import importlib
import json
import re

import numpy as np
import pytest
from benchmarks import (
    peers,
    peers_arrays,
    peers_process,
    peers_tables,
    peers_worker,
    scale,
)

from tests import verbs

NUMPY_ALONE = peers_tables.Table(
    "ranks",
    [
        peers_tables.Row("product alone", "peers_ranking:product"),
        peers_tables.Row("exact ranks", "peers_ranking:exact_ranks"),
        peers_tables.Row("a package", "not_there:step", "not-there"),
        peers_tables.Row("a mistake", "peers_arrays:labels", "mistaken"),
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
    assert re.search(r"product alone +\d+\.\d +1\.00 +1\.00 +\d+$", out, re.M)
    assert re.search(r"exact ranks( +\d+\.\d+){3} +\d+  [\d.]+ *$", out, re.M)
    assert re.search(r"a package .*not installed: pip install not-there", out)
    assert re.search(r"a mistake .*failed: TypeError", out)
    [kept] = json.loads((tmp_path / "peers.json").read_text())
    assert kept["images"] == 4 and len(kept["rows"]) == 4
    floor, ours = kept["rows"][:2]
    assert ours["ratio"] == pytest.approx(ours["ms"] / floor["ms"])
    assert (tmp_path / "peers.png").stat().st_size > 1000


def test_an_unknown_table_is_refused():
    for name in ("peers", "scale"):
        ended = verbs.run("benchmark", f"--benchmark={name}", "--part=no")
        assert ended.returncode == 1 and "`--part`" in ended.stderr


def test_what_is_said_of_a_row():
    ours = {"ms": 10.0, "best": 8.0, "value": 2.0}
    row = {"ms": 20.0, "best": 16.0, "value": 2.00001, "same": True}
    assert peers._says(row, ours) == "same value"
    # 5 of 10 ms, at best 4 of 8, and 3 instead of 2.
    said = peers._says(row | {"ms": 5.0, "best": 4.0}, ours)
    assert said == "same value, AHEAD: 0.50 of tbnets, best 0.50"
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


class Told:
    """A process that takes as long as it is told."""

    def __init__(self, *seconds):
        self.run = iter(seconds).__next__


def test_a_row_that_has_run_long_enough_is_not_repeated():
    # 9 + 2 s are more than ten; a row that fails has no more seconds.
    processes = [Told(9, 2), Told(1, 2, 3), Told(1, None, None)]
    assert peers_process.in_turns(processes, 3) == [[9, 2], [1, 2, 3], [1]]


def test_a_row_that_takes_too_long_is_stopped(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, **peers_arrays.embeddings(4, 1, 3))
    row = ["peers_ranking:product"]
    with peers_process.started(row, path, patience=0.01) as [process]:
        assert process.told == {"failed": "more than 0.01 s"}
        assert process.run() is None


def test_memory_that_runs_out_is_told():
    wanted = "more than 3 GiB"
    assert peers_worker._kind(MemoryError(), 3) == wanted
    assert peers_worker._kind(RuntimeError("OOM when allocating"), 3) == wanted
    assert peers_worker._kind(KeyError("images"), 3) == "KeyError: 'images'"


def test_a_table_that_is_measured_again_takes_the_place_of_the_first(
    tmp_path,
):
    rows = [{"name": "all", "package": "tbnets", "ratio": 1.0, "says": ""}]
    for size in (1, 2, 1):
        found = {"table": "a", "images": size, "rows": rows}
        peers.keep(found, tmp_path)
    _, known = peers.kept(tmp_path, "peers.json", [])
    assert [one["images"] for one in known] == [2, 1]


def test_recall_sum_of_ranks_known():
    # Both images find their caption first, captions theirs second.
    owners = np.array([0, 1])
    captions, photos = np.array([[0, 1], [1, 0]]), np.array([[1, 0], [0, 1]])
    assert peers_arrays.recall_sum(owners, captions, photos) == 500


@pytest.mark.parametrize(
    ("name", "module", "place"),
    [("evaluation", "faiss", 2), ("one_view", "tensorflow_addons", 5)],
)
def test_rows_of_one_definition_have_one_value(name, module, place, eagerly):
    pytest.importorskip(module)
    table = peers_tables.TABLES[name]
    arrays = peers_arrays.embeddings(12, table.captions, 8)
    values = []
    for row in (table.rows[1], table.rows[place]):
        home, function = row.builder.split(":")
        rows = importlib.import_module(f"benchmarks.{home}")
        values.append(float(getattr(rows, function)(arrays)()))
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.parametrize("name", ["top_k", "hardest", "all", "one_view"])
def test_our_rows_are_what_a_table_says(name, eagerly):
    table = peers_tables.TABLES[name]
    arrays = peers_arrays.embeddings(5, table.captions, 3)
    function = table.rows[1].builder.split(":")[1]
    ours = importlib.import_module("benchmarks.peers_ours")
    value = float(getattr(ours, function)(arrays)())
    assert value == pytest.approx(_by_loops(name, arrays), rel=1e-4)


def _by_loops(name, arrays):
    """Returns the loss of a table, a triplet after the other."""
    images, texts = arrays["images"], arrays["texts"]
    views = [(images, texts), (texts, images)]
    labels = [(arrays["image_ids"], arrays["owners"])]
    labels.append(labels[0][::-1])
    if name == "one_view":
        views = [(peers_arrays.one_view(arrays)["images"],) * 2]
        labels = [(peers_arrays.labels(arrays),) * 2]
    most = {"top_k": 10, "hardest": 1, "all": None, "one_view": 1}[name]
    total = 0.0
    for (anchors, others), (own, theirs) in zip(views, labels):
        products = anchors @ others.T
        far = (
            1 - products
            if name == "hardest"
            else np.sqrt(np.maximum(2 - 2 * products, 0))
        )
        hinges = []
        for a, p in np.argwhere(own[:, None] == theirs[None]):
            if name == "one_view" and a == p:
                continue
            negatives = np.sort(far[a][theirs != own[a]])[:most]
            hinges += list(peers_arrays.MARGIN + far[a, p] - negatives)
        kept = np.maximum(hinges, 0)
        divisors = {"hardest": 1, "one_view": len(kept)}
        total += kept.sum() / divisors.get(name, (kept > 0).sum())
    return total
