import json
import socket

import pytest
import tensorflow as tf

from tbnets.errors import InputError, UnreachableError
from tbnets.training import distribution
from tbnets.training.distribution import Workers, WorkerTask, read_task
from tests.refusals import refused

CLUSTER = {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}


def config(cluster=CLUSTER, kind="worker", index=0):
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": cluster, "task": task})


def test_worker_0_is_the_chief_without_a_chief():
    first, second = (read_task(config(index=i)) for i in range(2))
    addresses = {"worker 0": "10.0.0.1:2222", "worker 1": "10.0.0.2:2222"}
    assert first == WorkerTask("worker 0", True, addresses)
    assert second == WorkerTask("worker 1", False, addresses)
    cluster = {**CLUSTER, "evaluator": ["10.0.0.3:2222"]}
    assert read_task(config(cluster)).addresses == addresses
    cluster = {**CLUSTER, "chief": ["[::1]:1"]}
    assert not read_task(config(cluster)).is_chief
    assert read_task(config(cluster, "chief")).is_chief


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"cluster": {}}',
        config(index=2),
        config(kind="chief"),
    ],
)
def test_a_wrong_tf_config_is_rejected(text):
    with refused("TF_CONFIG"):
        read_task(text)


@pytest.mark.parametrize(
    "arguments, argument",
    [
        (("all",), "--distribute"),
        (("none", 2), "--num_replicas"),
        (("multi_worker",), "TF_CONFIG"),
        (("mirrored",), "--num_replicas"),
    ],
)
def test_wrong_arguments_of_open_workers_are_rejected(
    monkeypatch, arguments, argument
):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    with pytest.raises(InputError) as error:
        distribution.open_workers(*arguments)
    assert error.value.argument == argument


def test_a_single_device_is_the_chief_and_does_not_wait():
    workers = distribution.open_workers()
    assert workers.is_chief and not workers.are_several
    assert str(workers) == ""
    assert workers.from_chief({"loss": 1.5}) == {"loss": 1.5}
    workers.wait()
    workers.check_same("`--seed`", {"seed": 3})
    with pytest.raises(tf.errors.UnavailableError), workers.watched():
        raise tf.errors.UnavailableError(None, None, "no worker's")


def test_error_names_a_value_that_differs_from_the_chiefs(monkeypatch):
    addresses = {"worker 0": "a:1", "worker 1": "b:1"}
    workers = Workers(task=WorkerTask("worker 1", False, addresses))
    monkeypatch.setattr(workers, "from_chief", lambda value: {})
    with pytest.raises(InputError, match="the epoch"):
        workers.check_same("the epoch", {"epoch": 2})


def lost(addresses, message):
    """Returns the message of worker 0 after a collective fails."""
    workers = Workers(task=WorkerTask("worker 0", True, addresses))
    with pytest.raises(UnreachableError) as error, workers.watched():
        raise tf.errors.UnavailableError(None, None, message)
    return str(error.value)


def test_error_names_the_lost_worker(monkeypatch):
    monkeypatch.setattr(distribution, "LOOK_SECONDS", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as other:
            away = f"127.0.0.1:{other.getsockname()[1]}"
        addresses = {"worker 0": here, "worker 1": here, "worker 2": away}
        told = lost(addresses, "remote target")
        assert f"Received: no response from worker 2 ({away}). Start" in told
        # A worker that hangs still accepts connections.
        del addresses["worker 2"]
        assert "from another worker. Start" in lost(addresses, "aborted")
