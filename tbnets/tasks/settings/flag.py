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
import csv
import dataclasses
import difflib
import functools
import math
import pathlib
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from absl import flags as absl_flags

from tbnets.checks import checked_number
from tbnets.errors import InputError, MissingFileError, check_choice
from tbnets.files import CheckedFile, is_kind, shipped_folder

REQUIRED = dataclasses.MISSING
PRESET = "hub:PRESET"
"""A choice of a flag that accepts any Keras Hub preset."""


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


class Condition(NamedTuple):
    """A condition under which a flag is used.

    Args:
        words: the condition in words, such as "with --scenes".
        holds: function that takes the `Settings` of a run and returns whether
            the condition holds.
    """

    words: str
    holds: Callable

    def __and__(self, other):
        return Condition(
            f"{self.words}, {other.words}",
            lambda settings: self.holds(settings) and other.holds(settings),
        )

    def __or__(self, other):
        return Condition(
            f"{self.words} or {other.words}",
            lambda settings: self.holds(settings) or other.holds(settings),
        )


def with_flag(name, *choices):
    """Returns the condition that a flag is set, or equals a choice."""
    if choices:
        words = f"with --{name}={' or '.join(choices)}"
        return Condition(words, lambda x: x.values().get(name) in choices)
    return Condition(f"with --{name}", lambda x: bool(x.values().get(name)))


def without_flag(name):
    """Returns the condition that a flag is not set."""
    return Condition(f"without --{name}", lambda x: not x.values().get(name))


def with_other(name, choice):
    """Returns the condition that a flag has a value other than `choice`."""
    words = f"with --{name} other than {choice}"
    return Condition(words, lambda x: x.values().get(name) != choice)


_IN_NO_NAME = re.compile("[\\0\\ud800-\\udc7f\\udd00-\\udfff]")
"""Matches characters that file names cannot have, unlike undecodable bytes."""


class Flag(NamedTuple):
    """A flag: the name, type, default, help and limits of a field.

    Args:
        name: name without dashes.
        type: str, int, float, bool, or a list of these types.
        default: default value, `REQUIRED`, or None if the flag has no default
            or --loss determines it.
        help: meaning, unit and the papers' values.
        choices: allowed values of a string, or () for any.
        kind: "repeated" if a list may be set several times, "words" if it
            takes all words that are not flags, otherwise "".
        is_place: whether the value is a file or folder on this machine.
        free: whether the flag may change when a run is resumed.
        argument: the argument of the library that the flag sets, if its name
            differs from the flag's.
        limits: range of the numbers.
        only: the `Condition` under which a run uses the flag, or None.
    """

    name: str
    type: Any
    default: object
    help: str
    choices: tuple = ()
    kind: str = ""
    is_place: bool = False
    free: bool = False
    argument: str = ""
    limits: Limits | None = None
    only: Condition | None = None

    def parse(self, text):
        """Returns the value that a text on the command line gives the flag."""
        if self.is_list:
            [kind] = typing.get_args(self.type)
            items = next(csv.reader([text]), [])
            value = [kind(item.strip()) for item in items]
        else:
            value = self.type(text)
        self.check(value)
        return value

    @property
    def is_list(self):
        """Whether the value is a list."""
        return typing.get_origin(self.type) is list

    def check(self, value):
        """Raises an error if a value has a wrong type or is out of range."""
        name, received = f"--{self.name}", f"--{self.name}={written(value)}"
        if self.limits and isinstance(value, list) == self.is_list:
            bounds = self.limits._asdict()
            length, numbers = bounds.pop("length"), value
            if not self.is_list:
                numbers = [value]
            whole = self.type in (int, list[int])
            for number in numbers:
                checked_number(name, number, whole=whole, **bounds)
            if length not in (None, len(numbers)):
                raise InputError(name, f"be {length} numbers", received)
        elif not is_kind(value, self.type):
            raise InputError(name, f"be of type {self.type}", received)
        is_preset = PRESET in self.choices and value.startswith("hub:")
        if self.choices and not is_preset:
            check_choice(name, value, self.choices)
        if _IN_NO_NAME.search(written(value)):
            raise InputError(name, "be text in UTF-8", repr(value))


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
    args = {"type": kind, "default": default, **extra, **field.metadata}
    return Flag(name=field.name.rstrip("_"), **args)


def written(value):
    """Returns a value as it is written on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def check_place(name, path):
    """Raises an error if a flag names a file in a folder that is missing."""
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        expected = "be a file in an existing folder"
        raise InputError(f"--{name}", expected, f"--{name}={path}")


_NAMES = ("--flagfile", "-flagfile")
_COMMENTS = ("#", "//")
_HAS_BLANKS = re.compile(r"-[^=\s]*\s")
"""Matches a line with a space after the name of its flag."""


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


class _Parser(absl_flags.ArgumentParser):
    """Parses the value of a flag for absl."""

    def __init__(self, flag):
        self.parse = flag.parse


_DEFINE = {
    "repeated": absl_flags.DEFINE_multi_string,
    bool: absl_flags.DEFINE_bool,
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
        self._parser = parser = absl_flags.FlagValues()
        named = [flag for flag in flags if flag.kind != "words"]
        for flag in named:
            define = functools.partial(absl_flags.DEFINE, _Parser(flag))
            define = _DEFINE.get(flag.kind or flag.type, define)
            define(flag.name, None, flag.help, flag_values=parser)
        self._words = [flag.name for flag in flags if flag not in named]
        unnamed = self._read(words)
        self.set_flags = {
            flag.name for flag in named if parser[flag.name].present
        }
        self.typed = _typed(words, named)
        self.values = {
            flag.name: parser[flag.name].value
            if flag.name in self.set_flags
            else _default(flag)
            for flag in named
        } | dict.fromkeys(self._words, unnamed)

    def _read(self, words, place="", files=()):
        """Parses words, and returns those that are not flags.

        The flags of a flag file take the place of its flag. `files` are the
        flag files that contain the words, and `place` is the line.
        """
        words, before, unnamed = list(words), [], []
        while words and words[0] != "--":
            word = words.pop(0)
            flag, equals, name = word.partition("=")
            if flag not in _NAMES:
                before.append(word)
                continue
            unnamed += self._parse(before, place)
            before = []
            if not equals:
                name = words.pop(0) if words else ""
            unnamed += self._read_file(find_flagfile(name, place), files)
        return unnamed + self._parse(before + words, place)

    def _read_file(self, path, files):
        if path in files:
            raise InputError(f"{path} must not include itself, in {files[-1]}.")
        file, unnamed = CheckedFile(path), []
        for number, line in enumerate(file.lines()[0], 1):
            line = line.strip()
            if not line or line.startswith(_COMMENTS):
                continue
            if _HAS_BLANKS.match(line):
                advice = "Remove the spaces before the value."
                file.refuse("--flag=value", line, number, advice)
            unnamed += self._read([line], f"{path}:{number}: ", (*files, path))
        return unnamed

    def _parse(self, words, place):
        try:
            unnamed = self._parser(["", *words])[1:]
        except absl_flags.Error as error:
            known = error.__context__
            if isinstance(known, InputError) and not place:
                raise known from error
            text = " ".join(str(error).split()).rstrip(".")
            raise InputError(f"{place}{text}. See --help.") from error
        if unnamed and not self._words:
            received = " ".join(unnamed)
            message = f"The command line must not contain {received}."
            raise InputError(place + message)
        return unnamed

    def take(self, group):
        """Creates a group of flags from the parsed values."""
        names = [flag.name for flag in flags_of(group)]
        return group(**{name: self.values[name] for name in names})


def _typed(words, flags):
    dashed = [word for word in words if word.startswith("-")]
    names = {word.lstrip("-").partition("=")[0] for word in dashed}
    return {f.name for f in flags if names & {f.name, f"no{f.name}"}}


def _default(flag):
    if flag.default is REQUIRED:
        raise InputError(f"--{flag.name}", "be set", "no value", flag.help)
    return copy.copy(flag.default)
