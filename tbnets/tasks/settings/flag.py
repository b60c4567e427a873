"""A flag: a field of a dataclass, with what a user is told and may give.

A group of flags is a frozen dataclass whose fields are made by `flag`::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Batches:
        '''Batches.'''

        images_per_batch: Count = flag(500, "Images a batch.")

The annotation tells what it may be; the first line of the class's docstring is
the title of the group in --help. What is read from the command line, checked
and shown goes by `flags_of` the group. Where Python keeps a name for itself,
the field has an underscore behind it: `from_` is --from.
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
"""Type of a field -> kind of its flag."""


PRESET = "hub:PRESET"
"""Among the values of `OneOf`: any preset of Keras Hub."""


class OneOf(tuple):
    """Holds these values."""

    def __new__(cls, *values):
        """Takes the values."""
        return super().__new__(cls, values)

    def __contains__(self, value):
        """Tells whether a value is one of these."""
        found, is_in = str(value), super().__contains__
        return is_in(value) or (is_in(PRESET) and found.startswith("hub:"))


class Limits(NamedTuple):
    """The numbers that a flag may have; of a list, each.

    Args:
        least: the smallest.
        most: the largest.
        above: whether `least` itself is too small.
        below: whether `most` itself is too large.
        length: how many numbers a list must have; None for any number.
    """

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False
    length: int | None = None


# What a field is annotated with tells the limits of its numbers, too.
Count = Annotated[int, Limits(1)]
Counts = Annotated[list[int], Limits(1)]
Whole = Annotated[int, Limits(0)]
Amount = Annotated[float, Limits(0)]
Rate = Annotated[float, Limits(0, 1, below=True)]
Share = Annotated[float, Limits(0, 1)]
PLACE = "a file or folder of this machine"
Place = Annotated[str, PLACE]


class Flag(NamedTuple):
    """What a field of a group says of its flag.

    Args:
        name: without dashes.
        kind: string, integer, float, bool; list (of strings), integers,
            floats; repeated (strings of a flag given many times); words (what
            stands on the command line and is no flag).
        default: its value when it is not given; `REQUIRED`: it must be; None:
            none, or of a run what --loss says.
        help: what it is, its unit and the papers' value.
        choices: the values it may have, for kind string; () for any.
        is_place: whether it names a file or folder of this machine.
        free: whether it may change when a run is resumed.
        limits: the numbers it may have; every number of a run has some.
    """

    name: str
    kind: str
    default: object
    help: str
    choices: tuple = ()
    is_place: bool = False
    free: bool = False
    limits: Limits | None = None


def flag(default, help, **more):
    """Returns a field of a group of flags.

    Args:
        default: see `Flag`.
        help: see `Flag`.
        **more: any other field of `Flag` but its name, and what the
            annotation tells: kind (but repeated and words), limits, is_place.
    """
    told = {"help": help, **more}
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=told)
    return dataclasses.field(default=default, metadata=told)


def flags_of(group):
    """Returns the `Flag`s of a group in the order of its fields."""
    return [_flag_of(field) for field in dataclasses.fields(group)]


def _flag_of(field):
    kind, default, more = field.type, field.default, {}
    if type(None) in typing.get_args(kind):  # What it is, or None.
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is Annotated:
        kind, told = typing.get_args(kind)
        more = {"is_place": True} if told == PLACE else {"limits": told}
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    given = {"kind": KINDS[kind], "default": default, **more, **field.metadata}
    return Flag(name=field.name.rstrip("_"), **given)


def written(value):
    """Returns a value as it is written on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_limits(group):
    """Checks that the numbers of a group of flags are within their limits.

    Args:
        group: an instance of a dataclass of flags.

    Raises:
        ValueError: naming the first flag whose number lies outside its
            `Limits`.
    """
    for flag in flags_of(group):
        value = getattr(group, flag.name, None)
        if flag.limits is None or value is None:
            continue
        numbers = value if isinstance(value, list) else [value]
        bounds = flag.limits._asdict()
        length = bounds.pop("length")
        if length not in (None, len(numbers)):
            raise InputError(
                f"--{flag.name}",
                f"be {length} numbers with commas between",
                f"--{flag.name}={written(value)}",
                f"Give {length}.",
            )
        whole = flag.kind in ("integer", "integers")
        for number in numbers:
            checked_number(f"--{flag.name}", number, whole=whole, **bounds)


def must_come_with(options, name, needed, advice="Leave it out."):
    """Returns the error of a flag that says nothing without something else.

    Args:
        options: a group of flags, a verb's `Options` for one.
        name: of the flag.
        needed: what is missing.
        advice: what to change.
    """
    given = written(getattr(options, name))
    return InputError(
        f"--{name}",
        f"come with {needed}",
        f"--{name}={given} without",
        f"{advice}",
    )


def check_pairs(options, pairs):
    """Refuses flags that say nothing without another one.

    Args:
        options: a group of flags.
        pairs: dict, name of a flag -> of the other.

    Raises:
        ValueError: the one has not its default, the other is empty.
    """
    given = changed(options)
    for name, other in pairs.items():
        if name in given and not getattr(options, other):
            raise must_come_with(options, name, f"--{other}")


def changed(options):
    """Returns the names of the flags of a group that have not their default."""
    return {
        each.name
        for each in flags_of(options)
        if getattr(options, each.name) != each.default
    }


FLAGS_OF_ARGUMENTS = {
    "background": ("cca_background",),
    "format": ("captions_format",),
    "gradient_clip_norm": ("clip_norm",),
    "image_branch": ("image_units",),
    "name": ("cnn", "image_encoder"),
    "output_dim": ("cca_dim",),
    "positives": ("positive_pairs",),
    "preset": ("hub", "cnn", "features", "image_encoder", "text_encoder"),
    "regularization": ("cca_regularization",),
    "steps": ("image_transform",),
    "text_branch": ("text_units",),
    "vectors": ("word_vectors",),
    "weights": ("cnn_weights",),
}
"""Argument of the library -> the flags of other names that set it."""


def name_flags(error, values):
    """Makes an error of the library name the flags that set its arguments.

    Args:
        error: a `UserError`, which is changed.
        values: flag -> value, of the command.
    """
    fields = list(getattr(error, "fields", ()))
    if not fields and len(error.args) != 1:
        return  # An error of the system.
    texts = fields or [str(error)]
    received = fields[2] if fields else texts[0]
    for argument in ("path", *FLAGS_OF_ARGUMENTS, *values):
        flags = _flags_of(argument, received, values)
        if not flags:
            continue
        named = " or ".join(f"`--{flag}`" for flag in flags)
        texts = [text.replace(f"`{argument}`", named) for text in texts]
        if texts[0] == argument:
            texts[0] = named.strip("`")
        if len(flags) == 1:
            texts = [_renamed(text, argument, flags[0]) for text in texts]
    error.args = tuple(texts)


def _renamed(text, argument, flag):
    """Returns a text with `--flag=` in place of `argument=`."""
    if text.startswith(f"{argument}="):
        text = f"--{flag}{text.removeprefix(argument)}"
    for before in (", ", "Received: ", "with ", "than "):
        text = text.replace(f"{before}{argument}=", f"{before}--{flag}=")
    return text


def _flags_of(argument, received, values):
    """Returns the flags that set an argument.

    That is the flag of its name, or those of `FLAGS_OF_ARGUMENTS`; of
    several, those whose value was received. `path` is the flag whose value
    was received as such.
    """
    if argument in values:  # Not told, it may be of another function.
        return [argument] if f"{argument}=" in received else []
    known, prefix = FLAGS_OF_ARGUMENTS.get(argument, ()), ""
    if argument == "path":
        known, prefix = values, "path="
    flags = [name for name in known if name in values]
    given = [f for f in flags if _is_in(values[f], received, prefix)]
    return given or (flags if argument != "path" else [])


def _is_in(value, text, prefix):
    """Returns whether a value, or one of a list, stands in a text."""
    for one in value if isinstance(value, list) else [value]:
        one = str(one or "").removeprefix("hub:").removeprefix("./")
        places = [f"{prefix}{start}{one}" for start in ("", "'", "./", "'./")]
        if one and any(place in text for place in places):
            return True
    return False


def title_of(group):
    """Returns the title of a group in --help."""
    return group.__doc__.partition("\n")[0].rstrip(".")


def check_place(name, path, ending=""):
    """Raises an InputError if a flag names a file that can not be written.

    Args:
        name: of the flag.
        path: its value; "" is left alone.
        ending: that the file must have, such as ".png"; "" for any.
    """
    check_ending(name, path, ending)
    if path and not pathlib.Path(path).absolute().parent.is_dir():
        raise InputError(
            f"--{name}",
            "be a file in a folder that is there",
            f"--{name}={path}",
            "Make the folder, or choose another.",
        )


def check_ending(name, path, ending):
    """Raises an InputError if the file of a flag has another ending.

    Args:
        name: of the flag.
        path: its value; "" is left alone.
        ending: such as ".png".
    """
    if path and not path.lower().endswith(ending):
        raise InputError(
            f"--{name}",
            f"be a file that ends with {ending}",
            f"--{name}={path}",
            f"Write --{name}={path}{ending}.",
        )
