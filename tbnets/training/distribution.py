"""Creates distribution strategies from flags and `TF_CONFIG`.

`mirrored` uses every GPU of this machine, in one process. `multi_worker` runs
one or more processes per machine. The environment variable `TF_CONFIG`
describes the task of this process and the addresses of all tasks::

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
    "task": {"type": "worker", "index": 0}}

Only the chief writes files. The chief is the task of type `chief` or, if there
is none, worker 0.
"""

import contextlib
import json
import os
import socket
import time
from typing import NamedTuple

import tensorflow as tf

from tbnets.data.batches import distributed
from tbnets.errors import InputError, UnreachableError, check_choice

KINDS = "none", "mirrored", "multi_worker"
VARIABLE = "TF_CONFIG"
EXAMPLE = (
    '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": '
    '{"type": "worker", "index": 0}}'
)
TYPES = "chief", "worker"
LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
"""Errors that TensorFlow raises while it waits for a lost worker."""
ANSWER_SECONDS = 2.0
"""Timeout for a live worker to accept a connection, in seconds."""
LOOK_SECONDS = 5.0
"""Seconds to wait after a loss, so that all workers can detect it."""


class WorkerTask(NamedTuple):
    """The task of a process in `TF_CONFIG`, such as "worker 1".

    `is_chief` is True if this process writes files. `addresses` maps the name
    of each task to "host:port", the chief first.
    """

    name: str
    is_chief: bool
    addresses: dict[str, str]


def read_task(text):
    """Parses the value of `TF_CONFIG`; raises an error if it is invalid."""
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        name = f"{task['type']} {int(task['index'])}"
        addresses = {
            f"{job} {i}": address
            for job in TYPES
            for i, address in enumerate(cluster.get(job, []))
        }
        is_chief = [*addresses].index(name) == 0
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            VARIABLE,
            f"be JSON such as {EXAMPLE}",
            f"{text!r} ({type(error).__name__}: {error})",
        ) from error
    return WorkerTask(name, is_chief, addresses)


class Workers:
    """The processes that train a network, including this process.

    If `strategy` is None, there is a single device. If `task`, a `WorkerTask`,
    is None, there is a single process.
    """

    def __init__(self, strategy=None, task=None):
        self.strategy = strategy or tf.distribute.get_strategy()
        self.name, self.is_chief, self._addresses = task or ("", True, {})

    @property
    def num_replicas(self):
        """Number of devices that share a batch."""
        return self.strategy.num_replicas_in_sync

    @property
    def are_several(self):
        """Whether there are other processes."""
        return len(self._addresses) > 1

    def __str__(self):
        if self.num_replicas == 1 and not self.are_several:
            return ""
        text = f"{self.num_replicas} replica{'s' * (self.num_replicas != 1)}"
        count = len(self._addresses)
        if count:
            text += f" on {count} worker{'s' * (count != 1)}"
        return text

    def scope(self):
        """Returns the context in which the replicas' variables are created."""
        return self.strategy.scope()

    def share(self, batches):
        """Returns an epoch's data set for the replicas of this process."""
        if self.num_replicas == 1:
            return batches.dataset
        return distributed(self.strategy, batches)

    def from_chief(self, value=None):
        """Waits for all workers, then returns the JSON value of the chief."""
        if not self.are_several:
            return value
        text = json.dumps(value).encode() if self.is_chief else b""
        (size,) = self._sum_of_chief([len(text)])
        text = list(text) or [0] * size
        return json.loads(bytes(self._sum_of_chief(text)))

    def _sum_of_chief(self, numbers):
        """Returns the chief's integers as a sum; the other workers add 0."""

        def contribution():
            context = tf.distribute.get_replica_context()
            is_source = self.is_chief and context.replica_id_in_sync_group == 0
            chief_numbers = tf.constant(numbers, tf.int32)
            return tf.where(is_source, chief_numbers, 0)

        values = self.strategy.run(contribution)
        return self.strategy.reduce("SUM", values, axis=None).numpy().tolist()

    def wait(self):
        """Waits for all workers."""
        self.from_chief()

    @contextlib.contextmanager
    def chief_first(self):
        """Runs the block on the chief first, then on the other workers."""
        if not self.is_chief:
            self.wait()
        yield
        if self.is_chief:
            self.wait()

    def check_same(self, argument, value):
        """Raises an error if this worker's JSON value is not the chief's."""
        other, value = self.from_chief(value), json.loads(json.dumps(value))
        if other == value:
            return
        names = [k for k in value | other if value.get(k) != other.get(k)]
        value, other = ({k: x.get(k) for k in names} for x in (value, other))
        raise InputError(
            argument,
            "be equal on all workers",
            f"{value} on {self.name}, {other} on the chief",
        )

    @contextlib.contextmanager
    def watched(self):
        """Runs the block; raises ConnectionError if a worker is lost.

        TensorFlow aborts operations that wait for a lost worker: immediately if
        its process ended, or within a minute if its machine is unreachable.
        """
        try:
            yield
        except LOST as error:
            if not self.are_several:
                raise
            gone = self._unreachable()
            time.sleep(LOOK_SECONDS)
            raise UnreachableError(
                "All workers must run until training ends. Received: no "
                f"response from {gone}. Start all workers again with "
                "--resume to continue after the last finished epoch."
            ) from error

    def _unreachable(self):
        """Returns the names of the workers that accept no connection."""
        names = [
            f"{name} ({address})"
            for name, address in self._addresses.items()
            if name != self.name and not _answers(address)
        ]
        return ", ".join(names) or "another worker"


def _answers(address):
    host, _, port = address.rpartition(":")
    try:
        place = host.strip("[]"), int(port)
        socket.create_connection(place, ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def open_workers(distribute="none", num_replicas=0):
    """Creates a run's `Workers`; call it before TensorFlow runs any op.

    `num_replicas` is the number of devices for `mirrored`; 0: every GPU. If
    there is no GPU, logical CPU devices are used, for tests.
    """
    check_choice("--distribute", distribute, KINDS)
    if num_replicas and distribute != "mirrored":
        raise InputError(
            "--num_replicas",
            "be 0 unless --distribute=mirrored",
            f"{num_replicas} with --distribute={distribute}",
        )
    if distribute == "mirrored":
        return Workers(tf.distribute.MirroredStrategy(_devices(num_replicas)))
    if distribute == "none":
        return Workers()
    task = read_task(os.environ.get(VARIABLE, ""))
    return Workers(tf.distribute.MultiWorkerMirroredStrategy(), task)


def _devices(count):
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and count <= len(gpus):
        return [f"GPU:{i}" for i in range(count or len(gpus))]
    if gpus or not count:
        raise InputError(
            "--num_replicas",
            "be at most the number of GPUs, or without a GPU the number of "
            "logical CPU devices",
            f"{count} with {len(gpus)} GPUs",
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, parts)
    return [f"CPU:{i}" for i in range(count)]
