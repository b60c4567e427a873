"""The numbers that flags may have, checked in one place for all of them."""

import dataclasses
import math
import operator

from tbnets.errors import InputError

_HOLDS = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """The numbers that a flag may have; of a list, each.

    Args:
        at_least: the smallest; None for no such bound.
        above: what it must be larger than.
        at_most: the largest.
        below: what it must be smaller than.
        length: how many numbers a list must have; None for any number.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    length: int | None = None

    @property
    def _bounds(self):
        bounds = {name: getattr(self, name) for name in _HOLDS}
        return {name: b for name, b in bounds.items() if b is not None}

    def allow(self, value):
        """Tells whether a number, or a list of them, keeps to the limits."""
        if isinstance(value, list | tuple):
            right_length = self.length in (None, len(value))
            return right_length and all(map(self.allow, value))
        return math.isfinite(value) and all(
            _HOLDS[name](value, bound) for name, bound in self._bounds.items()
        )

    def __str__(self):
        """Returns limits in words: `at least 0 and below 1`."""
        words = " and ".join(
            f"{name.replace('_', ' ')} {bound}"
            for name, bound in self._bounds.items()
        )
        if self.length is None:
            return words
        return f"{self.length} numbers with commas between, each {words}"


def check_limits(settings, flags):
    """Refuses numbers that can not be worked with.

    Args:
        settings: what has the value of each flag as an attribute.
        flags: the `Flag`s to check.

    Raises:
        ValueError: naming the first flag whose number lies outside its
            `Limits`.
    """
    for flag in flags:
        value = getattr(settings, flag.name)
        if flag.limits is None or value is None or flag.limits.allow(value):
            continue
        shown = value
        if isinstance(value, list | tuple):
            shown = ",".join(map(str, value))
        raise InputError(
            f"`--{flag.name}` must be {flag.limits}. Received: "
            f"--{flag.name}={shown}. Change --{flag.name}."
        )
