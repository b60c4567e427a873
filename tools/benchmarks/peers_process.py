"""Processes that take turns: one for each row of a table."""

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile

from tbnets.startup import usable_cores

LIMIT_GIB = 10
"""Memory that one process may take; it is the only one that works."""
ENOUGH = 10
"""Seconds after which a row is not repeated."""
THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
)
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Process:
    """A row in a process of its own.

    Attributes:
        told: what it says of itself, a dict: `value`, `mebibytes`, `seconds`
            and `versions`; or `missing`, a module; or `failed`, why.
    """

    def __init__(self, builder, arrays, python, patience):
        threads = str(usable_cores())
        paths = [str(ROOT), str(ROOT / "tools")]
        self._patience = patience
        self._errors = tempfile.TemporaryFile()
        given = [f"benchmarks.{builder}", str(arrays), LIMIT_GIB]
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peers_worker", json.dumps(given)],
            env={
                **os.environ,
                **dict.fromkeys(THREADS, threads),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "PYTHONPATH": os.pathsep.join(paths),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.told = self._answer()

    def run(self):
        """Has it do its step once; returns seconds, or None."""
        if not self.works:
            return None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "failed" in answer:
            self.told |= answer
        return answer.get("seconds")

    @property
    def works(self):
        """Whether it can be asked for a run."""
        return not {"missing", "failed"} & set(self.told)

    def _answer(self):
        stdout = self._process.stdout
        if not select.select([stdout], [], [], self._patience)[0]:
            self.stop()
            return {"failed": f"more than {self._patience} s"}
        line = stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((x for x in reversed(lines) if x.strip()), "")
        if "bad_alloc" in "".join(lines) or "allocate" in "".join(lines):
            return {"failed": f"more than {LIMIT_GIB} GiB of memory"}
        return {"failed": f"exit code {code}, {last[:100]}"}

    def stop(self):
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()


@contextlib.contextmanager
def started(builders, arrays, pythons=(), *, patience):
    """Yields a `Process` of each builder; ends all of them.

    Args:
        builders: list of `module:function`.
        arrays: path of their arrays.
        pythons: interpreters to try where this one lacks a package.
        patience: seconds that a run may take, its imports included.
    """
    processes = []
    try:
        for builder in builders:
            for python in (sys.executable, *pythons):
                process = Process(builder, arrays, python, patience)
                processes.append(process)
                if "missing" not in process.told:
                    break
                if python != [sys.executable, *pythons][-1]:
                    processes.pop().stop()
        yield processes
    finally:
        for process in processes:
            process.stop()


def in_turns(processes, repeats):
    """Lets processes run in turns; returns seconds of the runs of each."""
    seconds = [[] for _ in processes]
    for _ in range(repeats):
        for process, own in zip(processes, seconds):
            if sum(own) < ENOUGH and (found := process.run()):
                own.append(found)
    return seconds
