"""Shows progress, and prints lines without breaking progress bars.

In a terminal, a bar appears after one second. Elsewhere, such as in the log of
a container, a line is printed every 30 seconds.
"""

import sys
import time

import tqdm

LOG_SECONDS = 30
"""Seconds between two lines of progress if there is no terminal."""
_is_shown = True


def hide_bars():
    """Disables progress bars for the rest of the process."""
    global _is_shown
    _is_shown = False


class _LogBar(tqdm.tqdm):
    """Prints the state of a bar as a line, at most every `LOG_SECONDS`."""

    def __init__(self, **options):
        self._printed_at = time.monotonic()
        super().__init__(delay=LOG_SECONDS, ncols=80, ascii=True, **options)

    def display(self, msg=None, pos=None):
        """Prints the state if it is time; ignores requests to erase the bar."""
        now = time.monotonic()
        if msg is None and now - self._printed_at >= LOG_SECONDS:
            self._printed_at = now
            sys.stderr.write(f"{self}\n")
            sys.stderr.flush()
        return False

    def clear(self, nolock=False):
        """Does nothing, because a log keeps its lines."""


def progress_bar(total, what, unit, leave=False, **options):
    """Returns a `tqdm` bar, or its lines in a log if there is no terminal.

    `what` describes the work. `leave` keeps the finished bar on the screen.
    """
    options |= {"total": total, "desc": what, "unit": unit}
    if not _is_shown or sys.stderr is None:
        return tqdm.tqdm(disable=True, **options)
    if sys.stderr.isatty():
        return tqdm.tqdm(delay=1, leave=leave, **options)
    return _LogBar(leave=False, **options)


def say(text):
    """Prints a line to standard error without breaking a progress bar."""
    tqdm.tqdm.write(text, file=sys.stderr)
