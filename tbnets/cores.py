"""How many cores this process may use, and work that all of them share."""

import os
from concurrent.futures import ThreadPoolExecutor


def usable_cores():
    """Returns how many cores the process may use, at least 1.

    A container or `taskset` may allow it fewer than the machine has.
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on every system.
        return os.cpu_count() or 1


def in_threads(function, items):
    """Calls a function of each item, by as many threads as there are cores.

    Args:
      function: of one item; most of its time without the interpreter's lock.
      items: sequence.

    Returns:
      List of what it returned, in their order.

    Raises:
      Exception: what it raised of the first item of which it did.
    """
    workers = min(usable_cores(), len(items))
    if workers < 2:
        return list(map(function, items))
    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(function, items))
