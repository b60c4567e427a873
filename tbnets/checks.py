"""Names of types for annotations, checks of arguments, texts of objects."""

import decimal
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
from typing_extensions import TypeAliasType

from tbnets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tensorflow as tf

# Types that many signatures take or give. At run time they are names alone:
# nothing is imported for them.

Array = TypeAliasType("Array", "np.ndarray | tf.Tensor")
Integers = TypeAliasType("Integers", "np.ndarray | tf.Tensor | Sequence[int]")
Batch = TypeAliasType("Batch", "Mapping[str, np.ndarray | tf.Tensor]")
Tensors = TypeAliasType("Tensors", "dict[str, tf.Tensor]")
Boxes = TypeAliasType("Boxes", "np.ndarray | Sequence[Sequence[float]]")
Path = TypeAliasType("Path", "str | os.PathLike[str]")
Strings = TypeAliasType(
    "Strings", "list[str] | tuple[str, ...] | np.ndarray | tf.Tensor"
)
"""Not any sequence: a string alone is a sequence of strings too."""
Photo = TypeAliasType(
    "Photo", "str | os.PathLike[str] | bytes | PIL.Image.Image | np.ndarray"
)
"""A file, the content of one, a picture or its pixels."""
Photos = TypeAliasType("Photos", "Sequence[Photo] | np.ndarray | tf.Tensor")


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
        name,
        f"{expected}",
        f"{name}={value!r}",
        "Choose another.",
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
            name,
            "be rows of one length",
            f"{len(values)} rows of different lengths",
            "Give an array.",
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
        received, fits = f"{name}={short_text(values)}", False
    if fits and all(
        size in (None, own) for size, own in zip(shape or (), array.shape)
    ):
        return array
    raise InputError(
        name,
        f"be {what} of shape {shape}",
        f"{received}",
        f"{advice}",
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
            name,
            "be a list",
            f"one {type(values).__name__}",
            "Give a list, of a single one too.",
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
            name,
            f"be integers{each}",
            f"{name}.shape={values.shape}, dtype {values.dtype}",
            "Keep rows as int64.",
        )
    bad = np.flatnonzero((values < 0) | (values >= num_rows))
    if bad.size:
        raise InputError(
            name,
            f"hold rows from 0 to {num_rows - 1}",
            f"{name}[{bad[0]}]={values[bad[0]]}, one of {bad.size} that are "
            "no rows",
            "Count from 0.",
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
            name,
            "hold finite numbers",
            f"{array[place]} in row {place[0]}",
            "Leave the row out, or make its numbers again.",
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
        name,
        f"be one dict with {', '.join(keys)}",
        f"{found}",
        "Give `fit` one dict of all: ids say what belongs together.",
    )


# What "the same" means, one function each: a text, a photo, a thing.
#
# Two texts are the same where their `text_key` is: they read alike, in
# capitals or not. Where two hands wrote down one text, with other blanks,
# hyphens and commas, their `letters` are the same. Photos are the same where
# their ids are. Two boxes of a photo show the same thing from an overlap of
# `SAME_THING` on.
#
# What is the same gets one number (`numbered`), and is found by it
# (`rows_by`).

SAME_THING = 0.5
"""Overlap (IoU) from which two boxes show one thing. All papers: 0.5."""
_BYTE_ORDER_MARK = "\ufeff"
_NO_LETTERS = re.compile(r"[\W_]+")


def spelling(text):
    """Returns a text with single blanks between its words, else as it is."""
    return " ".join(text.replace(_BYTE_ORDER_MARK, " ").split())


def text_key(text):
    """Returns what texts have in common that read the same.

    Case and surrounding or repeated blanks do not count, marks do.
    """
    return spelling(text).casefold()


def letters(text):
    """Returns a text as small letters and digits alone."""
    return _NO_LETTERS.sub("", text).casefold()


def numbered(keys):
    """Returns int64 `[n]` from 0, equal for equal keys, in order of them."""
    numbers = {}
    found = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(found, np.int64)


def first_twice(keys):
    """Returns the first key that stood before; None where each stands once."""
    seen = set()
    return next((key for key in keys if key in seen or seen.add(key)), None)


def text_ids(texts):
    """Returns int64 `[n]` from 0, equal for texts that read the same."""
    return numbered(map(text_key, texts))


def rows_of(some, ids):
    """Returns the rows that some ids have among others, int64 `[n]`.

    Args:
        some: n ids.
        ids: all ids, those among them.
    """
    rows = {key: row for row, key in enumerate(ids)}
    return np.array([rows[key] for key in some], np.int64)


def rows_by(values, count=0):
    """Returns for each value from 0 the rows that have it, ascending.

    Args:
        values: int `[n]` from 0.
        count: how many lists there are at least.
    """
    sizes = np.bincount(values, minlength=count)
    order = np.argsort(values, kind="stable")
    return np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []


def place_among_equals(values):
    """Returns for each entry how many equal ones stand before it.

    Args:
        values: `[n]`.
    """
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    starts = np.searchsorted(sorted_values, sorted_values)
    places = np.empty(len(values), np.int64)
    places[order] = np.arange(len(values)) - starts
    return places


# What an object says of itself, in a line or two: sizes, no contents.

MOST_ITEMS = 4
MOST_LETTERS = 80
_OF_ITEMS = (dict.__repr__, list.__repr__, tuple.__repr__)


def short_repr(
    *names: str, **sizes: Callable[[Any], object]
) -> Callable[[Any], str]:
    """Returns a `__repr__` that shows some attributes.

    Args:
        *names: attributes, or methods without arguments; what is not there as
            yet is left out.
        **sizes: name -> function of the object that returns what to show.

    Example:
        __repr__ = short_repr("path", "dim", rows=len)
        # FeatureStore(path='features/vgg19', dim=4096, rows=8000)
    """

    def __repr__(self):
        parts = {}
        for name in names:
            if hasattr(self, name):
                value = getattr(self, name)
                parts[name] = value() if callable(value) else value
        parts |= {name: size(self) for name, size in sizes.items()}
        return with_parts(self, parts)

    return __repr__


def of_fields(record: Any) -> str:
    """Returns the `__repr__` of a named tuple."""
    return with_parts(record, record._asdict())


def with_parts(thing: object, parts: Mapping[str, object]) -> str:
    """Returns `Class(name=value, ...)`, each value in a few letters."""
    inside = [f"{name}={short_text(value)}" for name, value in parts.items()]
    return f"{type(thing).__name__}({', '.join(inside)})"


def short_text(value: Any) -> str:
    """Returns a value in a few letters.

    Args:
        value: of arrays come type and shape, of scalars the number, of many
            items their number, of a long string the beginning, of an object
            that only tells its address its class.
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _shown_array(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        return repr(text[:MOST_LETTERS]) + "..." * (len(text) > MOST_LETTERS)
    if type(value).__repr__ in _OF_ITEMS:
        return _shown_items(value)
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def _shown_array(array):
    """Returns type and shape; of a scalar that is known the number."""
    is_known = getattr(array.shape, "rank", 0) is not None
    sizes = ", ".join(map(str, array.shape)) if is_known else "?"
    if not sizes and hasattr(array, "numpy"):
        array = array.numpy()
    if not sizes and hasattr(array, "item"):
        return short_text(array.item())
    return f"{getattr(array.dtype, 'name', array.dtype)}[{sizes}]"


def _shown_items(items):
    """Returns a few items, or how many there are."""
    if len(items) > MOST_ITEMS:
        return f"{len(items)} items"
    if isinstance(items, dict):
        pairs = (f"{key!r}: {short_text(one)}" for key, one in items.items())
        return f"{{{', '.join(pairs)}}}"
    inside = ", ".join(map(short_text, items))
    if isinstance(items, list):
        return f"[{inside}]"
    return f"({inside}{',' * (len(items) == 1)})"


# How measured numbers are written: one rule for all tables and lines.
#
# A half goes away from zero, as in the tables of the papers: 43.15 is 43.2 and
# 75.25 is 75.3. Formats of Python would write 43.1, as the float is a little
# less than 43.15, and 75.2, the even digit.

_NOISE_DIGITS = 9  # Digits after the point below which floats are noise.
_CONTEXT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def rounded(value, digits=1):
    """Writes a number with some digits after the point.

    Args:
        value: number.
        digits: how many digits, from 0.

    Returns:
        The string; of what is not finite, `nan`, `inf` or `-inf`.
    """
    if not math.isfinite(value):
        return f"{value:.1f}"
    exact = decimal.Decimal(f"{value:.{_NOISE_DIGITS}f}")
    step = decimal.Decimal(1).scaleb(-digits)
    return f"{exact.quantize(step, context=_CONTEXT):f}"


def per_cent(share, digits=1):
    """Writes a share of 1 in per cent, without the sign.

    Args:
        share: number; 0.4315 is "43.2".
        digits: how many digits after the point.
    """
    return rounded(100 * share, digits)
