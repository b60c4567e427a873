"""Which devices train together: flags and `TF_CONFIG` -> a strategy.

`none` is one device. `mirrored` is every GPU of this machine, in one process.
`multi_worker` is a process a machine, or several of one machine; the
environment variable `TF_CONFIG` tells each which it is and where the others
are, as TensorFlow has it::

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
     "task": {"type": "worker", "index": 0}}

The chief, which is the task of that type or else worker 0, alone writes.
"""

import contextlib
import json
import os
import re
import socket
import time
from typing import NamedTuple

import tensorflow as tf

from tbnets.data.splits import distributed
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
"""What TensorFlow raises where it waits for a worker that is gone."""
ANSWER_SECONDS = 2.0
"""How long a worker that lives may take to accept a connection."""
LOOK_SECONDS = 5.0
"""How long a worker stays that has lost another, for all to see who it is."""


class WorkerTask(NamedTuple):
    """What `TF_CONFIG` says of a process.

    Args:
        name: such as "worker 1".
        is_chief: whether it is the one that writes.
        addresses: name -> "host:port" of all, the chief first.
    """

    name: str
    is_chief: bool
    addresses: dict[str, str]


def read_task(text):
    """Reads the value of `TF_CONFIG`.

    Raises:
        ValueError: it is none by which workers find each other; tells what is
            wrong with it.
    """
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        strange = cluster.keys() - {*TYPES, "evaluator"}
        addresses = {
            f"{job} {i}": address
            for job in TYPES
            for i, address in enumerate(cluster.get(job, []))
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"{text!r} ({type(error).__name__}: {error})"
        raise _wrong(found) from error
    if strange:
        raise _wrong(f"a cluster with {', '.join(sorted(strange))}")
    for address in addresses.values():
        if not re.fullmatch(r"\S+:\d+", str(address)):
            raise _wrong(f"the address {address!r}")
    name = f"{kind} {index}"
    if name not in addresses:
        known = ", ".join(addresses) or "nobody"
        raise _wrong(f"the task {name} in a cluster of {known}")
    return WorkerTask(name, name == next(iter(addresses)), addresses)


def _wrong(received):
    return InputError(
        VARIABLE,
        "be JSON with the addresses host:port of all workers, and which of "
        "them this one is",
        f"{received}",
        f"Set for example {VARIABLE}='{EXAMPLE}'.",
    )


class Workers:
    """All processes that train one network, seen from one of them.

    Args:
        strategy: of `tf.distribute`; None for that of one device.
        task: the `WorkerTask`; None where there is one process.
    """

    def __init__(self, strategy=None, task=None):
        self.strategy = strategy or tf.distribute.get_strategy()
        self.name, self.is_chief, self._addresses = task or ("", True, {})

    @property
    def num_replicas(self):
        """How many devices share a batch."""
        return self.strategy.num_replicas_in_sync

    @property
    def are_several(self):
        """Whether there are other processes."""
        return len(self._addresses) > 1

    def __str__(self):
        if self.num_replicas == 1 and not self.are_several:
            return ""
        told = f"{self.num_replicas} replica{'s' * (self.num_replicas != 1)}"
        count = len(self._addresses)
        if count:
            told += f" on {count} worker{'s' * (count != 1)}"
        return told

    def scope(self):
        """Returns the context that variables of the replicas are made in."""
        return self.strategy.scope()

    def share(self, batches):
        """Returns the data set of an epoch, for this process's replicas."""
        if self.num_replicas == 1:
            return batches.dataset
        return distributed(self.strategy, batches)

    def of_chief(self, value=None):
        """Returns what the chief gives, on all; they wait for each other.

        Args:
            value: what JSON can hold; only the chief's matters.
        """
        if not self.are_several:
            return value
        text = json.dumps(value).encode() if self.is_chief else b""
        (size,) = self._sum_of_chief([len(text)])
        text = list(text) or [0] * size
        return json.loads(bytes(self._sum_of_chief(text)))

    def _sum_of_chief(self, numbers):
        """Returns the chief's integers, to which all others add 0."""

        def own():
            context = tf.distribute.get_replica_context()
            is_given = self.is_chief and context.replica_id_in_sync_group == 0
            given = tf.constant(numbers, tf.int32)
            return tf.where(is_given, given, 0)

        values = self.strategy.run(own)
        return self.strategy.reduce("SUM", values, axis=None).numpy().tolist()

    def wait(self):
        """Waits until all workers are here."""
        self.of_chief()

    @contextlib.contextmanager
    def chief_first(self):
        """Lets other workers do what is within when the chief has done it."""
        if not self.is_chief:
            self.wait()
        yield
        if self.is_chief:
            self.wait()

    def check_same(self, argument, value, advice):
        """Refuses what is not the same on this worker as on the chief.

        Args:
            argument: what it is called.
            value: dict that JSON can hold; what differs is told.
            advice: what to change.

        Raises:
            ValueError: it differs.
        """
        other, value = self.of_chief(value), json.loads(json.dumps(value))
        if other == value:
            return
        names = [k for k in value | other if value.get(k) != other.get(k)]
        value, other = ({k: x.get(k) for k in names} for x in (value, other))
        raise InputError(
            argument,
            "be the same on all workers",
            f"{value} on {self.name}, {other} on the chief",
            f"{advice}",
        )

    @contextlib.contextmanager
    def watched(self):
        """Names the worker that is gone, where what is within lost one.

        TensorFlow ends what waits for it: at once where its process is gone,
        within a minute where its machine is.

        Raises:
            ConnectionError: a worker is gone.
        """
        try:
            yield
        except LOST as error:
            if not self.are_several:
                raise
            gone = self._gone(str(error))
            time.sleep(LOOK_SECONDS)
            raise UnreachableError(
                "All workers must stay until the run ends. Received: no "
                f"answer from {gone}. Start all workers again with --resume: "
                "they go on after the last finished epoch."
            ) from error

    def _gone(self, message):
        """Returns in words who does not answer, or whom an error names."""
        others = {k: v for k, v in self._addresses.items() if k != self.name}
        gone = [f"{k} ({v})" for k, v in others.items() if not _answers(v)]
        named = re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", message)
        named = dict.fromkeys(" ".join(one) for one in named).keys()
        if "CoordinationService" in message:  # The chief runs it.
            named = [next(iter(self._addresses))]
        named = [name for name in named if name != self.name]
        return ", ".join(gone or named or ["another worker"])


def _answers(address):
    """Tells whether somebody accepts connections at "host:port"."""
    host, _, port = address.rpartition(":")
    try:
        place = host.strip("[]"), int(port)
        socket.create_connection(place, ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def open_workers(distribute="none", num_replicas=0):
    """Returns the `Workers` of a training; call before TensorFlow computes.

    Args:
        distribute: of `KINDS`.
        num_replicas: of `mirrored`, how many devices; 0 for every GPU. Where
            there is no GPU, as many parts of the CPU: to try it.

    Raises:
        ValueError: there are fewer devices, or `TF_CONFIG` is none.
    """
    check_choice("--distribute", distribute, KINDS)
    if num_replicas and distribute != "mirrored":
        raise InputError(
            "--num_replicas",
            "come with --distribute=mirrored",
            f"--num_replicas={num_replicas} with --distribute={distribute}",
            "Leave it out.",
        )
    if distribute == "mirrored":
        return Workers(tf.distribute.MirroredStrategy(_devices(num_replicas)))
    if distribute == "none":
        return Workers()
    text = os.environ.get(VARIABLE, "")
    if not text:
        raise InputError(
            "--distribute=multi_worker",
            f"come with the environment variable {VARIABLE}",
            "none",
            f"Set for example {VARIABLE}='{EXAMPLE}', or try "
            "--local_workers=2 on one machine.",
        )
    task = read_task(text)
    return Workers(tf.distribute.MultiWorkerMirroredStrategy(), task)


def _devices(count):
    """Returns the names of the devices that `mirrored` uses."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and count <= len(gpus):
        return [f"GPU:{i}" for i in range(count or len(gpus))]
    if gpus or not count:
        raise InputError(
            "--num_replicas",
            "be at most the number of GPUs; where there is none, how many "
            "parts of the CPU to take",
            f"--num_replicas={count} on a machine with {len(gpus)} GPUs",
            "Set another, or --distribute=none.",
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, parts)
    return [f"CPU:{i}" for i in range(count)]
