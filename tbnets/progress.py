"""Bars on a terminal, of what takes long, and lines beside them."""

import sys

import tqdm

_is_shown = True


def hide_bars():
    """Shows no bars from now on in this process."""
    global _is_shown
    _is_shown = False


def progress_bar(total, what, unit, leave=False, **more):
    """Returns a bar with the time left, from the first second on.

    Args:
        total: how many units there are.
        what: is done, in a few words.
        unit: of what is counted.
        leave: whether it stays when all is done.
        **more: as of `tqdm.tqdm`.
    """
    more |= {"total": total, "desc": what, "unit": unit, "leave": leave}
    return tqdm.tqdm(delay=1, disable=None if _is_shown else True, **more)


def say(text):
    """Prints a line on standard error, beside any bar."""
    tqdm.tqdm.write(text, file=sys.stderr)
