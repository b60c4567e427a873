"""Workers of a training: their processes, and what they say."""

import os
import pathlib
import re
import subprocess
import sys
import time

from tbnets.cli.local_workers import MARK, environments
from tests.fresh import PATIENCE, ROOT
from tests.fuzz import run_results

LOCAL, APART = "--local_workers", "TF_CONFIG"
_CAUSE = re.compile(
    r"^error: All workers must stay until the run ends\. Received: "
    r"(.+?)(?:; the others|\. Start all)",
    re.MULTILINE,
)


def starts(how, count):
    """Returns how workers are started: (a flag, environment of each process).

    Args:
        how: `LOCAL`, one process that starts all, or `APART`.
        count: of workers; 1 is one device.
    """
    if how == LOCAL or count == 1:
        return f"--local_workers={count * (count > 1)}", [{}]
    more = [dict(own) for own in environments(count)]  # As many threads.
    for own in more:
        del own[MARK]
    return "--distribute=multi_worker", more


def causes(text):
    """Returns whom workers say to have lost, of what they said: a set."""
    return set(_CAUSE.findall(text))


class Training:
    """All processes of a training.

    Args:
        run_dir: `pathlib.Path`; what is said goes to files beside it.
        how: see `starts`.
        count: of workers.
        *flags: of the training, beside these.
    """

    def __init__(self, run_dir, how, count, *flags):
        flag, more = starts(how, count)
        line = [sys.executable, "tools/train.py", *flags, flag]
        always = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.logs, self.processes = [], []
        for index, own in enumerate(more):
            self.logs.append(run_dir.with_name(f"{run_dir.name}.{index}.log"))
            with open(self.logs[-1], "wb") as log:
                process = subprocess.Popen(
                    [*line, f"--run_dir={run_dir}"],
                    cwd=ROOT,
                    env=os.environ | always | own,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self.processes.append(process)

    def workers(self):
        """Returns the numbers of the processes that train, the chief first."""
        numbers = [process.pid for process in self.processes]
        if len(numbers) == 1:  # Its children, in the order of their start.
            (own,) = numbers
            path = pathlib.Path(f"/proc/{own}/task/{own}/children")
            numbers = [int(number) for number in path.read_text().split()]
        return numbers

    def said(self):
        """Returns what each process has said."""
        return [log.read_text(errors="replace") for log in self.logs]

    def wait_until(self, is_so, every):
        """Waits until something is so, looking every so many seconds.

        Raises:
            AssertionError: a process ended before; tells what was said.
        """
        while not is_so():
            if any(one.poll() is not None for one in self.processes):
                raise self.failed()
            time.sleep(every)

    def end(self, seconds=PATIENCE):
        """Tells whether all end in some seconds; kills what does not."""
        deadline = time.monotonic() + seconds
        try:
            for process in self.processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            for process in self.processes:
                process.kill()
            return False
        return True

    def failed(self):
        """Returns the error of a training that did not end well."""
        return AssertionError("\n".join(text[-2000:] for text in self.said()))


def trained(run_dir, how, count, *flags):
    """Trains to the end; returns (what the chief said, arrays of the run).

    Raises:
        AssertionError: it failed; tells what was said.
    """
    training = Training(run_dir, how, count, *flags)
    if not training.end() or any(one.returncode for one in training.processes):
        raise training.failed()
    return training.said()[0], run_results.of_run(run_dir)
