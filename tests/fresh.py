"""Processes that start with TensorFlow imported and nothing of tbnets.

Importing TensorFlow takes some five seconds, and many tests need a process
of their own: one without tbnets, one that is killed, one in which a tool
parses its flags. The fork server of `multiprocessing` imports TensorFlow once
for all tests of a pytest worker and forks a child for each of them.
TensorFlow can be forked as long as it has not run an operation, and the
server runs none: its threads start in the child.

A child differs from `python ...` in two ways. TensorFlow is there before the
program asks for it, so a test of what the import itself prints, or of a tool
that must do without, starts a real process. And the interpreter does not tear
itself down at the end: `atexit` is not run.
"""

import contextlib
import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile

from tests.eager import without_tracing

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 600
"""Seconds after which a process that `run` waits for is taken to hang."""

# There is one server for all, and what it imports is named here alone. Where
# the first is not found, in another folder, the others do.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.preloaded", "tensorflow", "tensorflow_text"]
)


def start(
    *arguments,
    cwd=ROOT,
    with_tbnets=True,
    eagerly=False,
    outputs=(os.devnull,) * 2,
):
    """Starts `python *arguments` and returns at once.

    Args:
        *arguments: as on the command line: a script or `-c` and code, and
            then what `sys.argv` holds.
        cwd: folder to run in.
        with_tbnets: whether tbnets and tools are on the path of modules.
        eagerly: whether steps run without tracing, which is seconds less
            where no graph is at stake.
        outputs: files for standard output and standard error.

    Returns:
        A `multiprocessing.Process`: `is_alive`, `kill`, `join`, `exitcode`.
    """
    line = [str(argument) for argument in arguments]
    given = (line, str(cwd), with_tbnets, eagerly, dict(os.environ), outputs)
    process = CONTEXT.Process(target=_run, args=given)
    process.start()
    return process


def run(*arguments, check=False, **options):
    """Runs `python *arguments`; answers as `subprocess.run` would."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("out", "err")]
        process = start(*arguments, outputs=files, **options)
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutError(f"{arguments} hung. {files[1].read_text()}")
        ended = subprocess.CompletedProcess(
            arguments, process.exitcode, *(file.read_text() for file in files)
        )
    if check and ended.returncode:
        raise AssertionError(f"exit code {ended.returncode}: {ended.stderr}")
    return ended


def _run(line, cwd, with_tbnets, eagerly, environment, outputs):
    """Becomes the program, in the child."""
    mode = without_tracing() if eagerly else contextlib.nullcontext()
    with mode:
        _become(line, cwd, with_tbnets, environment, outputs)


def _become(line, cwd, with_tbnets, environment, outputs):
    for descriptor, path in zip((1, 2), outputs):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    program, *_ = line
    as_code = program == "-c"
    first = "" if as_code else str(pathlib.Path(program).resolve().parent)
    others = [p for p in sys.path if p and pathlib.Path(p).resolve() != ROOT]
    sys.path[:] = [first, *[str(ROOT)] * with_tbnets, *others]
    if as_code:
        sys.argv = ["-c", *line[2:]]
        exec(line[1], {"__name__": "__main__"})
    else:
        sys.argv = line
        runpy.run_path(program, run_name="__main__")
