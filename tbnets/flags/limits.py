"""The numbers that flags may have, checked in one place for all of them."""

import dataclasses
import math

from tbnets.errors import InputError


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
        name, limits, value = (
            flag.name,
            flag.limits,
            getattr(settings, flag.name),
        )
        if limits is None or value is None or _within(limits, value):
            continue
        shown = ",".join(map(str, value)) if _is_list(value) else value
        reason = f"{limits.reason} " if limits.reason else ""
        raise InputError(
            f"`--{name}` must be {_expected(limits)}. Received: "
            f"--{name}={shown}. {reason}Change --{name}."
        )


def _is_list(value):
    return isinstance(value, list | tuple)


def _within(limits, value):
    if _is_list(value):
        if limits.length is not None and len(value) != limits.length:
            return False
        return all(_within(limits, each) for each in value)
    return math.isfinite(value) and all(
        (
            limits.at_least is None or value >= limits.at_least,
            limits.above is None or value > limits.above,
            limits.at_most is None or value <= limits.at_most,
            limits.below is None or value < limits.below,
        )
    )


def _expected(limits):
    """Returns limits in words: `at least 0 and below 1`."""
    bounds = [
        f"{field.name.replace('_', ' ')} {getattr(limits, field.name)}"
        for field in dataclasses.fields(limits)
        if field.name not in ("length", "reason")
        and getattr(limits, field.name) is not None
    ]
    words = " and ".join(bounds)
    if limits.length is None:
        return words
    return f"{limits.length} numbers with commas between, each {words}"
