"""A flag: a field of a dataclass, with what a user is told and may give.

A group of flags is a frozen dataclass whose fields are made by `flag`::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Batches:
        '''Batches.'''

        images_per_batch: int = flag(500, "Images a batch.", limits=COUNT)

The first line of its docstring is its title in --help. What is read from the
command line, checked and shown goes by `flags_of` the group.
"""

import dataclasses
import types
from typing import NamedTuple

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
"""Annotation of a field -> kind of its flag."""


@dataclasses.dataclass(frozen=True)
class Other:
    """Any value but this one.

    Args:
        value: what another flag must not be for a flag to be read, or a
            tuple of what it must not be.
    """

    value: str | int | tuple


@dataclasses.dataclass(frozen=True)
class Limits:
    """The numbers that a flag may have; see `flags.limits.check_limits`.

    Of a list, each number must keep to them.

    Args:
        at_least: the smallest; None for no such bound.
        above: what it must be larger than.
        at_most: the largest.
        below: what it must be smaller than.
        length: how many numbers a list must have; None for any number.
        reason: a sentence on why, where that is not plain.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    length: int | None = None
    reason: str = ""


COUNT = Limits(at_least=1)
NOT_NEGATIVE = Limits(at_least=0)
RATE = Limits(at_least=0, below=1)
SHARE = Limits(at_least=0, at_most=1)


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
        when: the values of other flags under which it is read: dicts of flag
            -> tuple of values or `Other`, of which one must hold; () always.
        is_place: whether it names a file or folder of this machine.
        free: whether it may change when a run is resumed.
        limits: the numbers it may have; every number of a run has some.
        before: what runs did that were started before there was the flag,
            where that is not its default.
    """

    name: str
    kind: str
    default: object
    help: str
    choices: tuple = ()
    when: tuple = ()
    is_place: bool = False
    free: bool = False
    limits: Limits | None = None
    before: object = None


def flag(default, help, **more):
    """Returns a field of a group of flags.

    Args:
        default: see `Flag`.
        help: see `Flag`.
        **more: any other field of `Flag` but its name; the kind is told by
            the annotation where it is none of repeated and words.
    """
    metadata = {"help": help, **more}
    if isinstance(default, list):
        return dataclasses.field(
            default_factory=lambda: list(default), metadata=metadata
        )
    return dataclasses.field(default=default, metadata=metadata)


def flags_of(group):
    """Returns the `Flag`s of a group in the order of its fields."""
    return [_flag_of(field) for field in dataclasses.fields(group)]


def _flag_of(field):
    kind, default = field.type, field.default
    if isinstance(kind, types.UnionType):  # What it is, or None.
        kind = kind.__args__[0]
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    given = {"kind": KINDS[kind], "default": default, **field.metadata}
    return Flag(name=field.name, **given)


def changed(options):
    """Returns the names of the flags of a group that have not their default."""
    return {
        each.name
        for each in flags_of(options)
        if getattr(options, each.name) != each.default
    }


def title_of(group):
    """Returns the title of a group in --help."""
    return group.__doc__.partition("\n")[0].rstrip(".")


def reads(flag, settings):
    """Tells whether a flag is read under the values of the others.

    One that is none of the settings is not given: "".
    """
    return not flag.when or any(
        all(_holds(settings, *item) for item in case.items())
        for case in flag.when
    )


def _holds(settings, name, wanted):
    value = getattr(settings, name, "")
    if isinstance(wanted, Other):
        others = wanted.value
        others = others if isinstance(others, tuple) else (others,)
        return value not in others
    return value in wanted


def what_reads(flag):
    """Returns in words under which values of the others a flag is read."""
    cases = []
    for case in flag.when:
        words = []
        for name, wanted in case.items():
            if wanted in (Other(""), Other(0)):
                words.append(f"--{name}")
            elif wanted == ("",):
                words.append(f"no --{name}")
            elif isinstance(wanted, Other):
                others = wanted.value
                others = others if isinstance(others, tuple) else (others,)
                words.append(f"--{name} other than {' or '.join(others)}")
            else:
                words.append(f"--{name}={' or '.join(wanted)}")
        cases.append(" and ".join(words))
    return ", or ".join(cases)
