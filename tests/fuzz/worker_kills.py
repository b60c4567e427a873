"""Workers of a training that are killed (-9), and how the others end.

Some workers train a small `quickstart`, once undisturbed. Then one of them is
killed in an epoch's steps, or while the chief writes a checkpoint. The others
must end within a minute and name it, and what they all go on with must become
the numbers of the undisturbed training, bit for bit.
"""

import os
import pathlib
import re
import shutil
import signal
import tempfile
import time
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError
from tbnets.files import is_partial
from tbnets.training.checkpoints import read_progress
from tests.fuzz import run_results
from tests.fuzz.workers import APART, LOCAL, Training, causes, trained

FLAGS = (
    *("--flagfile=configs/quickstart.flags", "--num_scenes=60,20,20"),
    *("--images_per_batch=6", "--schedule=constant", "--epochs=3"),
    "--noexport",
)
IN_STEP, SAVING = "in a step", "while it saves"
KILLS = ("worker", IN_STEP), ("chief", IN_STEP), ("chief", SAVING)
MOST_SECONDS = 60
MOST_DISTANCE = 1e-4
"""Of the last weights, relatively, where another number of replicas goes on:
float32 rounds their sums otherwise."""
_TRIES = 5


class Killed(NamedTuple):
    """What came of a kill.

    Args:
        name: of the worker that was killed.
        seconds: after which all others had ended.
        said: what `causes` found, for each that had to tell.
        left: names of what is half written.
        epoch: of the last whole checkpoint.
    """

    name: str
    seconds: float
    said: list
    left: list
    epoch: int

    @property
    def told(self):
        """All causes, in words."""
        return " / ".join(sorted(set().union(*self.said)))

    def fault(self):
        """Tells where someone did not name who was killed; "" if all did."""
        for one in self.said:
            if set(re.findall(r"worker \d+", " ".join(one))) != {self.name}:
                return f"{self.name} was killed, told: {one or 'nobody'}"
        return ""


class Trials:
    """Kills of workers, and what came of them.

    Args:
        folder: `pathlib.Path` of an empty folder to work in.
        count: of workers.
        seed: of who is killed, and when.
    """

    def __init__(self, folder, count, seed):
        self.folder, self.count = folder, count
        self.generator = np.random.default_rng(seed)
        self.flags = [*FLAGS, f"--scenes={folder / 'scenes'}"]
        self.truth = trained(folder / "truth", LOCAL, count, *self.flags)[1]
        last = folder / "truth" / "checkpoints" / "last.npz"
        self.seconds = read_progress(last).history[1]["seconds"]
        self.number = 0
        self.saves = []

    def trial(self, how, whom, moment):
        """Kills a worker, and goes on; returns (cells of a table, fault).

        Args:
            how: see `workers.starts`.
            whom: "chief" or "worker".
            moment: `IN_STEP` or `SAVING`.

        Raises:
            AssertionError: a training failed, or others stayed.
        """
        for _ in range(_TRIES):
            self.number += 1
            run_dir = self.folder / f"run{self.number}"
            killed = self._kill(run_dir, how, whom, moment)
            self.saves += [killed.left] * (moment == SAVING)
            if killed.epoch == 1 and bool(killed.left) == (moment == SAVING):
                break
        what = f"{killed.name}{', the chief,' * (whom == 'chief')} {moment}"
        cells = [what, how, f"{killed.seconds:.1f} s", killed.told]
        other, fault = self.folder / "other", killed.fault()
        is_first = not other.exists()
        if is_first:
            shutil.copytree(run_dir, other)
        found = trained(run_dir, how, self.count, "--resume")[1]
        wrong = run_results.difference(self.truth, found)
        wrong = wrong or ", ".join(_half_written(run_dir))
        told = wrong or "the same bits"
        if is_first:
            more, wrong_there = self._go_on_by_others(other)
            told, wrong = f"{told}; {more}", wrong or wrong_there
        return [*cells, told], fault or wrong

    def _kill(self, run_dir, how, whom, moment):
        """Kills a worker in the second epoch; returns what came of it."""
        training = Training(run_dir, how, self.count, *self.flags)
        training.wait_until(lambda: "epoch   1/" in training.said()[0], 0.05)
        numbers = training.workers()
        index = int(self.generator.integers(1, self.count))
        index *= whom == "worker"
        if moment == IN_STEP:
            time.sleep(self.seconds * self.generator.uniform(0.05, 0.5))
        else:
            training.wait_until(lambda: _half_written(run_dir), 5e-4)
        os.kill(numbers[index], signal.SIGKILL)
        start = time.monotonic()
        has_ended = training.end(MOST_SECONDS)
        seconds = time.monotonic() - start
        if not has_ended or any(os.path.exists(f"/proc/{n}") for n in numbers):
            raise AssertionError(f"others stay: {training.failed()}")
        said = [causes(text) for text in training.said()]
        if how == APART:  # The one that was killed says nothing.
            del said[index]
        left, last = _half_written(run_dir), run_dir / "checkpoints/last.npz"
        epoch = read_progress(last).epoch
        return Killed(f"worker {index}", seconds, said, left, epoch)

    def _go_on_by_others(self, run_dir):
        """Resumes another number of workers; returns (words, fault)."""
        count = 3 if self.count == 2 else self.count - 1
        said, found = trained(run_dir, LOCAL, count, "--resume")
        apart = run_results.distance(self.truth, found)
        words = f"by {count} workers weights differ by {apart:.1e}"
        told = f"{self.count} replicas on {self.count} workers until epoch 1"
        is_right = told in said and apart < MOST_DISTANCE
        return words, "" if is_right else f"{words}; {said}"


def _half_written(run_dir):
    return [*filter(is_partial, os.listdir(run_dir / "checkpoints"))]


def run(count, seed):
    """Kills workers of a training; prints a table.

    Args:
        count: of workers.
        seed: of who is killed, and when.

    Returns:
        int, the number of faults.
    """
    if count < 2:
        raise InputError(
            "`--workers` must be at least 2, that one is left. Received: "
            f"--workers={count}. Set --workers=2."
        )
    faults = 0
    print("| Killed | Started by | Others ended after | They say | Resumed |")
    print("|---|---|---:|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(pathlib.Path(folder), count, seed)
        for how in (LOCAL, APART):
            for what in KILLS:
                try:
                    cells, fault = trials.trial(how, *what)
                except AssertionError as error:
                    cells, fault = [" ".join(what), how, "fault"], str(error)
                print(f"| {' | '.join(cells)} |", flush=True)
                if fault:
                    print(f"fault: {fault}", flush=True)
                    faults += 1
    left = [" and ".join(names) for names in trials.saves if names]
    told = f"{len(left)} of {len(trials.saves)} kills fell into a save and left"
    print(f"{told}: {', '.join(left)}")
    return faults
