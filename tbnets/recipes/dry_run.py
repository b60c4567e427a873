"""What recipes would make before a training: a table of size and time."""

import contextlib
import io
import pathlib
import tempfile

import numpy as np

from tbnets.recipes.thing import free_bytes, megabytes

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
        with tempfile.TemporaryDirectory() as scratch, _unheard():
            size, seconds = thing.estimate(pathlib.Path(scratch))
        total += size, seconds
        count = f"{thing.count} {thing.unit}s"
        rows.append(
            _COLUMNS.format(
                thing.folder.name, count, megabytes(size), duration(seconds)
            )
        )
        rows.append(f"  by {thing.recipe}, in {thing.folder.parent}")
    size, free = total[0], free_bytes(things[0].folder)
    rows.append(
        f"in all {megabytes(size)} and about {duration(total[1])}; "
        f"{megabytes(free)} are free"
    )
    return "\n".join(rows)


@contextlib.contextmanager
def _unheard():
    """Hides bars and reports of what is made to be measured."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


def duration(seconds):
    """Returns a time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
