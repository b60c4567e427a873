"""Reads broken files in a process of its own, and judges what came of it.

The process has a limit of memory and of time a case; where it dies, that is
an answer too, and another one goes on behind the case.
"""

import faulthandler
import hashlib
import math
import multiprocessing.forkserver
import os
import pathlib
import re
import resource
import signal
import tempfile
import time
import traceback
import warnings
from typing import NamedTuple

from tests import fresh
from tests.fuzz.mutations import mutate

_ADDRESS_SPACE = 3 * 2**30
_PATIENCE_AT_FIRST = 600


class Limits(NamedTuple):
    """What reading one file may take.

    Args:
        seconds: of the processor.
        memory: bytes, beside ten times the size of the file.
        patience: seconds without a word after which a process is ended that
            does not use the processor.
    """

    seconds: int = 5
    memory: int = 64 * 2**20
    patience: int = 120


LIMITS = Limits()


class Answer(NamedTuple):
    """What came of one broken file.

    Args:
        reader: its name.
        number: of the mutation.
        kind: "clean": an error that names the file and what it must be;
            "harmless": the same result; "accepted": another result; "fault".
        detail: the message, or what is wrong, the last line of it first.
        what: how the file was broken.
    """

    reader: str
    number: int
    kind: str
    detail: str
    what: str


def start_server():
    """Imports TensorFlow where the processes start from.

    Whoever wants to hide what that prints, calls it before `run`.
    """
    multiprocessing.forkserver.ensure_running()


def run(readers, numbers, seed=0, limits=LIMITS):
    """Breaks the files of readers and yields an `Answer` for each.

    Args:
        readers: name -> `reader.Reader`.
        numbers: name -> sequence of the numbers of mutations.
        seed: of all mutations.
        limits: the `Limits` of a file.
    """
    todo = [(name, number) for name in readers for number in numbers[name]]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while todo:
            told = 0
            for answer in _one_process(readers, todo, seed, folder, limits):
                told += 1
                yield answer
            del todo[:told]


def keep(name, reader, number, seed, folder):
    """Writes a broken file that stays, in a process of its own.

    Args:
        name: of the reader.
        reader: a `reader.Reader`.
        number: of the mutation.
        seed: of the mutation.
        folder: an empty folder.

    Returns:
        Path of the broken file.
    """
    args = name, reader, number, seed, folder
    process = fresh.CONTEXT.Process(target=_keep, args=args)
    process.start()
    process.join()
    return pathlib.Path(folder, name, reader.file)


def _keep(name, reader, number, seed, folder):
    Opened(name, reader, f"{folder}/{name}").break_file(number, seed)


def _one_process(readers, todo, seed, folder, limits):
    """Yields answers; ends behind a case that the process died of."""
    ours, theirs = fresh.CONTEXT.Pipe(duplex=False)
    log = pathlib.Path(folder, "log.txt")
    process = fresh.CONTEXT.Process(
        target=_work,
        args=(theirs, readers, todo, (seed, limits), folder, str(log)),
    )
    process.start()
    theirs.close()
    done, reason, patience = 0, "", _PATIENCE_AT_FIRST
    try:
        while done < len(todo):
            if not ours.poll(patience):
                reason = f"says nothing for {patience} s"
                break
            answer = ours.recv()
            if isinstance(answer, str):
                raise RuntimeError(answer)
            if answer is not None:
                yield Answer(*answer)
                done += 1
            patience = limits.patience
    except EOFError:
        process.join()
        reason = _death(process.exitcode, limits)
    finally:
        process.kill()
        process.join()
        ours.close()
    if done < len(todo):
        name, number = todo[done]
        what = mutate(b"", seed, number).what
        yield Answer(name, number, "fault", f"{reason}\n{_said(log)}", what)


def _said(log):
    """Returns the last words of a process that died, with its stack."""
    if not log.exists():
        return ""
    text = log.read_text(errors="replace")
    return text.partition("Extension modules:")[0][-4000:]


def _death(code, limits):
    """Returns in words how a process ended."""
    if code == -signal.SIGXCPU:
        return f"more than {limits.seconds} s"
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _work(connection, readers, todo, how, folder, log):
    """Answers the cases one after the other, in the process."""
    seed, limits = how
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    try:
        for answer in _answers(readers, todo, seed, folder, limits):
            connection.send(answer and tuple(answer))
    except Exception:  # A mistake of the harness, whatever it is.
        connection.send(traceback.format_exc())


def _answers(readers, todo, seed, folder, limits):
    """Yields the answer of each case, and None where the first can begin."""
    opened = None
    for name, number in todo:
        if opened is None or opened.name != name:
            _limit(resource.RLIMIT_CPU, resource.RLIM_INFINITY)
            opened = Opened(name, readers[name], f"{folder}/{name}")
            _limit(resource.RLIMIT_AS, _status("VmSize") + _ADDRESS_SPACE)
            yield None
        yield opened.answer(number, seed, limits)


def _limit(what, value):
    resource.setrlimit(what, (value, resource.RLIM_INFINITY))


class Opened:
    """A reader with a valid file of its own, whose copies are broken.

    Args:
        name: of the reader.
        reader: a `reader.Reader`.
        folder: to write to.
    """

    def __init__(self, name, reader, folder):
        self.name, self.reader = name, reader
        self.folder = folder = pathlib.Path(folder)
        self.path = folder / reader.file
        if not self.path.exists():
            folder.mkdir(exist_ok=True)
            reader.write(folder)
        kept = folder.with_name(f"{folder.name}.valid")
        if not kept.exists():
            kept.write_bytes(self.path.read_bytes())
        self.valid = kept.read_bytes()
        self._put(self.valid)
        self.part = reader.part(self.valid) if reader.part else self.valid
        self.expected = digest(reader.read(folder))
        again = digest(reader.read(folder))  # All that is lazy is there now.
        if again != self.expected:
            raise AssertionError(f"{name} reads a valid file in two ways")

    def break_file(self, number, seed):
        """Breaks the file, and returns what was done to it."""
        content, what = mutate(self.part, seed, number)
        if self.reader.part:
            content = self.reader.whole(self.valid, content)
        self._put(content)
        return what

    def answer(self, number, seed, limits):
        """Breaks the file, reads it, and returns the `Answer`."""
        what = self.break_file(number, seed)
        most = limits.memory + 10 * self.path.stat().st_size
        used = time.process_time()
        last = math.ceil(_cpu_seconds()) + limits.seconds
        _limit(resource.RLIMIT_CPU, last)
        before = _reset_peak()
        kind, detail = judge(self.reader, self.folder, self.expected)
        took = time.process_time() - used
        grown = _status("VmHWM") - before
        if kind != "fault" and took > limits.seconds:
            kind, detail = "fault", f"took {took:.1f} s of the processor"
        if kind != "fault" and grown > most:
            kind = "fault"
            detail = f"took {grown >> 20} MiB, at most {most >> 20}; {detail}"
        return Answer(self.name, number, kind, detail, what)

    def _put(self, content):
        """Puts content in place; what was read may still be mapped."""
        new = self.path.with_name("broken.new")
        new.write_bytes(content)
        os.replace(new, self.path)


def judge(reader, folder, expected):
    """Reads a folder and returns (kind, detail) of an `Answer`.

    Args:
        reader: a `reader.Reader`.
        folder: the folder with the file.
        expected: `digest` of what the valid file holds.
    """
    # Here and not above: the fork server must not import Keras.
    from tbnets import startup

    try:
        result = digest(reader.read(folder))
    except Exception as error:
        message = str(error)
        if not startup.is_for_the_user(error):
            lines = traceback.format_exc().rstrip().split("\n")
            return "fault", "\n".join([lines[-1], *lines])
        named = (str(folder), *reader.names)
        if not any(name in message for name in named):
            return "fault", f"an error without the file's name: {message}"
        of_the_system = isinstance(error, OSError) and error.filename
        if not (of_the_system or re.search("expected|must", message)):
            return "fault", f"an error without what to change: {message}"
        return "clean", message
    return ("harmless" if result == expected else "accepted"), ""


def digest(value):
    """Returns the sha256 of what a reader returned, whatever it is."""
    import numpy as np

    found = hashlib.sha256()

    def add(one):
        if isinstance(one, np.ndarray):
            found.update(f"{one.dtype}{one.shape}".encode())
            found.update(np.ascontiguousarray(one).tobytes())
        elif isinstance(one, dict):
            add(list(one.items()))
        elif isinstance(one, frozenset | set):
            add(sorted(one))
        elif isinstance(one, list | tuple):
            found.update(f"{len(one)}(".encode())
            for each in one:
                add(each)
        elif hasattr(one, "__dict__"):
            add(vars(one))
        else:
            found.update(repr(one).encode("utf-8", "surrogatepass") + b",")

    add(value)
    return found.hexdigest()


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _status(name):
    """Returns a size of `/proc/self/status` in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def _reset_peak():
    """Forgets the largest memory so far; returns what is taken now."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return _status("VmRSS")
