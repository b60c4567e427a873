"""What the harness must know of a reader of files."""

import shutil
from collections.abc import Callable
from typing import NamedTuple

from tbnets.errors import UserError


class Reader(NamedTuple):
    """A way of reading, a valid file for it, and which file is broken.

    Args:
        write: function of a folder; writes what is valid into it.
        file: path in the folder of the file that is broken.
        read: function of the folder; reads to the end and returns all of it.
        part: None, or function of the valid file's content -> the part of it
            that is broken, where what is around it would hide the damage.
        whole: function of (the valid content, a broken part) -> a file's
            content with that part in its place.
        names: what may stand for the file in a message beside its folder:
            the flags or arguments by which the user named it.
        in_suite: how many mutations of it the tests read; 0 leaves it to
            tools/fuzz.py.
    """

    write: Callable
    file: str
    read: Callable
    part: Callable | None = None
    whole: Callable | None = None
    names: tuple = ()
    in_suite: int = 40


def write_once(write, folder):
    """Writes the first time, and from then on copies what was written.

    Args:
        write: function of a folder, slow.
        folder: `pathlib.Path`; what is kept stands beside it.
    """
    kept = folder.parent / f"{write.__name__}.kept"
    if not kept.exists():
        kept.mkdir()
        write(kept)
    shutil.copytree(kept, folder, dirs_exist_ok=True)


def both_ways(read):
    """Reads as a tool does that lists problems, then as a training does.

    Args:
        read: function of a list of problems, or None.

    Returns:
        What `read(None)` returns.
    """
    try:
        read([])
    except UserError:
        pass  # A training says the same.
    return read(None)
