"""A reader of files, and the property that it must have.

Whatever is in a file, reading it ends in one of three ways: the same answer
as for the valid file, an error that names the file and says what it must be,
or another answer, where the file is valid in another way. It neither crashes
nor hangs, nor does it take more memory than the file gives reason to.
"""

import contextlib
import faulthandler
import hashlib
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tbnets import startup
from tbnets.errors import UserError
from tests.fuzz.damage import damaged

SECONDS = 5
"""Of the processor, for one file."""
MEMORY = 64 * 2**20
"""Bytes for one file, beside ten times its size."""
ADDRESS_SPACE = 3 * 2**30
PATIENCE = 120
"""Seconds after which a process that does not come back ends itself."""


class Reader(NamedTuple):
    """A way of reading, and valid files for it.

    Args:
        write: function of a folder; writes the valid files into it.
        files: paths in the folder, or patterns, of the files that are damaged.
        read: function of the folder; reads to the end and returns all of it.
        sealed: more such files, which a checksum protects: no damaged one may
            be read as another valid file.
        names: what may stand for a file in a message beside its folder: the
            flags or arguments by which the user named it.
        cost: a slower reader gets so many times fewer examples.
    """

    write: Callable
    files: tuple
    read: Callable
    sealed: tuple = ()
    names: tuple = ()
    cost: int = 1


def reader_of(contents, read, **more):
    """Returns the `Reader` of some files, all of which are damaged.

    Args:
        contents: path in a folder -> text or bytes.
        read: see `Reader`.
        **more: see `Reader`.
    """

    def write(folder):
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            is_text = isinstance(content, str)
            path.write_bytes(content.encode() if is_text else content)

    return Reader(write, tuple(contents), read, **more)


def both_ways(read):
    """Reads as a tool does that lists problems, then as a training does.

    Args:
        read: function of a list of problems, or None.

    Returns:
        What `read(None)` returns.
    """
    with contextlib.suppress(UserError):  # A training says the same.
        read([])
    return read(None)


def check(reader, folder):
    """Damages the files of a reader in many ways and looks at each answer.

    Args:
        reader: a `Reader`.
        folder: an empty folder. The last damaged file stays there, for where
            the process dies of it.
    """
    reader.write(folder)
    sealed = _found(folder, reader.sealed)
    paths = _found(folder, reader.files) + sealed
    valid = {path: path.read_bytes() for path in paths}
    expected = digest(reader.read(folder))
    # All that is lazy is there now.
    assert digest(reader.read(folder)) == expected, "two answers to valid files"
    damages = {path: damaged(content) for path, content in valid.items()}
    count = settings().max_examples * len(paths) // reader.cost

    @settings(max_examples=count)
    @given(st.data())
    def answers_well(data):
        path = data.draw(st.sampled_from(paths))
        content = data.draw(damages[path])
        _put(path, content)
        answer = answer_of(reader, folder, expected, len(content))
        event(f"{path.name}: {answer}")
        assert answer != "other" or path not in sealed
        _put(path, valid[path])

    answers_well()


def _found(folder, patterns):
    """Returns the paths of the files in a folder that have these patterns."""
    found = [sorted(folder.glob(pattern)) for pattern in patterns]
    assert all(found), f"a file is missing: {patterns}"
    return [path for paths in found for path in paths]


def _put(path, content):
    """Puts content in place; what was read before may still be mapped."""
    new = path.with_name("damaged.new")
    new.write_bytes(content)
    os.replace(new, path)


def answer_of(reader, folder, expected, size):
    """Reads a folder; returns how that ended: "same", "other" or "error".

    Args:
        reader: a `Reader`.
        folder: with its files.
        expected: `digest` of what the valid files hold.
        size: bytes of the damaged file.
    """
    try:
        with limited(SECONDS, MEMORY + 10 * size):
            result = digest(reader.read(folder))
    except Exception as error:
        if not startup.is_for_the_user(error):
            raise
        message = str(error)
        names = (str(folder), *reader.names)
        assert any(name in message for name in names), message
        is_of_the_system = isinstance(error, OSError) and error.filename
        assert is_of_the_system or re.search("expected|must", message), message
        return "error"
    return "same" if result == expected else "other"


@contextlib.contextmanager
def limited(seconds, memory):
    """Fails where the block takes more time of the processor, or memory."""

    def stop(*_):
        raise AssertionError(f"takes more than {seconds} s of the processor")

    before = signal.signal(signal.SIGPROF, stop)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    space = _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (space, limits[1]))
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # Forgets the largest memory so far.
    size, began = _status("VmRSS"), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        took, grown = time.process_time() - began, _status("VmHWM") - size
        resource.setrlimit(resource.RLIMIT_AS, limits)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)
        assert took <= seconds, f"takes {took:.1f} s of the processor"
        assert grown <= memory, f"takes {grown >> 20} of {memory >> 20} MiB"


def _status(name):
    """Returns a size of `/proc/self/status` in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def digest(value):
    """Returns the sha256 of what a reader returned, whatever it is."""
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
