"""Bars on a terminal, of what takes long."""

import tqdm


def progress_bar(total, what, unit, **more):
    """Returns a bar that shows from the first second on and goes at the end.

    Args:
        total: how many units there are.
        what: is done, in a few words.
        unit: of what is counted.
        **more: as of `tqdm.tqdm`.
    """
    return tqdm.tqdm(
        total=total,
        desc=what,
        unit=unit,
        leave=False,
        delay=1,
        disable=None,
        **more,
    )
