"""Times alternatives against each other on a machine that is not quiet."""

import time

import numpy as np


def interleaved(runs, repeats):
    """Times functions in turn, so that they share the machine's moods.

    Args:
        runs: Dict of functions by name; each must wait for its own result.
        repeats: Times each function is run, after one run to warm up.

    Returns:
        Dict of median milliseconds by name.
    """
    for run in runs.values():
        run()
    seconds = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1e3 * np.median(each) for name, each in seconds.items()}


def print_table(title, milliseconds, floor):
    """Prints times and their ratios to one of them.

    Args:
        title: Line above the table.
        milliseconds: Dict of times by name.
        floor: Name of the time that counts as 1.
    """
    width = max(len(name) for name in milliseconds)
    print(title)
    print(f"  {'what'.ljust(width)}  {'ms':>9}  {'ratio':>6}")
    for name, value in milliseconds.items():
        ratio = value / milliseconds[floor]
        print(f"  {name.ljust(width)}  {value:9.1f}  {ratio:6.2f}")
