"""Writing files and folders so that nothing already saved is lost.

What is written stands beside its place under a name of its own until it is
whole: `.NAME.` with twelve digits and `.partial`. The writer holds a lock on
it, so that the next write into the folder tells what a killed one left, and
removes that alone.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import stat
import unicodedata
import uuid

from tbnets.errors import FileError
from tbnets.locks import try_lock

BESIDE_SUFFIX = ".tbnets"
"""How the folder is called that `folder_beside` returns."""
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.partial", re.DOTALL)


def is_partial(name):
    """Tells whether a name is that of something not yet written whole."""
    return _PARTIAL.fullmatch(name) is not None


def remove_abandoned(folder):
    """Removes from a folder what killed processes have left half written."""
    with contextlib.suppress(OSError):  # It is a matter of space alone.
        for name in filter(is_partial, os.listdir(folder)):
            _remove_if_abandoned(pathlib.Path(folder, name))


def _remove_if_abandoned(path):
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        if try_lock(descriptor):
            _remove(path)


def _remove(path):
    """Removes a file or folder, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _partial(path, make):
    """Makes what becomes `path`, under a name and a lock of its own.

    Args:
        path: `pathlib.Path`.
        make: function of a path -> None; makes an empty file or folder.
    """
    while True:
        name = f".{path.name}.{uuid.uuid4().hex[-12:]}.partial"
        partial = path.with_name(name)
        make(partial)
        with contextlib.ExitStack() as stack:
            descriptor = os.open(partial, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            # Another process may take it for abandoned until it is locked.
            if try_lock(descriptor) is not False and partial.exists():
                stack.callback(_remove, partial)
                yield partial
                return


def write_atomically(path, write):
    """Writes a file so that `path` holds the old or the new one, never half.

    The new content is written beside it, flushed to the disk and renamed;
    what is there and no file, such as /dev/null or a pipe, is written to.

    Args:
        path: file to write; its folder must exist.
        write: function of an open binary file.

    Raises:
        OSError: naming `path`, when it can not be written (disk full, no
            permission). What was at `path` is still there.
    """
    path = pathlib.Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        with open(path, "wb") as file:
            write(file)
        return
    remove_abandoned(path.parent)
    try:
        with _partial(path, lambda new: new.touch(exist_ok=False)) as partial:
            with open(partial, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
    except OSError as error:
        kept = "what it held before is unharmed" if path.exists() else "no file"
        raise FileError(
            error.errno,
            f"{path} could not be written: {error.strerror}; {kept}. "
            "Free some space or choose another folder",
        ) from error


def write_json(path, value):
    """Writes `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_text(path, text):
    """Writes text as UTF-8, atomically."""
    write_atomically(path, lambda file: file.write(text.encode()))


@contextlib.contextmanager
def new_folder(path):
    """Gives a folder to write, which becomes `path` once all is written.

    Where the block raises or is killed, `path` is as it was.

    Args:
        path: folder that appears at the end; the one around it must exist.

    Raises:
        OSError: something stands there, or it can not be written.

    Example:
        with new_folder("models/dogs") as folder:
            (folder / "README.md").write_text("...")
    """
    path = pathlib.Path(path)
    remove_abandoned(path.parent)
    with _partial(path, pathlib.Path.mkdir) as partial:
        yield partial
        os.rename(partial, path)


def folder_beside(folder, given=None):
    """Returns where that is kept which was computed from a folder's files.

    Nothing is written among the user's own files: what belongs to `photos`
    stands in `photos.tbnets` beside it, or where the user says.

    Args:
        folder: the user's folder.
        given: folder to keep it in instead; None or "" for the one beside.

    Returns:
        `pathlib.Path`; nothing is created.
    """
    if given:
        return pathlib.Path(given)
    folder = pathlib.Path(os.path.abspath(folder))  # "photos/.." has a name.
    return folder.parent / (folder.name + BESIDE_SUFFIX)


def make_folder_of(folder, place):
    """Makes the folder that keeps what was computed from a folder's files.

    Who may not look into `folder` may not look into that beside it either:
    it gets the same group and the same rights, each time. A folder that the
    user named has the rights that the user gives.

    Args:
        folder: the user's folder.
        place: what `folder_beside` returned.

    Raises:
        OSError: it can not be made.
    """
    place = pathlib.Path(place)
    if place != folder_beside(folder):
        place.mkdir(parents=True, exist_ok=True)
        return
    place.mkdir(mode=0o700, exist_ok=True)
    _take_rights(folder, place)


def _take_rights(folder, place):
    """Gives a folder group and rights of another; fewer where it can not."""
    wanted, present = os.stat(folder), os.stat(place)
    rights = stat.S_IMODE(wanted.st_mode)
    if wanted.st_gid != present.st_gid:
        try:
            os.chown(place, -1, wanted.st_gid)
        except OSError:  # Not of this group: then nobody of the own one.
            rights &= ~(stat.S_IRWXG | stat.S_ISGID)
    if rights != stat.S_IMODE(present.st_mode):
        with contextlib.suppress(PermissionError):  # It is another user's.
            os.chmod(place, rights)


def readable(name):
    r"""Returns a file's name as it can be printed, on one line.

    A name may hold line breaks, a terminal's escape sequences or bytes that
    are no text; each such character becomes U+FFFD.

    Example:
        readable("a\nb.jpg")  # "a\ufffdb.jpg"
    """
    hidden = ("Cc", "Cs", "Zl", "Zp")
    return "".join(
        "\ufffd" if unicodedata.category(letter) in hidden else letter
        for letter in name
    )
