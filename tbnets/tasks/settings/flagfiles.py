"""Files of flags, found by a path or by the name of a configuration."""

import difflib
import pathlib
import re

from tbnets.checked_files import CheckedFile
from tbnets.errors import InputError, MissingFileError
from tbnets.shipped import shipped_folder

_NAMES = ("--flagfile", "-flagfile")
_COMMENTS = ("#", "//")
_HAS_BLANKS = re.compile(r"-[^=\s]*\s")
"""How a line begins whose flag has blanks behind its name."""


class FileWord(str):
    """A word of a command line that stands in a flagfile.

    Attributes:
        place: where, `FILE:LINE: `.
    """

    place = ""


def folder():
    """Returns the folder of the configurations that come with the package."""
    return shipped_folder("configs")


def find(name, place=""):
    """Returns the file that is meant: a path, or a configuration by name.

    Args:
        name: a path, from the current folder; where there is none,
            `quickstart`, `quickstart.flags` and `configs/quickstart.flags` are
            the same configuration; `features/lite0.flags` is one in a folder.
        place: where the name stands, for the message.

    Raises:
        FileNotFoundError: it is neither; names the nearest ones.
    """
    path = pathlib.Path(name).expanduser()
    if path.is_file():
        return path
    wanted, known = _stem(path), _known()
    if wanted in known:
        return known[wanted]
    raise MissingFileError(
        f"{place}`--flagfile` must be a file of flags, or the name of a "
        f"configuration. Received: --flagfile={name}. "
        f"{_nearest(wanted, known)}Check it; see --help."
    )


def find_recipe(flag, name, verb, place):
    """Returns the recipe that is meant: a path, or one that comes along.

    Args:
        flag: that names it.
        name: ends in `.flags`; `features/tfidf.flags` comes along.
        verb: whose flags it must have.
        place: path that the name has where it is that of a file.

    Raises:
        FileNotFoundError: it is neither; names the nearest ones.
    """
    if place.is_file():
        return place
    wanted, known = _stem(name), _known("features")
    if wanted in known:
        return known[wanted]
    raise MissingFileError(
        f"`--{flag}` must name a recipe, a flagfile of tools/{verb}.py. "
        f"Received: --{flag}={name}, looked for as {place}. "
        f"{_nearest(wanted, known, '.flags')}docs/recipes.md tells more."
    )


def _stem(name):
    return str(name).removeprefix("configs/").removesuffix(".flags")


def _known(below=""):
    """Returns name -> file of the configurations that come along."""
    return {
        path.relative_to(folder()).with_suffix("").as_posix(): path
        for path in sorted((folder() / below).rglob("*.flags"))
    }


def _nearest(wanted, known, suffix=""):
    """Returns a question after the names that are near; "" for none."""
    near = difflib.get_close_matches(wanted, known)
    near = near or difflib.get_close_matches(pathlib.Path(wanted).name, known)
    found = " or ".join(f"{name}{suffix}" for name in near)
    return f"Did you mean {found}? " if found else ""


def expand(words, within=()):
    """Returns words of a command line with the flags of their flagfiles.

    Args:
        words: those behind the program's name.
        within: flagfiles that these stand in.

    Returns:
        list of strings, those of flagfiles `FileWord`s.

    Raises:
        ValueError, FileNotFoundError: a flagfile is not there, is no text, or
            names itself.
    """
    words, found = list(words), []
    while words:
        word = words.pop(0)
        if word == "--":
            return [*found, word, *words]
        flag, equals, name = word.partition("=")
        if flag not in _NAMES:
            found.append(word)
            continue
        if not equals:
            name = words.pop(0) if words else ""
        found += _read(find(name, place_of(word)), within)
    return found


def place_of(word):
    """Returns where a word stands, `FILE:LINE: `; "" if in no flagfile."""
    return word.place if isinstance(word, FileWord) else ""


def _read(path, within):
    """Returns the flags of a file, and of those that it names."""
    if path in within:
        raise InputError(
            f"{path}: expected a flagfile that does not name itself; found "
            f"--flagfile={path} in {within[-1]}. Take that line away."
        )
    file, lines = CheckedFile(path), []
    for place, line in enumerate(file.lines()[0], 1):
        line = FileWord(line.strip())
        line.place = f"{path}:{place}: "
        if not line or line.startswith(_COMMENTS):
            continue
        if _HAS_BLANKS.match(line):
            advice = "Write no blanks before the value."
            file.refuse("--flag=value", line, place, advice)
        lines.append(line)
    return expand(lines, (*within, path))
