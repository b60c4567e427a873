"""Rows of other packages beside those of tbnets; what is timed is not judged.

Values of rows that need PyTorch are compared by the benchmark alone: PyTorch
and TensorFlow are not for one process. Here are those of faiss, and, on the
stack of TensorFlow 2.15, those of the addons.
"""

import importlib
import json

import numpy as np
import pytest
from benchmarks import arrays, peers, processes, scale

from tests import verbs

NUMPY_ALONE = peers.Table(
    "ranks",
    [
        peers.Row("product alone", "scale_rows:product"),
        peers.Row("exact ranks", "scale_rows:exact_ranks"),
        peers.Row("a package", "not_there:step", "not-there"),
        peers.Row("a mistake", "arrays:unit", "mistaken"),
    ],
    captions=3,
    sizes=(4,),
)


def run(name, folder, *line):
    ended = verbs.run(
        *("benchmark", f"--benchmark={name}", f"--folder={folder}"),
        *("--repeats=1", "--embedding_dim=3", *line),
    )
    assert ended.returncode == 0, ended.stderr
    assert (folder / f"{name}.png").stat().st_size > 1000
    kept = json.loads((folder / f"{name}.json").read_text())
    return ended.stdout, kept


def test_rows_take_turns_and_what_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "TABLES", {"ranks": NUMPY_ALONE})
    for _ in range(2):  # Measured again it takes the place of the first.
        out, kept = run("peers", tmp_path)
    [found] = kept.values()
    assert found["images"] == 4
    floor, ours, missing, mistaken = found["rows"]
    assert ours["ratio"] == pytest.approx(ours["ms"] / floor["ms"])
    assert floor["ratio"] == 1 and floor["value"] is None
    assert ours["value"] > 0 and ours["mebibytes"] >= 0
    assert missing["says"] == "not installed: pip install not-there"
    assert mistaken["says"].startswith("failed: ")
    for row in found["rows"]:
        assert row["name"] in out and row["says"] in out


def test_captions_at_growing_sizes(tmp_path):
    line = "--part=captions", "--num_images=10,20"
    out, kept = run("scale", tmp_path, *line)
    rows = kept["captions"]["rows"]
    assert [row["size"] for row in rows] == [10, 20]
    assert all(row["seconds"] > 0 and row["floor"] > 0 for row in rows)
    assert "left out" not in out


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
    told = [Told(9, 2), Told(1, 2, 3), Told(1, None, None)]
    assert processes.take_turns(told, 3) == [[9, 2], [1, 2, 3], [1]]


def test_a_row_that_takes_too_long_is_stopped(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, **arrays.embeddings(4, 1, 3))
    row = ["scale_rows:product"]
    with processes.started(row, path, patience=0.01) as [process]:
        assert process.told == {"failed": "more than 0.01 s"}
        assert process.run() is None


def test_recall_sum_of_ranks_known():
    # Both images find their caption first, captions theirs second.
    owners = np.array([0, 1])
    captions, photos = np.array([[0, 1], [1, 0]]), np.array([[1, 0], [0, 1]])
    assert arrays.recall_sum(owners, captions, photos) == 500


@pytest.mark.parametrize(
    ("name", "module", "place"),
    [("evaluation", "faiss", 2), ("one_view", "tensorflow_addons", 5)],
)
def test_rows_of_one_definition_have_one_value(name, module, place, eagerly):
    pytest.importorskip(module)
    table = peers.TABLES[name]
    made, values = arrays.embeddings(12, table.captions, 8), []
    for row in (table.rows[1], table.rows[place]):
        home, function = row.builder.split(":")
        rows = importlib.import_module(f"benchmarks.{home}")
        values.append(float(getattr(rows, function)(made)()))
    assert values[0] == pytest.approx(values[1], rel=1e-4)
