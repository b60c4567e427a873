"""What `tools/fuzz.py --workers` judges by; it is the one that kills."""

import json
import types

import numpy as np
import pytest

from tbnets.cli import local_workers
from tbnets.errors import InputError, UnreachableError
from tbnets.training import distribution
from tests.fuzz import run_results, worker_kills, workers
from tests.training.test_distribution import lost


def killed(*texts):
    """Returns what came of a kill of worker 1, of what others said."""
    said = [workers.causes(f"loss 1.0\nerror: {text}\n") for text in texts]
    return worker_kills.Killed("worker 1", 1.0, said, [], 1)


def test_who_names_another_than_the_one_that_was_killed_is_told(monkeypatch):
    monkeypatch.setattr(distribution, "LOOK_SECONDS", 0)
    gone = types.SimpleNamespace(poll=lambda: -9)
    children = {"worker 1": local_workers._Worker(gone, None)}
    with pytest.raises(UnreachableError) as error:
        local_workers._are_running(children)
    addresses = {f"worker {i}": f"127.0.0.1:{i}" for i in (0, 1)}
    told = killed(error.value, lost(addresses, "task lost"))
    assert told.fault() == ""
    no_answer = "no answer from worker 1 (127.0.0.1:1)"
    assert told.told == f"{no_answer} / worker 1, killed by SIGKILL"
    addresses["worker 2"] = "127.0.0.1:2"
    other = killed(lost(addresses, "task lost")).fault()
    assert other.startswith("worker 1 was killed, told: {'no answer from wor")
    assert killed("no").fault() == "worker 1 was killed, told: nobody"


def test_workers_are_started_by_one_process_or_apart():
    assert workers.starts(workers.LOCAL, 3) == ("--local_workers=3", [{}])
    assert workers.starts(workers.APART, 1) == ("--local_workers=0", [{}])
    flag, more = workers.starts(workers.APART, 2)
    assert flag == "--distribute=multi_worker"
    tasks = [json.loads(own["TF_CONFIG"])["task"]["index"] for own in more]
    assert tasks == [0, 1]
    assert not any(local_workers.MARK in own for own in more)


def test_runs_differ_by_a_bit_or_by_their_weights():
    run = {"last model/0": np.array([3.0, 4.0]), "epoch": np.array([1])}
    moved = {**run, "last model/0": np.array([3.0, 4.5])}
    assert run_results.difference(run, dict(run)) == ""
    told = "other numbers in last model/0"
    assert run_results.difference(run, moved) == told
    assert run_results.difference(run, {}).startswith("other arrays: ['epoch'")
    assert run_results.distance(run, moved) == 0.1  # 0.5 of 5.


def test_one_worker_is_too_few():
    with pytest.raises(InputError, match="`--workers` must be at least 2"):
        worker_kills.run(1, 0)
