r"""Tells how closely replicas learn what one device learns, step by step.

For instance, 50 steps of a configuration by two and three parts of the CPU in
one process, and by two and four processes on the loopback, each beside one
device:

  python tools/compare_replicas.py --configuration=quickstart \
      --replicas=2,3 --workers=2,4

Printed are the largest relative difference of the loss of any step, that of
the weights after the last (of all: the length of their difference to theirs),
and the time of a step, the median. float32 can hold no more than its rounding
lets it, which other kernels of one device show: --other_kernels. --double
computes in float64, where only a fault would be seen.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from tbnets import cli
from tbnets.errors import InputError
from tbnets.tasks.settings.flag import Count, flag

DEVICES = {
    "replicas": "--distribute=mirrored --num_replicas={}",
    "workers": "--local_workers={}",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared."""

    configuration: str = flag("quickstart", "A flagfile of trainings.")
    more: list[str] = flag(
        [], "Another flag of the training, without its --.", kind="repeated"
    )
    replicas: list[int] = flag([2], "Parts of the CPU in one process; 0: none.")
    workers: list[int] = flag([2], "Processes on the loopback; 0: none.")
    steps: Count = flag(50, "Steps that are taken.")
    double: bool = flag(False, "Compute in float64.")
    other_kernels: bool = flag(
        False, "Also by one device with oneDNN's kernels on, if off, or off."
    )
    part: str = flag("", "File that one such training writes; for this tool.")


def parts(options):
    """Yields (title, more flags, environment) of all trainings."""
    yield "one device", "", {}
    if options.other_kernels:
        known = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")
        other = {"TF_ENABLE_ONEDNN_OPTS": "0" if known == "1" else "1"}
        yield "one device, other kernels", "", other
    for kind, devices in DEVICES.items():
        for count in getattr(options, kind):
            if count:
                yield f"{count} {kind}", devices.format(count), {}


def run(options, words, file, folder, environment):
    """Runs one training; returns what it wrote."""
    more = [*options.more, f"run_dir={folder}"]
    more += [word.removeprefix("--") for word in words.split()]
    line = [sys.executable, __file__, f"--part={file}"]
    line += [f"--configuration={options.configuration}"]
    line += [f"--steps={options.steps}"] + ["--double"] * options.double
    ended = subprocess.run(
        line + [f"--more={flag}" for flag in more],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise InputError(
            f"`--configuration` must be one that trains. Received: "
            f"{options.configuration} {' '.join(more)}: "
            f"{ended.stderr.strip()[-2000:]}"
        )
    return dict(np.load(file))


def main(options):
    """Prints the differences of each training to that of one device."""
    if options.part:
        from measuring.replica_steps import train_part  # TensorFlow.

        train_part(options)
        return
    wanted = None
    with tempfile.TemporaryDirectory() as place:
        for i, (title, words, environment) in enumerate(parts(options)):
            file, folder = (
                pathlib.Path(place, f"{i}{e}") for e in (".npz", "")
            )
            found = run(options, words, file, folder, environment)
            step = f"{1e3 * np.median(found['times'][2:]):8.1f} ms a step"
            if wanted is None:
                wanted = found
                print(f"{title:<26}{step}", flush=True)
                continue
            losses = np.abs(found["losses"] / wanted["losses"] - 1).max()
            weights = np.linalg.norm(found["weights"] - wanted["weights"])
            weights /= np.linalg.norm(wanted["weights"])
            differences = f"   loss {losses:.1e}   weights {weights:.1e}"
            print(f"{title:<26}{step}{differences}", flush=True)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
