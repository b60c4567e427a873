"""Numbers and arrays that a user gives, checked where they come in."""

import math
import os
from collections.abc import Mapping

import numpy as np
import PIL.Image

from tbnets.errors import InputError
from tbnets.short_repr import shown


def checked_number(
    name, value, least, whole=False, above=False, most=math.inf, below=False
):
    """Returns a number that is finite and neither too small nor too large.

    Args:
        name: what the argument is called.
        value: what was given for it.
        least: the smallest number allowed.
        whole: whether it must be an integer, which is then returned.
        above: whether `least` itself is too small.
        most: the largest number allowed.
        below: whether `most` itself is too large.

    Returns:
        float or int.

    Raises:
        ValueError: it is no number, not finite, too small or too large.
    """
    try:
        number = math.nan if isinstance(value, (str, bool)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    exact = value if isinstance(value, int) else number
    good = exact > least if above else exact >= least
    good = good and (exact < most if below else exact <= most)
    if good and math.isfinite(number) and (not whole or number % 1 == 0):
        return int(value) if whole else number
    kind, bound = "whole" if whole else "finite", "above" if above else "from"
    expected = f"be a {kind} number {bound} {least}"
    if most < math.inf:
        up_to = "to below" if below else "to"
        expected = f"lie {bound} {least} {up_to} {most}"
        expected += ", a whole number" * whole
    raise InputError(
        f"`{name}` must {expected}. Received: {name}={value!r}. Choose another."
    )


def checked_array(name, values):
    """Returns values as an array; refuses rows of different lengths.

    Raises:
        ValueError: the lengths differ.
    """
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(
            f"`{name}` must be rows of one length. Received: {len(values)} "
            "rows of different lengths. Give an array."
        ) from error


def as_numbers(name, values, what, shape, advice, dtype=np.float32):
    """Converts numbers; says what is wrong with them or with their shape.

    Args:
        name: what the argument is called.
        values: array or nested lists.
        what: the message calls them, such as "embeddings".
        shape: tuple that it must have, None for any size; or None for any.
        advice: what to change.
        dtype: of the array.

    Returns:
        A NumPy array.

    Raises:
        ValueError: they are no numbers, or of another shape.
    """
    try:
        array = np.asarray(values, dtype)
        received = f"shape={array.shape}"
        fits = shape is None or len(shape) == array.ndim
    except (TypeError, ValueError, OverflowError):  # Words, or ragged rows.
        received, fits = f"{name}={shown(values)}", False
    if fits and all(
        size in (None, own) for size, own in zip(shape or (), array.shape)
    ):
        return array
    raise InputError(
        f"`{name}` must be {what} of shape {shape}. Received: {received}. "
        f"{advice}"
    )


def refuse_single(name, values):
    """Refuses a string, a path, bytes, a photo or what has no order.

    Args:
        name: what the argument is called.
        values: list, array or the like.

    Raises:
        ValueError: it is a single one, a dict, a set or a generator.
    """
    single = str | bytes | os.PathLike | PIL.Image.Image | Mapping
    is_one = isinstance(values, np.ndarray) and values.ndim in (0, 2, 3)
    is_list = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if is_one or isinstance(values, single) or not is_list:
        raise InputError(
            f"`{name}` must be a list. Received: one {type(values).__name__}. "
            "Give a list, of a single one too."
        )


def checked_rows(name, values, num_rows, count=None):
    """Returns numbers of rows as int64.

    Args:
        name: what the argument is called.
        values: int `[n]`; n may be 0.
        num_rows: how many rows there are.
        count: how many numbers there must be; None for any.

    Raises:
        ValueError: they are no integers, too many or too few, or there is no
            such row.
    """
    values = checked_array(name, values)
    if values.shape == (0,):
        values = values.astype(np.int64)
    fits = values.ndim == 1 and count in (None, len(values))
    if values.dtype.kind not in "iu" or not fits:
        each = "" if count is None else f", one for each of {count}"
        raise InputError(
            f"`{name}` must be integers{each}. Received: {name}.shape="
            f"{values.shape}, dtype {values.dtype}. Keep rows as int64."
        )
    bad = np.flatnonzero((values < 0) | (values >= num_rows))
    if bad.size:
        raise InputError(
            f"`{name}` must hold rows from 0 to {num_rows - 1}. Received: "
            f"{name}[{bad[0]}]={values[bad[0]]}, one of {bad.size} that are no "
            "rows. Count from 0."
        )
    return values.astype(np.int64)


def check_finite(name, array):
    """Refuses NaN and infinity in an array of floats.

    Args:
        name: what the argument is called.
        array: `[n, ...]`; one of other numbers is let through.

    Raises:
        ValueError: names the first row.
    """
    if array.dtype.kind != "f":
        return
    # A sum tells without an array as large; it may overflow by itself.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum(dtype=np.float64)):
            return
    for place in map(tuple, np.argwhere(~np.isfinite(array))):
        raise InputError(
            f"`{name}` must hold finite numbers. Received: {array[place]} in "
            f"row {place[0]}. Leave the row out, or make its numbers again."
        )


def checked_dict(name, values, keys):
    """Returns what a batch holds; refuses one that lacks something.

    Args:
        name: what to call it in the error.
        values: dict, or a tuple that Keras makes of it, with None behind.
        keys: what it must hold.

    Raises:
        ValueError: names what is expected and what is there.
    """
    if isinstance(values, tuple | list) and not any(
        value is not None for value in values[1:]
    ):
        values = next(iter(values), values)
    if isinstance(values, Mapping):
        missing = [key for key in keys if key not in values]
        if not missing:
            return values
        found = f"a dict of {', '.join(values)}, without {', '.join(missing)}"
    else:
        found = type(values).__name__
        if isinstance(values, tuple | list):
            found += f" of {len(values)}"
    raise InputError(
        f"`{name}` must be one dict with {', '.join(keys)}. Received: {found}."
        " Give `fit` one dict of all: ids say what belongs together."
    )
