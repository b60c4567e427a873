"""Ends a tool by SIGKILL right before one of its changes to a folder.

Python tells of each file that it opens, renames, makes or removes before it
does so. The changes below one folder are counted here, so every place where
a tool can be cut between two of them is found and can be named: by its
number, or by a word of it, such as `rename last.npz`, and how often that came
before.
"""

import os
import runpy
import signal
import sys

_CODE = "import sys; from tests.fuzz import cut; cut.run(*sys.argv[1:])"
_CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EXCHANGES = ("renameat2", "renamex_np")


def command(folder, line, word="", number=0, log=os.devnull):
    """Returns what `fresh.start` takes to run a tool that is cut.

    Args:
        folder: changes below it count.
        line: the tool and its flags.
        word: part of a change, as in the log: `rename /.../last.npz`.
        number: the tool is killed before this change with that word, from 1;
            0: it is not.
        log: file that gets a line a change when the tool ends by itself.
    """
    return ["-c", _CODE, folder, word, number, log, *line]


def run(folder, word, number, log, *line):
    """Becomes the tool."""
    changes = []

    def count(event, arguments):
        change = _change(event, arguments)
        if change is None or not (
            change.startswith("exchange") or f" {folder}" in change
        ):
            return
        if word in change:
            changes.append(change)
            if len(changes) == int(number):
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    sys.argv = list(line)
    try:
        runpy.run_path(line[0], run_name="__main__")
    finally:
        lines = "".join(f"{change}\n" for change in changes)
        with open(log, "w", encoding="utf-8") as file:
            file.write(lines)


def _change(event, arguments):
    """Returns in words what is about to change; None for anything else."""
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        return f"open {os.fsdecode(path)}" if flags & _WRITING else None
    if event in _CHANGES:
        place = arguments[event == "os.rename"]
        return f"{event.removeprefix('os.')} {os.fsdecode(place)}"
    if event == "ctypes.dlsym" and arguments[1] in _EXCHANGES:
        return "exchange"
    return None
