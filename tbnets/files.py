"""Writing files and folders so that nothing already saved is lost.

What is written stands beside its place under a name of its own until it is
whole: `.NAME.` with twelve digits and `.partial`. The writer holds a lock on
it, so that the next write into the folder tells what a killed one left, and
removes that alone.
"""

import codecs
import contextlib
import dataclasses
import json
import os
import pathlib
import posixpath
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
except ImportError:  # Not on every system.
    fcntl = None

# Files that may be wrong: their problems, lines and JSON.
#
# Every reader of captions, lists and features goes through here, so that a bad
# row is always told the same way: file, line, what was expected, what was
# found and what to change.


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file, and where.

    Args:
        path: the file.
        line: 1-based line, or None where lines say nothing (arrays, and
            entries of a JSON file, whose message names the entry instead).
        message: what was expected, what was found and what to change.
    """

    path: str
    line: int | None
    message: str

    def __str__(self):
        """Returns `path:line: message`, as compilers and editors write it."""
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"


class ProblemError(InputError):
    """A problem of a file that nobody collects.

    Args:
        problem: the `Problem`; the message is what it looks like in print.
    """

    def __init__(self, problem):
        super().__init__(str(problem))
        self.problem = problem


class CheckedFile:
    """A file that is being read, and what happens with its bad rows.

    Args:
        path: the file.
        problems: a list that collects the problems, while reading goes on
            with the good rows; or None to raise `ProblemError`, which is a
            ValueError, at the first.
    """

    def __init__(self, path, problems=None):
        advice = "Give the name of a file."
        check_kind("path", path, (str, os.PathLike), advice)
        self.path = os.fspath(path)
        self.problems = problems

    def report(self, message, place=None):
        """Notes a problem, or raises it where nobody collects problems.

        Args:
            message: what was expected, what was found and what to change.
            place: 1-based line; or an entry in words, such as `images[3]`.
        """
        if isinstance(place, str):
            place, message = None, f"{place}: {message}"
        problem = Problem(self.path, place, message)
        if self.problems is None:
            raise ProblemError(problem)
        self.problems.append(problem)

    def refuse(self, wanted, found, place=None, advice=""):
        """Reports in the usual words what was expected, and what was found.

        Args:
            wanted: what was expected.
            found: the value that was found; it is shown short.
            place: as of `report`.
            advice: what to change, as a sentence.

        Returns:
            None, for what reads a value and has none.
        """
        text = f"expected {wanted}; found {shown(found)}. {advice}"
        self.report(text.rstrip(), place)

    def suspect(self, message, line):
        """Notes what may be a problem; warns where nobody collects them."""
        if self.problems is None:
            warnings.warn(str(Problem(self.path, line, message)), stacklevel=2)
        else:
            self.report(message, line)

    def read_bytes(self):
        """Returns the content of the file, or says that there is none."""
        require_file(self.path)
        with open(self.path, "rb") as stream:
            return stream.read()

    def _read_text(self):
        """Returns the same; in UTF-8 what a byte order mark calls UTF-16."""
        content = self.read_bytes()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            with contextlib.suppress(UnicodeDecodeError):  # It is reported.
                return content.decode("utf-16").encode()
        return content

    def lines(self):
        r"""Returns the lines and whether the last one ends with a newline.

        Only "\n" and "\r\n" end a line: captions may hold other characters
        that Python's `splitlines` takes for line ends. A line that is no
        UTF-8 is reported and keeps its place, its bad bytes shown as U+FFFD.
        """
        content = self._read_text().removeprefix(b"\xef\xbb\xbf")
        *rows, last = content.split(b"\n")
        rows += [last] if last else []
        return [
            self._decode(row.removesuffix(b"\r"), line)
            for line, row in enumerate(rows, 1)
        ], not last

    def _decode(self, row, line):
        try:
            return row.decode("utf-8")
        except UnicodeDecodeError as error:
            self.report(_undecodable(error), line)
            return row.decode("utf-8", errors="replace")

    def json(self):
        """Returns the parsed file, or None once a problem was collected."""
        content = self._read_text()
        try:
            return parse_json(content)
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self.report(_undecodable(error), line)
        except json.JSONDecodeError as error:
            self.report(_broken_json(error), error.lineno)
        except ValueError as error:
            self.report(f"expected JSON; {error}.")
        return None

    def json_rows(self, needed, strings=False):
        """Yields (line, object) of a file of JSON lines; reports what is none.

        Args:
            needed: names of what every object must have.
            strings: whether these must be strings.
        """
        rows, ends_well = self.lines()
        *most, last = map(repr, needed)
        kind = "the strings " * strings
        wanted = f"a JSON object with {kind}{', '.join(most)} and {last}"
        kinds = str if strings else object
        for line, text in enumerate(rows, 1):
            if not text.strip():
                continue
            try:
                row = parse_json(text)
            except ValueError as error:
                cut = line == len(rows) and not ends_well
                cut = cut and text.lstrip().startswith("{")
                advice = " The file looks truncated: copy it again." * cut
                self.refuse("a JSON object", text, line, f"{error}.{advice}")
                continue
            if isinstance(row, dict) and all(
                name in row and isinstance(row[name], kinds) for name in needed
            ):
                yield line, row
            else:
                self.refuse(wanted, row, line)

    def caption(self, value, place):
        """Returns a caption without outer blanks, or None if it is none."""
        if not isinstance(value, str):
            return self.refuse("a caption (a string)", value, place)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            advice = "It has half of a surrogate pair: write the file as UTF-8."
            return self.refuse("Unicode text", value, place, advice)
        return value.strip()

    def file_name(self, value, place=None):
        """Returns a file name that stays inside its folder, or None."""
        reason = _why_not_a_file_name(value)
        if not reason:
            return value
        wanted = "an image file name relative to the images folder"
        return self.refuse(wanted, value, place, f"It {reason}.")


def parse_json(text):
    """Parses JSON that comes from outside: a file, or a line of one.

    A key that stands twice in an object is refused, since nobody knows which
    of its values is meant; Python would take the last.

    Args:
        text: str, or bytes of UTF-8.

    Returns:
        The value.

    Raises:
        ValueError: it is no JSON; the message tells what is wrong.
    """
    if isinstance(text, bytes):
        text = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    try:
        return json.loads(text, object_pairs_hook=_as_object)
    except RecursionError as error:
        raise InputError("it must be nested less deeply") from error


def _as_object(pairs):
    """Returns a JSON object as a dict."""
    twice = first_twice(key for key, _ in pairs)
    if twice is not None:
        raise InputError(
            f"expected each key once in an object; found {shown(twice)} twice"
        )
    return dict(pairs)


def is_kind(value, kind):
    """Tells whether a value that was kept as JSON is what an annotation says.

    Args:
        value: of JSON.
        kind: such as `str`, `list[str]`, `dict[str, float]` or `int | None`.
            An int counts something, from 0; it is a float too.
    """
    whole, inner = typing.get_origin(kind), typing.get_args(kind)
    if whole is types.UnionType:
        return any(is_kind(value, one) for one in inner)
    if whole is not None:
        parts = value.values() if type(value) is dict else value
        return type(value) is whole and all(
            is_kind(one, inner[-1]) for one in parts
        )
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind and (kind is not int or value >= 0)


def shown(value):
    """Returns a value as an error message shows it: short, on one line."""
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:60]}...{text[-6:]}"


def listed(names, most=5):
    """Returns the first of some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def require_file(path, argument="path"):
    """Raises FileNotFoundError or IsADirectoryError if there is no file.

    Args:
        path: the file.
        argument: how the message calls it.
    """
    if os.path.isdir(path):
        raise NotAFileError(
            f"`{argument}` must be a file. Received: the folder {path}. Name a "
            "file."
        )
    if not os.path.exists(path):
        folder = os.path.dirname(path) or "."
        beside = f"There is no folder {folder} either: check the path."
        if os.path.isdir(folder):
            names = sorted(os.listdir(folder))[:8]
            beside = f"{folder} holds {', '.join(names) or 'nothing'}."
        raise MissingFileError(
            f"`{argument}` must be an existing file. Received: {argument}="
            f"{path}. {beside}"
        )


def _undecodable(error):
    byte = f"0x{error.object[error.start]:02x}"
    advice = "Convert the file: `iconv -f latin1 -t utf-8`."
    return f"expected UTF-8 text; found the byte {byte}. {advice}"


def _broken_json(error):
    end = error.doc.rstrip()
    if not end:
        return "expected JSON; found an empty file."
    message = f"expected JSON; found at column {error.colno}: {error.msg}."
    cut = error.pos >= len(end) or end[-1] not in "}]"
    cut = cut and end.lstrip()[0] in "{["  # Else it is of another format.
    if cut and error.msg != "Extra data":
        end = shown(end[-30:])
        message += f" It ends with {end}, looks truncated: copy it again."
    return message


def _why_not_a_file_name(value):
    if not isinstance(value, str):
        return "is not a string"
    parts = re.split(r"[/\\]", value)
    inside = posixpath.normpath("/".join(parts))
    reasons = {
        "is empty": not value.strip(),
        "holds a NUL character": "\0" in value,
        "is absolute": not parts[0] or re.match(r"[A-Za-z]:$", parts[0]),
        "leaves that folder": inside.split("/")[0] == "..",
        "holds '..': write the name without it": ".." in parts,
    }
    return next((why for why, holds in reasons.items() if holds), "")


# Folders that come with the package: the zoo, the configurations.


def shipped_folder(name):
    """Returns a folder of the repository: in the wheel, or beside the package.

    Args:
        name: `model_zoo` or `configs`.

    Returns:
        `pathlib.Path`; where neither is there, the place beside the package.
    """
    package = pathlib.Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def try_lock(descriptor):
    """Locks an open file or folder until it is closed.

    Args:
        descriptor: of the file or folder; two that were opened one by one
            exclude each other in one process, too.

    Returns:
        True where the lock is held now, False where another holds it, None
        where there are no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # The file system has none.
        return None
    return True


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
    it is made with the same rights.

    Args:
        folder: the user's folder.
        place: what `folder_beside` returned.

    Raises:
        OSError: it can not be made.
    """
    is_beside = place == folder_beside(folder)
    mode = stat.S_IMODE(os.stat(folder).st_mode) if is_beside else 0o777
    place.mkdir(mode, parents=True, exist_ok=True)


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
