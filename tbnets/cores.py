"""How many cores this process may use."""

import os


def usable_cores():
    """Returns how many cores the process may use, at least 1.

    A container or `taskset` may allow it fewer than the machine has.
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        return os.cpu_count() or 1
