"""Workers of a training that are killed (-9), and how the others end.

Some workers train a small `scenes_pixels`, once undisturbed. Then one of them
is killed in an epoch's steps, or while the chief writes a checkpoint. The
others must end within a minute and name it, and what they all go on with must
become the numbers of the undisturbed training, bit for bit.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from compare_replicas import environments

from tbnets.files import is_partial
from tbnets.training.checkpoints import read_progress
from tests.fresh import PATIENCE, ROOT
from tests.fuzz.long import only_long
from tests.fuzz.runs import arrays_of_run

COUNT = 3
FLAGS = (
    *("--flagfile=configs/scenes_pixels.flags", "--num_scenes=60,20,20"),
    *("--images_per_batch=6", "--schedule=constant", "--epochs=3"),
    "--noexport",
)
MOST_SECONDS = 60
MOST_DISTANCE = 1e-4
"""Of the last weights, relatively, where another number of replicas goes on:
float32 rounds their sums otherwise."""
TRIES = 5
LOST = re.compile(
    r"^error: All workers must run until training ends\. Received: "
    r"(.+?)\. Start all",
    re.MULTILINE,
)


class Training:
    """All processes of a training.

    Args:
        run_dir: `pathlib.Path`; what is printed goes to files beside it.
        count: of workers.
        *flags: of the training, beside these.
    """

    def __init__(self, run_dir, count, *flags):
        always = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.logs, self.processes = [], []
        for index, own in enumerate(environments(count)):
            self.logs.append(run_dir.with_name(f"{run_dir.name}.{index}.log"))
            with open(self.logs[-1], "wb") as log:
                process = subprocess.Popen(
                    [
                        *(sys.executable, "tools/train.py", *FLAGS, *flags),
                        "--distribute=multi_worker",
                        f"--run_dir={run_dir}",
                        f"--scenes={run_dir.parent / 'scenes'}",
                    ],
                    cwd=ROOT,
                    env=os.environ | always | own,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self.processes.append(process)

    def workers(self):
        """Returns the numbers of the processes that train, the chief first."""
        return [process.pid for process in self.processes]

    def printed(self):
        """Returns what each process has printed."""
        return [log.read_text(errors="replace") for log in self.logs]

    def wait_until(self, is_so, every):
        """Waits until something is so, looking every so many seconds."""
        while not is_so():
            ended = [one.poll() is not None for one in self.processes]
            assert not any(ended), self.printed()
            time.sleep(every)

    def end(self, seconds=PATIENCE):
        """Waits until all have ended; fails after some seconds."""
        deadline = time.monotonic() + seconds
        try:
            for process in self.processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in self.processes:
                process.kill()


def trained(run_dir, count, *flags):
    """Trains to the end; returns what the chief printed, and the arrays."""
    training = Training(run_dir, count, *flags)
    training.end()
    codes = [process.returncode for process in training.processes]
    assert not any(codes), training.printed()
    return training.printed()[0], arrays_of_run(run_dir)


def half_written(run_dir):
    return [*filter(is_partial, os.listdir(run_dir / "checkpoints"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with the run `truth`, which nobody disturbed."""
    folder = tmp_path_factory.mktemp("workers")
    trained(folder / "truth", COUNT)
    return folder


def kill(folder, run_dir, index, is_saving):
    """Kills a worker in the second epoch; the others must name it.

    Returns:
        Whether it was killed at the moment that was asked for.
    """
    training = Training(run_dir, COUNT)
    training.wait_until(lambda: "epoch   1/" in training.printed()[0], 0.05)
    numbers = training.workers()
    last = "checkpoints/last.npz"
    if is_saving:
        training.wait_until(lambda: half_written(run_dir), 5e-4)
    else:
        history = read_progress(folder / "truth" / last).history
        share = np.random.default_rng().uniform(0.05, 0.5)
        time.sleep(history[1]["seconds"] * share)
    os.kill(numbers[index], signal.SIGKILL)
    training.end(MOST_SECONDS)
    assert not [one for one in numbers if os.path.exists(f"/proc/{one}")]
    printed = training.printed()
    del printed[index]  # The one that was killed prints nothing.
    for text in printed:
        lost = " ".join(LOST.findall(text))
        assert set(re.findall(r"worker \d+", lost)) == {f"worker {index}"}, text
    is_in_second_epoch = read_progress(run_dir / last).epoch == 1
    return is_in_second_epoch and bool(half_written(run_dir)) == is_saving


@only_long
@pytest.mark.parametrize(
    "index, is_saving", [(COUNT - 1, False), (0, False), (0, True)]
)
def test_workers_name_who_was_killed_and_go_on(folder, index, is_saving):
    run_dirs = (
        folder / f"{index}{is_saving}{number}" for number in range(TRIES)
    )
    run_dir = next(
        one for one in run_dirs if kill(folder, one, index, is_saving)
    )
    other = run_dir.with_name(f"{run_dir.name}.other")
    shutil.copytree(run_dir, other)
    truth = arrays_of_run(folder / "truth")
    np.testing.assert_equal(trained(run_dir, COUNT, "--resume")[1], truth)
    assert not half_written(run_dir)
    # Another number of workers rounds the sums otherwise.
    printed, found = trained(other, COUNT - 1, "--resume")
    assert f"{COUNT} replicas on {COUNT} workers until epoch 1" in printed
    names = [name for name in truth if name.startswith("last model/")]
    apart = sum(np.square(found[name] - truth[name]).sum() for name in names)
    length = sum(np.square(truth[name]).sum() for name in names)
    assert np.sqrt(apart / length) < MOST_DISTANCE
