r"""Compares training on replicas with training on one device.

For example, with two and three replicas in one process, and with two and four
processes:

  python tools/compare_replicas.py --configuration=scenes_pixels \
      --replicas=2,3 --workers=2,4

Prints the largest relative difference in the loss at any step, the relative
difference in the final weights, and the median time per step. In float32,
rounding causes differences; --other_kernels measures this effect on one device.
"""

import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np

from tbnets import cli
from tbnets.cli import train
from tbnets.errors import InputError
from tbnets.startup import usable_cores
from tbnets.tasks.settings.flag import Count, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the training run and its devices."""

    configuration: str = flag("scenes_pixels", "Flag file of the training run.")
    more: list[str] = flag(
        [], "Additional flag of the run, without dashes.", kind="repeated"
    )
    replicas: list[int] = flag(
        [2], "Logical CPU devices in one process; 0: none."
    )
    workers: list[int] = flag([2], "Processes on this machine; 0: none.")
    steps: Count = flag(50, "Number of steps.")
    other_kernels: bool = flag(
        False, "Also switch oneDNN's kernels on or off on one device."
    )
    part: str = flag("", "Internal: file for the results of one run.")


def environments(count):
    """Returns the environment variables of workers on this machine."""
    # Opens all sockets before closing any, so that the ports differ.
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    workers = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    configs = [{"cluster": {"worker": workers}, "task": task} for task in tasks]
    names = "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"
    threads = dict.fromkeys(names, str(max(1, usable_cores() // count)))
    return [{"TF_CONFIG": json.dumps(config), **threads} for config in configs]


def parts(options):
    """Yields (title, added flags, environments) for each training run."""
    yield "one device", "", [{}]
    if options.other_kernels:
        known = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")
        environment = {"TF_ENABLE_ONEDNN_OPTS": "0" if known == "1" else "1"}
        yield "one device, other kernels", "", [environment]
    for count in filter(None, options.replicas):
        words = f"--distribute=mirrored --num_replicas={count}"
        yield f"{count} replicas", words, [{}]
    for count in filter(None, options.workers):
        words = "--distribute=multi_worker"
        yield f"{count} workers", words, environments(count)


def run(options, words, file, folder, environments):
    """Trains in a process for each environment.

    Returns the weights, losses and times of the first process.
    """
    flags = [*options.more, f"run_dir={folder}"]
    flags += [word.removeprefix("--") for word in words.split()]
    line = [sys.executable, __file__, f"--part={file}"]
    line += [f"--configuration={options.configuration}"]
    line += [f"--steps={options.steps}"]
    line += [f"--more={flag}" for flag in flags]
    first, *others = (
        subprocess.Popen(
            line,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if index else subprocess.PIPE,
            text=True,
        )
        for index, environment in enumerate(environments)
    )
    _, errors = first.communicate()
    for process in others:
        process.wait()
    if first.returncode:
        raise InputError(
            f"`--configuration` must be a flagfile that trains. Received: "
            f"{options.configuration} {' '.join(flags)}: "
            f"{errors.strip()[-2000:]}"
        )
    return dict(np.load(file))


class Recorder(keras.callbacks.Callback):
    """Records the loss and time of each step; stops after `steps` steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.losses, self.times = steps, [], []

    def on_train_batch_begin(self, batch, logs=None):
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Records the loss of this step."""
        self.losses.append(float(logs["loss"]))
        self.times.append(time.perf_counter() - self._start)
        self.model.reset_metrics()
        self.model.stop_training = len(self.losses) >= self.steps


def train_part(options):
    """Trains for some steps; the chief writes the results to `--part`."""

    def fit(session, examples, _):
        network, batches = session.network, session.batches
        recorder, epoch = Recorder(options.steps), 0
        while len(recorder.losses) < options.steps:
            session.task.start_epoch(network, examples, epoch)
            batches.epoch = epoch
            network.fit(
                session.workers.share(batches),
                steps_per_epoch=batches.num_batches,
                initial_epoch=epoch,
                epochs=epoch + 1,
                callbacks=[recorder],
                shuffle=False,
                verbose=0,
            )
            epoch += 1
        if session.workers.is_chief:
            weights = [np.ravel(np.asarray(w.numpy())) for w in network.weights]
            arrays = {"weights": np.concatenate(weights)}
            arrays |= {"losses": recorder.losses, "times": recorder.times}
            np.savez(options.part, **arrays)

    train.fit_or_stop, train._finish = fit, lambda session, queries: None
    words = [f"--flagfile={options.configuration}", "--noexport"]
    cli.call("train", words + [f"--{flag}" for flag in options.more])


def main(options):
    """Prints how each training run differs from training on one device."""
    if options.part:
        train_part(options)
        return
    reference = None
    with tempfile.TemporaryDirectory() as place:
        for i, (title, words, environments) in enumerate(parts(options)):
            file, folder = (
                pathlib.Path(place, f"{i}{e}") for e in (".npz", "")
            )
            arrays = run(options, words, file, folder, environments)
            step = f"{1e3 * np.median(arrays['times'][2:]):8.1f} ms a step"
            if reference is None:
                reference = arrays
                print(f"{title:<26}{step}", flush=True)
                continue
            losses = np.abs(arrays["losses"] / reference["losses"] - 1).max()
            weights = np.linalg.norm(arrays["weights"] - reference["weights"])
            weights /= np.linalg.norm(reference["weights"])
            differences = f"   loss {losses:.1e}   weights {weights:.1e}"
            print(f"{title:<26}{step}{differences}", flush=True)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
