"""Reads and checks files, and writes files and folders atomically.

A file is first written to a locked `.NAME.<12 hex digits>.partial` file in the
target's folder. The next write into the folder removes unlocked `.partial`
files, which remain if a process is killed.
"""

import codecs
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import stat
import types
import typing
import unicodedata
import uuid
import warnings

from tbnets.checks import first_twice
from tbnets.errors import (
    FileError,
    InputError,
    MissingFileError,
    NotAFileError,
    check_kind,
)

try:
    import fcntl
except ImportError:  # Windows has no fcntl.
    fcntl = None

# Readers of captions, lists and features report bad rows through these classes,
# so that every message contains the file, the line, the expected and the
# received value, and advice.


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem in a file.

    Args:
        path: path of the file.
        line: line number, or None if unknown.
        message: what was expected, what was found and what to change.
        is_doubt: whether the file was still read as a whole.
    """

    path: str
    line: int | None
    message: str
    is_doubt: bool = False

    def raise_or_add_to(self, problems):
        """Adds the problem to a list; if None, raises it, or warns of a doubt.

        `problems` is the list or None.
        """
        if problems is not None:
            problems.append(self)
        elif self.is_doubt:
            warnings.warn(str(self), stacklevel=3)
        else:
            raise ProblemError(self)

    def __str__(self):
        """Returns `path:line: message`, the format that compilers print."""
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"


class ProblemError(InputError):
    """A `Problem`, raised if problems are not collected in a list."""

    def __init__(self, problem):
        super().__init__(str(problem))
        self.problem = problem


MOST_LETTERS = 1 << 16
"""Maximum length of a caption."""


class CheckedFile:
    """A file to read. Its problems are either collected or raised.

    Args:
        path: path of the file.
        problems: list to which problems are added, while valid rows are still
            read. If None, the first problem raises `ProblemError`, a
            ValueError.
    """

    def __init__(self, path, problems=None):
        check_kind("path", path, str, os.PathLike)
        self.path = os.fspath(path)
        self.problems = problems

    def report(self, message, place=None):
        """Adds a problem to `problems`, or raises it if `problems` is None.

        `place` is a line number, starting at 1, or the name of an entry, such
        as `images[3]`.
        """
        if isinstance(place, str):
            place, message = None, f"{place}: {message}"
        Problem(self.path, place, message).raise_or_add_to(self.problems)

    def refuse(self, expected, received, place=None, advice=""):
        """Reports that the file contains `received` instead of `expected`."""
        text = f"expected {expected}; found {shown(received)}. {advice}"
        self.report(text.rstrip(), place)

    def suspect(self, message, line):
        """Reports a possible problem, or warns if `problems` is None."""
        problem = Problem(self.path, line, message, is_doubt=True)
        problem.raise_or_add_to(self.problems)

    def read_bytes(self):
        """Returns the content of the file."""
        require_file(self.path)
        with open(self.path, "rb") as stream:
            return stream.read()

    def _read_text(self):
        """Returns the content of the file; UTF-16 is converted to UTF-8."""
        content = self.read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            try:
                return content.decode("utf-16").encode()
            except UnicodeDecodeError:
                self.report("expected UTF-16 text; found half a letter.", 1)
        return content

    def lines(self, may_be_cp1252=False):
        r"""Returns the lines, and whether the last line ends with a newline.

        Only "\n" and "\r\n" end a line, because captions may contain further
        characters at which `str.splitlines` splits. Lines that are not UTF-8
        are reported: as a doubt if the file `may_be_cp1252`, as tables that
        people write, otherwise as a problem.
        """
        content = self._read_text().removeprefix(b"\xef\xbb\xbf")
        if b"\0" in content:
            self.report("expected text; found zero bytes. Use a text file.", 1)
        *rows, last = content.split(b"\n")
        rows += [last] if last else []
        lines, in_cp1252 = [], []
        for line, row in enumerate(rows, 1):
            row = row.removesuffix(b"\r")
            try:
                lines.append(row.decode("utf-8"))
            except UnicodeDecodeError as error:
                lines.append(row.decode("cp1252", errors="replace"))
                if may_be_cp1252:
                    in_cp1252.append(line)
                else:
                    self.report(_undecodable(error), line)
        if in_cp1252:
            first = in_cp1252[0]
            self.suspect(
                f"expected UTF-8 text; read {len(in_cp1252)} lines as cp1252, "
                f"in which Excel saves CSV files, such as "
                f"{shown(lines[first - 1])}. If letters are wrong, convert the "
                "file to UTF-8.",
                first,
            )
        return lines, not last

    def json(self):
        """Parses the file as JSON; returns None if a problem was collected."""
        content = self._read_text()
        try:
            return parse_json(content)
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self.report(_undecodable(error), line)
        except json.JSONDecodeError as error:
            found = f"{error.msg} at column {error.colno}"
            self.report(f"expected JSON; found {found}.", error.lineno)
        except ValueError as error:
            self.report(f"expected JSON; {error}.")
        return None

    def json_rows(self, keys, strings=False):
        """Yields (line number, object) for each row of a JSON Lines file.

        Skips and reports rows that are not objects with all `keys`. If
        `strings` is true, the values of these keys must be strings.
        """
        rows, _ = self.lines()
        kinds = str if strings else object
        expected = "a JSON object"
        if keys:
            kind = "the strings " * strings
            expected += f" with {kind}{', '.join(map(repr, keys))}"
        for line, text in enumerate(rows, 1):
            if not text.strip():
                continue
            try:
                row = parse_json(text)
            except ValueError as error:
                self.refuse("a JSON object", text, line, f"{error}.")
                continue
            if isinstance(row, dict) and all(
                name in row and isinstance(row[name], kinds) for name in keys
            ):
                yield line, row
            else:
                self.refuse(expected, row, line)

    def caption(self, value, place):
        """Returns a stripped caption, or None after reporting a bad value."""
        if not isinstance(value, str):
            return self.refuse("a caption (a string)", value, place)
        if len(value) > MOST_LETTERS:  # Copies would exhaust the memory.
            expected = f"a caption of at most {MOST_LETTERS} letters"
            return self.refuse(expected, value[:MOST_LETTERS], place)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            advice = "It has an unpaired surrogate. Save the file as UTF-8."
            return self.refuse("Unicode text", value, place, advice)
        return value.strip()

    def file_name(self, value, place=None):
        """Returns `value` if it is a relative path inside the images folder.

        Otherwise, reports the value and returns None.
        """
        if _is_inside_folder(value):
            return value
        expected = "an image file name relative to the images folder"
        return self.refuse(expected, value, place)


def parse_json(text):
    """Parses a JSON text, given as str or as UTF-8 bytes.

    Invalid JSON raises a ValueError. So does a repeated key, for which Python's
    parser would silently use the last value.
    """
    if isinstance(text, bytes):
        text = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    try:
        return json.loads(text, object_pairs_hook=_as_object)
    except RecursionError as error:
        raise InputError("it is nested too deeply") from error


def _as_object(pairs):
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = shown(first_twice(key for key, _ in pairs))
        raise InputError(
            f"expected each key once in an object; found {twice} twice"
        )
    return content


def is_kind(value, kind):
    """Returns whether a JSON value has a type such as `dict[str, float]`.

    Integers are counts, so they must not be negative. An integer is also
    accepted as a float.
    """
    whole, inner = typing.get_origin(kind), typing.get_args(kind)
    if whole is types.UnionType:
        return any(is_kind(value, item) for item in inner)
    if whole is not None:
        parts = value.values() if type(value) is dict else value
        return type(value) is whole and all(
            is_kind(item, inner[-1]) for item in parts
        )
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind and (kind is not int or value >= 0)


def shown(value):
    """Returns the `repr` of a value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:60]}...{text[-6:]}"


def listed(names, most=5):
    """Joins the first `most` names, and adds the number of remaining names."""
    n = len(names) - most
    return ", ".join(names[:most]) + (f" and {n} more" if n > 0 else "")


def require_file(path, argument="path"):
    """Raises FileNotFoundError or IsADirectoryError if `path` is not a file."""
    if os.path.isdir(path):
        raise NotAFileError(argument, "be a file", f"the folder {path}")
    if not os.path.exists(path):
        raise MissingFileError(
            argument, "be an existing file", f"{argument}={path}"
        )


def _undecodable(error):
    byte = f"0x{error.object[error.start]:02x}"
    advice = "Convert the file, for example: `iconv -f cp1252 -t utf-8`."
    return f"expected UTF-8 text; found the byte {byte}. {advice}"


def _is_inside_folder(name):
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        return False
    parts = re.split(r"[/\\]", name)
    is_absolute = not parts[0] or re.fullmatch(r"[A-Za-z]:", parts[0])
    return not is_absolute and ".." not in parts


def shipped_folder(name):
    """Returns the path of a folder shipped with tbnets, such as `model_zoo`."""
    package = pathlib.Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def try_lock(descriptor):
    """Locks an open file or folder until it is closed, without waiting.

    Only one open descriptor can hold the lock, even in one process. Returns
    whether this call locked the file, or None if the system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # The file system has no locks.
        return None
    return True


BESIDE_SUFFIX = ".tbnets"
"""Suffix of the default folder of `folder_beside`."""
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.partial", re.DOTALL)


def is_partial(name):
    """Returns whether `name` is the temporary name of an unfinished file."""
    return _PARTIAL.fullmatch(name) is not None


def remove_abandoned(folder):
    """Removes the unfinished files of killed processes from a folder."""
    with contextlib.suppress(OSError):  # A file that remains only uses space.
        for name in filter(is_partial, os.listdir(folder)):
            _remove_if_abandoned(pathlib.Path(folder, name))


def _remove_if_abandoned(path):
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        if try_lock(descriptor):
            _remove(path)


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _partial(path, make):
    while True:
        name = f".{path.name}.{uuid.uuid4().hex[-12:]}.partial"
        partial = path.with_name(name)
        make(partial)
        with contextlib.ExitStack() as stack:
            descriptor = os.open(partial, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            # Before the lock, another process may have removed the file.
            if try_lock(descriptor) is not False and partial.exists():
                stack.callback(_remove, partial)
                yield partial
                return


def write_atomically(path, write):
    """Creates a file, or replaces its content atomically.

    The new content is written to a temporary file in its folder, which is
    flushed to disk and renamed to `path`. The folder must exist. If an OSError
    is raised, `path` is unchanged. Devices such as /dev/null are written
    directly.

    `write(file)` is called with the open binary file.
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
        message = f"{path} could not be written: {error.strerror}"
        raise FileError(error.errno, message) from error


def write_png(path, picture, **options):
    """Writes a PIL image as a PNG file; creates its folder if it is missing.

    `options` are those of the image's `save`.
    """
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: picture.save(file, "PNG", **options))


def write_json(path, value):
    """Writes a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_text(path, text):
    """Writes text as UTF-8, atomically."""
    write_atomically(path, lambda file: file.write(text.encode()))


@contextlib.contextmanager
def new_folder(path):
    """Yields a temporary folder, and renames it to `path` after the block.

    If the block raises or the process is killed, `path` is not created. The
    parent folder of `path` must exist. If `path` exists, OSError is raised.

    Example:
        with new_folder("models/dogs") as folder:
            (folder / "README.md").write_text("...")
    """
    path = pathlib.Path(path)
    remove_abandoned(path.parent)
    with _partial(path, pathlib.Path.mkdir) as partial:
        yield partial
        os.rename(partial, path)


def folder_beside(folder, chosen=None):
    """Returns the folder for results that are computed from a user's folder.

    This is `chosen` or, if that is None, a folder next to `folder`, such as
    `photos.tbnets` for `photos`.
    """
    if chosen:
        return pathlib.Path(chosen)
    folder = pathlib.Path(os.path.abspath(folder))  # Also names "photos/..".
    return folder.parent / (folder.name + BESIDE_SUFFIX)


def make_folder_of(folder, place):
    """Creates the folder `place` for results that are computed from `folder`.

    If `place` is the default path of `folder_beside`, the new folder has the
    permissions of `folder`, so that users who cannot read `folder` cannot read
    the results.
    """
    is_beside = place == folder_beside(folder)
    mode = stat.S_IMODE(os.stat(folder).st_mode) if is_beside else 0o777
    if os.path.isfile(folder):  # An archive: who reads it may open the folder.
        mode |= 0o300 | (mode >> 2 & 0o111)
    place.mkdir(mode, parents=True, exist_ok=True)


def readable(name):
    r"""Returns a file name as printable text on one line.

    Control characters, line breaks and undecodable bytes become U+FFFD.

    Example:
        readable("a\nb.jpg")  # "a\ufffdb.jpg"
    """
    hidden = ("Cc", "Cs", "Zl", "Zp")
    return "".join(
        "\ufffd" if unicodedata.category(letter) in hidden else letter
        for letter in name
    )


def can_be_written(folder):
    """Returns whether a folder is writable, or can be created.

    Returns False for a read-only folder, even for root.
    """
    path = pathlib.Path(folder).absolute()
    nearest = next(x for x in (path, *path.parents) if x.exists())
    may = nearest.is_dir() and nearest.stat().st_mode & 0o222
    return bool(may) and os.access(nearest, os.W_OK | os.X_OK)
