"""Progress bars on a terminal, and lines that do not break them."""

import sys

import tqdm

_is_shown = True


def hide_bars():
    """Disables progress bars for the rest of this process."""
    global _is_shown
    _is_shown = False


def progress_bar(total, what, unit, leave=False, **more):
    """Returns a `tqdm` bar, which appears after one second.

    Args:
        total: number of units.
        what: description of the work.
        unit: name of a unit.
        leave: whether the finished bar remains on the terminal.
        **more: arguments of `tqdm.tqdm`.
    """
    more |= {"total": total, "desc": what, "unit": unit, "leave": leave}
    return tqdm.tqdm(delay=1, disable=None if _is_shown else True, **more)


def say(text):
    """Prints a line on standard error without breaking a progress bar."""
    tqdm.tqdm.write(text, file=sys.stderr)
