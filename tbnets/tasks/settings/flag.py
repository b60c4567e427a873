"""Declares flags as dataclass fields with help, a default and limits.

A group of flags is a frozen dataclass with fields made by `flag`::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class BatchSettings:
        '''Batch settings.'''

        images_per_batch: Count = flag(500, "Images per batch.")

The annotation gives the type and the limits of the values. The docstring is the
title in --help. A reserved name has a trailing underscore: `from_` is --from.
"""

import dataclasses
import math
import pathlib
import typing
from typing import Annotated, NamedTuple

from tbnets.checks import checked_number
from tbnets.errors import InputError

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
            raise InputError(
                f"--{flag.name}",
                f"be {length} numbers separated by commas",
                f"--{flag.name}={written(value)}",
                f"Write {length} numbers.",
            )
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
        raise InputError(
            f"--{name}",
            "be a file in an existing folder",
            f"--{name}={path}",
            "Create the folder, or choose another folder.",
        )
