"""Reads the values of flags from a command line, with absl."""

import copy
import difflib
import functools
import pathlib
import re

from absl import flags as absl_flags

from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, shipped_folder
from tbnets.tasks.settings.flag import REQUIRED, check_limits, flags_of, written

_NAMES = ("--flagfile", "-flagfile")
_COMMENTS = ("#", "//")
_HAS_BLANKS = re.compile(r"-[^=\s]*\s")
"""Matches a line with a space after the name of its flag."""


class FileWord(str):
    """A word that was read from a flag file; its `place` is `FILE:LINE: `."""

    place = ""


def configs_folder():
    """Returns the folder of the configurations shipped with the package."""
    return shipped_folder("configs")


def find_flagfile(name, place="", flag="flagfile", path=None):
    """Finds a flag file by its path, or by the name of a shipped configuration.

    For example, `quickstart` and `configs/quickstart.flags` are equivalent.
    Error messages begin with `place` and name the `flag`. `path` is the place
    where a recipe named `name` is looked for first.
    """
    path = path or pathlib.Path(name).expanduser()
    if path.is_file():
        return path
    folder = configs_folder()
    known = {
        each.relative_to(folder).with_suffix("").as_posix(): each
        for each in sorted(folder.rglob("*.flags"))
    }
    stem = str(name).removeprefix("configs/").removesuffix(".flags")
    if stem in known:
        return known[stem]
    near = difflib.get_close_matches(stem, known)
    near = near or difflib.get_close_matches(pathlib.Path(stem).name, known)
    raise MissingFileError(
        f"{place}`--{flag}` must be a file of flags or the name of a "
        f"configuration. Received: --{flag}={name}, looked for at {path}. "
        + (f"Did you mean {' or '.join(near)}? " if near else "")
        + "Check the name."
    )


def expand(words, within=()):
    """Replaces each --flagfile in a command line with the flags in the file.

    Words from a flag file are `FileWord`s. `within` lists the paths of the flag
    files that contain `words`.
    """
    words, expanded = list(words), []
    while words:
        word = words.pop(0)
        if word == "--":
            return [*expanded, word, *words]
        flag, equals, name = word.partition("=")
        if flag not in _NAMES:
            expanded.append(word)
            continue
        if not equals:
            name = words.pop(0) if words else ""
        expanded += _read(find_flagfile(name, flag_place(word)), within)
    return expanded


def flag_place(word):
    """Returns `FILE:LINE: ` for a word from a flag file, otherwise ""."""
    return word.place if isinstance(word, FileWord) else ""


def _read(path, within):
    if path in within:
        raise InputError(
            f"{path}: expected a flagfile that does not include itself; found "
            f"--flagfile={path} in {within[-1]}. Remove that line."
        )
    file, lines = CheckedFile(path), []
    for place, line in enumerate(file.lines()[0], 1):
        line = FileWord(line.strip())
        line.place = f"{path}:{place}: "
        if not line or line.startswith(_COMMENTS):
            continue
        if _HAS_BLANKS.match(line):
            advice = "Remove the spaces before the value."
            file.refuse("--flag=value", line, place, advice)
        lines.append(line)
    return expand(lines, (*within, path))


_NUMBERS = {"integers": int, "floats": float}
_DEFINE = {
    "string": absl_flags.DEFINE_string,
    "integer": absl_flags.DEFINE_integer,
    "float": absl_flags.DEFINE_float,
    "bool": absl_flags.DEFINE_bool,
    "repeated": absl_flags.DEFINE_multi_string,
    **dict.fromkeys(("list", *_NUMBERS), absl_flags.DEFINE_list),
}


class CommandLine:
    """The values of flags on a command line.

    Args:
        words: words after the program's name.
        flags: the known `Flag`s. A flag of kind "words" receives all words that
            are not flags.

    Attributes:
        values: dict from the name of each flag to its value or default.
        set_flags: names of the flags that are set, also in flag files.
        typed: names of the flags on the command line itself.
    """

    def __init__(self, words, flags):
        parser = absl_flags.FlagValues()
        named = [flag for flag in flags if flag.kind != "words"]
        for flag in named:
            define = _DEFINE[flag.kind]
            if flag.choices:
                define = functools.partial(absl_flags.DEFINE, _Choice(flag))
            define(flag.name, None, flag.help, flag_values=parser)
        expanded = expand(words)
        try:
            unnamed = parser(["", *expanded])[1:]
        except absl_flags.Error as error:
            raise InputError(_message(error, expanded, parser)) from error
        self.set_flags = {
            flag.name for flag in named if parser[flag.name].present
        }
        self.typed = _typed(words, named)
        self.values = {f.name: _value(f, parser[f.name]) for f in named}
        extra = {flag.name: unnamed for flag in flags if flag.kind == "words"}
        if unnamed and not extra:
            raise InputError(
                f"{flag_place(unnamed[0])}The command line must contain only "
                f"flags. Received: {' '.join(unnamed)}. Write --flag=value."
            )
        self.values |= extra

    def take(self, group):
        """Creates a group of flags from parsed values; checks their limits."""
        names = [flag.name for flag in flags_of(group)]
        values = group(**{name: self.values[name] for name in names})
        check_limits(values)
        return values


class _Choice(absl_flags.EnumParser):
    """Parses a flag that has `choices` and may also accept any preset."""

    def __init__(self, flag):
        super().__init__(flag.choices)
        self.enum_values = flag.choices  # absl makes it a list.


def _message(error, words, parser):
    place = ""
    for word in words:
        if isinstance(word, FileWord) and not place:
            try:
                parser(["", word])
            except absl_flags.Error as wrong:
                error, place = wrong, word.place
    text = place + " ".join(str(error).split()).rstrip(".")
    if match := re.fullmatch(r"(.*)Missing value for flag (--\w+)", text):
        return (
            f"{match[1]}`{match[2]}` must have a value. Received: no value. "
            f"Write {match[2]}=VALUE. See --help."
        )
    return f"{text}. See --help."


def _typed(words, flags):
    dashed = [word for word in words if word.startswith("-")]
    names = {word.lstrip("-").partition("=")[0] for word in dashed}
    return {f.name for f in flags if names & {f.name, f"no{f.name}"}}


def _default(flag):
    if flag.default is REQUIRED:
        raise InputError(
            f"--{flag.name}",
            "be set",
            "no value",
            f"Write --{flag.name}=VALUE. VALUE: {flag.help} See --help.",
        )
    return copy.copy(flag.default)


def _value(flag, parsed):
    if not parsed.present:
        return _default(flag)
    if flag.kind not in _NUMBERS:
        return parsed.value
    try:
        return [_NUMBERS[flag.kind](item) for item in parsed.value]
    except ValueError as error:
        raise InputError(
            f"--{flag.name}",
            f"be {flag.kind} separated by commas",
            f"--{flag.name}={written(parsed.value)}",
            "Correct the numbers. In a flagfile, write comments on separate "
            "lines.",
        ) from error
