"""Declares flags as dataclass fields with help, a default and limits.

A group of flags is a frozen dataclass with fields made by `flag`::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class BatchSettings:
        '''Batch settings.'''

        images_per_batch: Count = flag(500, "Images per batch.")

The annotation gives the type and the limits of the values. The docstring is the
title in --help. A reserved name has a trailing underscore: `from_` is --from.
"""

import copy
import dataclasses
import difflib
import functools
import math
import pathlib
import re
import typing
from typing import Annotated, NamedTuple

from absl import flags as absl_flags

from tbnets.checks import checked_number
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, shipped_folder

REQUIRED = dataclasses.MISSING
KINDS = {
    str: "string",
    int: "integer",
    float: "float",
    bool: "bool",
    list[str]: "list",
    list[int]: "integers",
    list[float]: "floats",
}
"""Maps the type of a field to the kind of its flag."""


PRESET = "hub:PRESET"
"""A choice of `OneOf` that accepts any Keras Hub preset."""


class OneOf(tuple):
    """A tuple of choices. It contains every preset if `PRESET` is a choice."""

    def __new__(cls, *values):
        """Stores the values."""
        return super().__new__(cls, values)

    def __contains__(self, value):
        text, is_in = str(value), super().__contains__
        return is_in(value) or (is_in(PRESET) and text.startswith("hub:"))


class Limits(NamedTuple):
    """The range of a flag's numbers.

    `above` excludes the minimum `least`, and `below` excludes the maximum
    `most`. `length` is the required length of a list.
    """

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False
    length: int | None = None


# Annotations of fields.
Count = Annotated[int, Limits(1)]
Counts = Annotated[list[int], Limits(1)]
Whole = Annotated[int, Limits(0)]
Amount = Annotated[float, Limits(0)]
Rate = Annotated[float, Limits(0, 1, below=True)]
Share = Annotated[float, Limits(0, 1)]
PLACE = "a file or folder on this machine"
Place = Annotated[str, PLACE]


class Flag(NamedTuple):
    """A flag: the name, type, default, help and limits of a field.

    Args:
        name: name without dashes.
        kind: string, integer, float, bool, list (of strings), integers, floats,
            repeated (may be set several times) or words (all words that are not
            flags).
        default: default value, `REQUIRED`, or None if the flag has no default
            or --loss determines it.
        help: meaning, unit and the papers' values.
        choices: allowed values for kind string, or () for any.
        is_place: whether the value is a file or folder on this machine.
        free: whether the flag may change when a run is resumed.
        argument: the argument of the library that the flag sets, if its name
            differs from the flag's.
        limits: range of the numbers.
    """

    name: str
    kind: str
    default: object
    help: str
    choices: tuple = ()
    is_place: bool = False
    free: bool = False
    argument: str = ""
    limits: Limits | None = None


def flag(default, help, **fields):
    """Declares a flag: returns a field for a group of flags.

    `fields` contains the `Flag` fields that the annotation does not determine.
    """
    meta = {"help": help, **fields}
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def flags_of(group):
    """Returns the `Flag`s of a group in the order of its fields."""
    return [_flag_of(field) for field in dataclasses.fields(group)]


def _flag_of(field):
    kind, default, extra = field.type, field.default, {}
    if type(None) in typing.get_args(kind):  # `X | None`
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is Annotated:
        kind, limits = typing.get_args(kind)
        extra = {"is_place": True} if limits == PLACE else {"limits": limits}
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    args = {"kind": KINDS[kind], "default": default, **extra, **field.metadata}
    return Flag(name=field.name.rstrip("_"), **args)


def written(value):
    """Returns a value as it is written on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_limits(group):
    """Raises an error if a number of a group is outside its limits."""
    for flag in flags_of(group):
        value = vars(group).get(flag.name)
        if flag.limits is None or value is None:
            continue
        numbers = value if isinstance(value, list) else [value]
        bounds = flag.limits._asdict()
        length = bounds.pop("length")
        if length not in (None, len(numbers)):
            received = f"--{flag.name}={written(value)}"
            raise InputError(f"--{flag.name}", f"be {length} numbers", received)
        whole = flag.kind in ("integer", "integers")
        for number in numbers:
            checked_number(f"--{flag.name}", number, whole=whole, **bounds)


def must_come_with(options, name, required, advice="Leave it out."):
    """Returns the error for a flag that has no effect without `required`."""
    text = written(vars(options)[name])
    return InputError(
        f"--{name}", f"be used with {required}", f"only --{name}={text}", advice
    )


def check_pairs(options, pairs):
    """Raises an error if a flag is set but its partner in `pairs` is not."""
    flags = changed(options)
    for name, other in pairs.items():
        if name in flags and not vars(options)[other]:
            raise must_come_with(options, name, f"--{other}")


def changed(options):
    """Returns the names of the flags that differ from their defaults."""
    return {
        each.name
        for each in flags_of(options)
        if vars(options)[each.name] != each.default
    }


def name_flag(error, flags):
    """Replaces the argument that an error names by the flag that sets it.

    `flags` are the `Flag`s of the command. Only an `ArgumentError` names an
    argument; other errors are unchanged.
    """
    argument = getattr(error, "argument", None)
    for each in flags:
        if argument == (each.argument or each.name) and each.kind != "words":
            error.args = (f"--{each.name}", *error.fields[1:])


def title_of(group):
    """Returns the title of a group in --help."""
    return group.__doc__.partition("\n")[0].rstrip(".")


def check_place(name, path):
    """Raises an error if a flag names a file in a folder that is missing."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        expected = "be a file in an existing folder"
        raise InputError(f"--{name}", expected, f"--{name}={path}")


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
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise MissingFileError(
        f"{place}`--{flag}` must be a file of flags or the name of a "
        f"configuration. Received: {name}, looked for at {path}.{hint}"
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
        raise InputError(f"{path} must not include itself, in {within[-1]}.")
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
            place, received = flag_place(unnamed[0]), " ".join(unnamed)
            message = f"The command line must not contain {received}."
            raise InputError(place + message)
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
        raise InputError(f"--{flag.name}", "be set", "no value", flag.help)
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
