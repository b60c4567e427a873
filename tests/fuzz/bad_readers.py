"""Readers with every fault that the harness must see, and a good one."""

import functools
import os
import signal
import time

from tbnets.errors import InputError
from tests.fuzz.reader import Reader

VALID = b'{"a": 1}'


def write(folder):
    (folder / "x.json").write_bytes(VALID)


def read(folder, badly):
    """Returns the content of the file; does something bad with a broken one."""
    path = folder / "x.json"
    content = path.read_bytes()
    if content != VALID:
        badly(path)
    return content


def say(path):
    raise InputError(f"{path}: expected JSON; found something else.")


def forget_the_name(path):
    raise InputError("expected JSON; found something else.")


def forget_the_cure(path):
    raise InputError(f"{path} is bad.")


def stumble(path):
    return {}["missing"]


def blame_the_system(path):
    raise FileNotFoundError(2, "No such file", str(path))


def crash(path):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(path):
    os._exit(3)


def spin(path):
    while True:
        pass


def sleep(path):
    time.sleep(1000)


def take_memory(path):
    return len(b"x" * (200 * 2**20))


def take_all_memory(path):
    return len(bytes(2**40))


def accept(path):
    pass


READERS = {
    bad.__name__: Reader(write, "x.json", functools.partial(read, badly=bad))
    for bad in (
        *(say, forget_the_name, forget_the_cure, stumble, blame_the_system),
        *(crash, leave, spin, sleep, take_memory, take_all_memory, accept),
    )
}
