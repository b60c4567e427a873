"""Starts several workers on one machine, each in its own process.

The workers connect through `TF_CONFIG`, on ports of the loopback interface, and
share the cores evenly. Each printed line starts with the name of its worker,
except lines of worker 0, the chief. If a worker fails, all workers are stopped.
A worker exits when its standard input, a pipe from this process, closes.
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
"""Maximum seconds to wait for workers that were terminated."""


class _Worker(NamedTuple):
    process: subprocess.Popen
    listener: threading.Thread | None


def is_worker():
    """Returns whether `run_workers` started this process."""
    return MARK in os.environ


def end_with_parent():
    """Ends this worker process when its parent process ends."""

    def watch():
        # Not `sys.stdin`, which Python closes at exit.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_workers(count, command=None):
    """Runs a command in `count` worker processes and waits for them to end."""
    if os.environ.get(CONFIG):
        raise InputError(
            "`--local_workers` must be given without TF_CONFIG. Received: "
            f"--local_workers={count} with {CONFIG}={os.environ[CONFIG]}. Set "
            f"--distribute=multi_worker to use {CONFIG}, or unset it."
        )
    workers = {}
    try:
        for index, environment in enumerate(environments(count)):
            command = command or [sys.executable, *sys.orig_argv[1:]]
            workers[f"worker {index}"] = _start(command, environment, index)
        while _are_running(workers):
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        for chief, _ in list(workers.values())[:1]:
            chief.send_signal(signal.SIGINT)  # The chief prints how to resume.
            with contextlib.suppress(subprocess.TimeoutExpired):
                chief.wait(STOP_SECONDS)
        raise
    finally:
        _end(workers.values())


def environments(count):
    """Yields a dict of environment variables for each worker."""
    # Opens all sockets before closing any, so that the ports differ.
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
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


def _start(command, environment, index):
    heard = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        start_new_session=True,  # Only this process gets Ctrl-C.
        **(heard if index else {}),
    )
    if not index:
        return _Worker(process, None)
    arguments = f"worker {index}", process.stdout
    listener = threading.Thread(target=_pass_on, args=arguments, daemon=True)
    listener.start()
    return _Worker(process, listener)


def _pass_on(name, lines):
    for line in lines:
        text = line.decode(errors="replace").rstrip("\n")
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()


def _are_running(workers):
    codes = {name: worker.process.poll() for name, worker in workers.items()}
    for name, code in codes.items():
        if not code:  # Running, or finished.
            continue
        reason = f"which ended with exit code {code}"
        if code < 0:
            reason = f"killed by {signal.Signals(-code).name}"
        raise UnreachableError(
            f"All workers must run until training ends. Received: {name}, "
            f"{reason}, so all workers were stopped. Correct the error above, "
            "then continue after the last finished epoch with --resume."
        )
    return None in codes.values()


def _end(workers):
    for process, _ in workers:
        process.terminate()  # No effect if it has ended.
    deadline = time.monotonic() + END_SECONDS
    for process, listener in workers:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if listener:
            listener.join(END_SECONDS)
