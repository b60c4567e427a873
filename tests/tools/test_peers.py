"""Rows of other packages beside those of tbnets; what is timed is not judged.

Values of rows that need PyTorch are compared by the benchmark alone: PyTorch
and TensorFlow are not for one process. Here are those of faiss, and, on the
stack of TensorFlow 2.15, those of the addons.
"""

import importlib
import re

import numpy as np
import pytest
from benchmarks import arrays, peers

from tests import verbs

NUMPY_ALONE = peers.Table(
    "ranks",
    [
        peers.Row("product alone", "peers_numpy:product"),
        peers.Row("exact ranks", "peers_numpy:exact_ranks"),
        peers.Row("a package", "not_there:step", "not-there"),
        peers.Row("a mistake", "arrays:unit", "mistaken"),
    ],
    captions=3,
    sizes=(4,),
)


def test_rows_alternate_and_missing_peers_are_named(monkeypatch):
    monkeypatch.setattr(peers, "TABLES", {"ranks": NUMPY_ALONE})
    line = "--benchmark=peers", "--repeats=1", "--embedding_dim=3"
    ended = verbs.run("benchmark", *line, "--part=ranks")
    assert ended.returncode == 0, ended.stderr
    for row in (
        r"product alone +\d+\.\d +1\.00 +1\.00 +\d+",
        r"exact ranks +\d+\.\d +\d+\.\d\d +\d+\.\d\d +\d+ +\d+",
        "a package .*not installed: pip install not-there",
        "a mistake .*failed: TypeError",
    ):
        assert re.search(row, ended.stdout), ended.stdout
    refused = verbs.run("benchmark", *line, "--part=other")
    assert "`--part`" in refused.stderr


class Told:
    """A process that takes as long as it is told."""

    def __init__(self, *seconds):
        self.run = iter(seconds).__next__


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
