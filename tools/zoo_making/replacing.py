"""Writing a folder that takes the place of one that stands there."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import sys

from tbnets.files import new_folder


@contextlib.contextmanager
def replaced_folder(path):
    """Gives a folder to write, which takes the place of `path` at the end.

    What stands there does so until all is written; where the block raises or
    is killed, it is as it was.

    Args:
        path: folder; the one around it must exist.

    Raises:
        OSError: it can not be written.
    """
    path = pathlib.Path(path)
    new, before = (path.with_name(f".{path.name}.{n}") for n in ("new", "old"))
    if before.is_dir():  # A kill between two renames.
        if path.exists():
            _remove(before)
        else:
            os.rename(before, path)
    _remove(new)
    with new_folder(new) as folder:
        yield folder
    if not path.exists():
        os.rename(new, path)
    elif _exchange(new, path):
        _remove(new)
    else:
        os.rename(path, before)
        os.rename(new, path)
        _remove(before)


def _remove(path):
    shutil.rmtree(path, ignore_errors=True)


def _exchange(one, other):
    """Exchanges the names of two folders in one step.

    Returns:
        Whether the system could.
    """
    name = "renamex_np" if sys.platform == "darwin" else "renameat2"
    call = getattr(ctypes.CDLL(None), name, None)
    if call is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP.
    places = [os.fsencode(one), os.fsencode(other)]
    if sys.platform != "darwin":
        places = [here, places[0], here, places[1]]
    return call(*places, exchange) == 0
