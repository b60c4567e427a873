"""The comparison with other packages; times are not compared.

The benchmark itself compares the values of packages that need PyTorch, because
PyTorch and TensorFlow interfere with each other in one process.
"""

import re

import numpy as np
from benchmarks import arrays, peers, timing

from tests import verbs

NUMPY_ALONE = peers.Table(
    "ranks",
    [
        peers.Row("product alone", "peers:product"),
        peers.Row("exact ranks", "peers:exact_ranks"),
        peers.Row("a package", "not_there:step", "not-there"),
        peers.Row("a mistake", "arrays:unit", "mistaken"),
    ],
    captions=3,
    sizes=(4,),
)


def test_rows_alternate_and_missing_peers_are_named(monkeypatch):
    monkeypatch.setattr(peers, "TABLES", {"ranks": NUMPY_ALONE})
    # The device is the one of this process.
    monkeypatch.setattr(timing, "in_another_process", lambda call: call())
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


def test_recall_sum_of_ranks_known():
    # Both images find their caption first, captions theirs second.
    owners = np.array([0, 1])
    captions, photos = np.array([[0, 1], [1, 0]]), np.array([[1, 0], [0, 1]])
    assert arrays.recall_sum(owners, captions, photos) == 500
