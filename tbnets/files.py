"""Writing files so that nothing already saved is lost."""

import json
import os
import pathlib
import unicodedata

from tbnets.errors import FileError

BESIDE_SUFFIX = ".tbnets"
"""How the folder is called that `folder_beside` returns."""


def write_atomically(path, write):
    """Writes a file so that `path` holds the old or the new one, never half.

    The new content is written to `NAME.partial` beside it, flushed to the
    disk and renamed. A killed process may leave that file; the next write
    takes its place.

    Args:
        path: file to write; its folder must exist.
        write: function of an open binary file.

    Raises:
        OSError: naming `path`, when it can not be written (disk full, no
            permission). What was at `path` is still there.
    """
    path = pathlib.Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        kept = "what it held before is unharmed" if path.exists() else "no file"
        raise FileError(
            error.errno,
            f"{path} could not be written: {error.strerror}; {kept}. "
            "Free some space or choose another folder",
        ) from error


def write_json(path, value):
    """Writes `value` as indented JSON, atomically."""
    text = json.dumps(value, indent=2, sort_keys=True) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


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
