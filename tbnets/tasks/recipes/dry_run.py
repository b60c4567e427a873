"""What recipes would make before a training: a table of size and time."""

import contextlib
import io
import pathlib
import tempfile

import numpy as np

from tbnets.tasks.recipes.thing import free_bytes, megabytes

_COLUMNS = "{:32}  {:>16}  {:>9}  {:>9}"


def tell(things):
    """Returns a table of what is to be made, by making a little of each.

    Args:
        things: `Thing`s that are not there and checked, parts before the whole.
    """
    if not things:
        return "nothing to make: all that flags name is there"
    rows = [_COLUMNS.format("would be made", "of", "size", "about")]
    total = np.zeros(2)
    for thing in things:
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.redirect_stdout(io.StringIO()),  # No bars, no reports.
            contextlib.redirect_stderr(io.StringIO()),
        ):
            size, seconds = thing.estimate(pathlib.Path(scratch))
        total += size, seconds
        name, count = thing.folder.name, f"{thing.count} {thing.unit}s"
        cells = name, count, megabytes(size), duration(seconds)
        rows.append(_COLUMNS.format(*cells))
        rows.append(f"  by {thing.recipe}, in {thing.folder.parent}")
    free = free_bytes(things[0].folder)
    rows.append(
        f"in all {megabytes(total[0])} and about {duration(total[1])}; "
        f"{megabytes(free)} are free"
    )
    return "\n".join(rows)


def duration(seconds):
    """Returns a time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
