"""A flag of a run: when it is read, and the numbers it may have."""

import dataclasses
from typing import NamedTuple


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


class Flag(NamedTuple):
    """One flag of a run.

    Args:
        name: without dashes.
        kind: string, integer, float, bool, list or integers.
        default: its value when it is not given; None: what --loss says.
        help: what it is, its unit and the papers' value.
        choices: the values it may have, for kind string; () for any.
        when: the values of other flags under which it is read: dicts of flag
            -> tuple of values or `Other`, of which one must hold; () always.
        is_place: whether it names a file or folder of this machine.
        free: whether it may change when a run is resumed.
        limits: the numbers it may have; every number has some.
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


def reads(flag, settings):
    """Tells whether a flag is read under the values of the others."""
    return not flag.when or any(
        all(_holds(settings, *item) for item in case.items())
        for case in flag.when
    )


def _holds(settings, name, wanted):
    value = getattr(settings, name)
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
