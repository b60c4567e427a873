"""Several workers on one machine: a command that starts itself N times.

Each process finds the others by `TF_CONFIG`, on ports of the loopback, and has
its part of the cores. What worker 0, the chief, prints is passed on as it is,
what others say with their name before it. Where one ends too early, all end.

Workers read their standard input, a pipe whose other end is this process's:
it ends when that does, however it ends, and the worker with it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from tbnets.errors import InputError, UnreachableError
from tbnets.startup import usable_cores

MARK = "TBNETS_LOCAL_WORKER"
CONFIG = "TF_CONFIG"
LOOK_SECONDS = 0.05
STOP_SECONDS = 10.0
END_SECONDS = 3.0
"""How long workers may take to stop at Ctrl-C, and to end when told to."""


class _Worker(NamedTuple):
    """A process, and the thread that passes on what it says, if any."""

    process: subprocess.Popen
    listener: threading.Thread | None


def is_worker():
    """Tells whether this process is one that `run` has started."""
    return MARK in os.environ


def end_with_parent():
    """Ends this process, a worker, as soon as the one that started it ends."""

    def watch():
        # Not by `sys.stdin`, which Python closes at its own end.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_workers(count, command=None):
    """Runs a command in some processes, until all of them have ended.

    Args:
        count: of processes.
        command: list of words; None for the one that runs here.

    Raises:
        ValueError: this process is told to be a worker itself.
        ConnectionError: one ended too early; tells which, and how.
    """
    if os.environ.get(CONFIG):
        raise InputError(
            "`--local_workers` must be given where no TF_CONFIG is. Received: "
            f"--local_workers={count} with {CONFIG}={os.environ[CONFIG]}. Set "
            "--distribute=multi_worker for that, or unset it."
        )
    workers = {}
    try:
        for index, own in enumerate(environments(count)):
            command = command or [sys.executable, *sys.orig_argv[1:]]
            workers[f"worker {index}"] = _start(command, own, index)
        while _are_running(workers):
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        for chief, _ in list(workers.values())[:1]:
            chief.send_signal(signal.SIGINT)  # It says how the run goes on.
            with contextlib.suppress(subprocess.TimeoutExpired):
                chief.wait(STOP_SECONDS)
        raise
    finally:
        _end(workers.values())


def environments(count):
    """Yields what each worker has in its environment beside the rest."""
    # All are open at once, so that their ports differ.
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in servers]
    for server in servers:
        server.close()
    threads = str(max(1, usable_cores() // count))
    for index in range(count):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        yield {
            MARK: str(index),
            CONFIG: json.dumps(config),
            "TF_NUM_INTRAOP_THREADS": threads,
            "OMP_NUM_THREADS": threads,
        }


def _start(command, own, index):
    """Returns a process; one that is not the chief is heard by its name."""
    heard = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(
        command,
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C comes by this process alone.
        **(heard if index else {}),
    )
    if not index:
        return _Worker(process, None)
    what = f"worker {index}", process.stdout
    listener = threading.Thread(target=_pass_on, args=what, daemon=True)
    listener.start()
    return _Worker(process, listener)


def _pass_on(name, lines):
    for line in lines:
        text = line.decode(errors="replace").rstrip("\n")
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()


def _are_running(workers):
    """Tells whether one still runs; raises ConnectionError if one failed."""
    codes = {name: one.process.poll() for name, one in workers.items()}
    for name, code in codes.items():
        if not code:  # Still there, or done.
            continue
        how = f"which ended with exit code {code}"
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        raise UnreachableError(
            f"All workers must stay until the run ends. Received: {name}, "
            f"{how}; the others were ended. See what was said above; then "
            "--resume goes on after the last finished epoch."
        )
    return None in codes.values()


def _end(workers):
    """Ends what still runs, and waits until it has, and was heard."""
    for process, _ in workers:
        process.terminate()  # Nothing, where it has ended.
    deadline = time.monotonic() + END_SECONDS
    for process, listener in workers:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if listener:
            listener.join(END_SECONDS)
