"""The numbers that flags have, checked in one place for all of them."""

from tbnets.errors import InputError
from tbnets.flags.flag import written


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
        raise InputError(
            f"`--{flag.name}` must be {flag.limits}. Received: "
            f"--{flag.name}={written(value)}. Change --{flag.name}."
        )
