"""Shows progress bars, and prints lines without breaking the bars."""

import sys

import tqdm

_is_shown = True


def hide_bars():
    """Disables progress bars for the rest of the process."""
    global _is_shown
    _is_shown = False


def progress_bar(total, what, unit, leave=False, **options):
    """Returns a `tqdm` bar that appears after one second.

    `what` describes the work. `leave` keeps the finished bar on the screen.
    """
    options |= {"total": total, "desc": what, "unit": unit, "leave": leave}
    return tqdm.tqdm(delay=1, disable=None if _is_shown else True, **options)


def say(text):
    """Prints a line to standard error without breaking a progress bar."""
    tqdm.tqdm.write(text, file=sys.stderr)
