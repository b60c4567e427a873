"""Times functions alternately, prints the times, and reads memory sizes."""

import contextlib
import multiprocessing
import pathlib
import sys
import time

import numpy as np

from tbnets import startup


def in_turns(runs, repeats, warm_up=1, before=lambda: None):
    """Times functions in turn, so that other load affects them all equally.

    Each function in `runs` must wait for its result. Returns a dict that maps
    each name to a list of seconds, one per run. `before()` is not timed.
    """
    seconds = {name: [] for name in runs}
    for _ in range(warm_up + repeats):
        for name, run in runs.items():
            before()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: each[warm_up:] for name, each in seconds.items()}


def print_table(title, runs, repeats, rows=None):
    """Times functions alternately; prints medians and ratios to the first.

    If `rows` maps names to numbers of rows, also prints rows per second.
    """
    times = in_turns(runs, repeats)
    medians = {name: np.median(seconds) for name, seconds in times.items()}
    width = max(map(len, runs))
    print(title)
    last = "   rows/s" if rows else ""
    print(f"  {'what'.ljust(width)}  {'ms':>9}  {'ratio':>6}{last}")
    floor = next(iter(medians.values()))
    for name, seconds in medians.items():
        last = f"  {rows[name] / seconds:7.1f}" if rows else ""
        numbers = f"{1e3 * seconds:9.1f}  {seconds / floor:6.2f}{last}"
        print(f"  {name.ljust(width)}  {numbers}")


def in_another_process(function, *arguments):
    """Calls a function in a new process; returns its result."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, startup.prepare_tensorflow) as pool:
        return pool.apply(function, arguments)


def with_peak(function):
    """Calls a function; returns its result and its peak memory in MiB.

    If there is a GPU, this is the memory of the first GPU.
    """
    tf, torch = (sys.modules.get(name) for name in ("tensorflow", "torch"))
    if torch and torch.cuda.is_available():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = function()
        return result, (torch.cuda.max_memory_allocated() - before) / 2**20
    if tf and tf.config.list_physical_devices("GPU"):
        config = tf.config.experimental
        config.reset_memory_stats("GPU:0")
        before = config.get_memory_info("GPU:0")["current"]
        result = function()
        peak = config.get_memory_info("GPU:0")["peak"]
        return result, (peak - before) / 2**20
    before = mebibytes("VmRSS")
    with contextlib.suppress(OSError):  # Resets VmHWM.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    result = function()
    return result, mebibytes("VmHWM") - before


def mebibytes(name):
    """Returns a memory value of this process, such as `VmRSS`, in MiB."""
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(row for row in status.splitlines() if row.startswith(name))
    return int(line.split()[1]) / 1024
