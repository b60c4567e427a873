"""Type names for annotations, argument checks and short texts of objects."""

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

# Types of many signatures. At run time they are only names, so that annotations
# import neither TensorFlow nor PIL.

Array = TypeAliasType("Array", "np.ndarray | tf.Tensor")
Integers = TypeAliasType("Integers", "np.ndarray | tf.Tensor | Sequence[int]")
Batch = TypeAliasType("Batch", "Mapping[str, np.ndarray | tf.Tensor]")
Tensors = TypeAliasType("Tensors", "dict[str, tf.Tensor]")
Boxes = TypeAliasType("Boxes", "np.ndarray | Sequence[Sequence[float]]")
Path = TypeAliasType("Path", "str | os.PathLike[str]")
Strings = TypeAliasType(
    "Strings", "list[str] | tuple[str, ...] | np.ndarray | tf.Tensor"
)
"""Not `Sequence[str]`, since a single string is a sequence of strings too."""
Photo = TypeAliasType(
    "Photo", "str | os.PathLike[str] | bytes | PIL.Image.Image | np.ndarray"
)
"""A path, the bytes of an image file, a PIL image or its pixels."""
Photos = TypeAliasType("Photos", "Sequence[Photo] | np.ndarray | tf.Tensor")


def checked_number(
    name, value, least, whole=False, above=False, most=math.inf, below=False
):
    """Returns a number if it is finite and within the bounds, else raises.

    Args:
        name: name of the argument.
        value: its value.
        least: minimum.
        whole: whether it must be an integer; an int is then returned.
        above: whether `least` is excluded.
        most: maximum.
        below: whether `most` is excluded.
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
    """Returns rows as an array; raises ValueError if their lengths differ."""
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
    """Converts values to a NumPy array; raises ValueError if they do not fit.

    Args:
        name: name of the argument.
        values: array or nested lists.
        what: name of the values in the message, such as "embeddings".
        shape: the expected tuple, None for any size; or None for any shape.
        advice: what to change.
        dtype: type of the array.
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
    """Raises ValueError unless the argument `name` is a list or an array.

    A string, a path, bytes, a photo, a dict, a set or a generator is rejected.
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
    """Returns row numbers as int64; raises ValueError for others.

    Args:
        name: name of the argument.
        values: int `[n]`; n may be 0.
        num_rows: number of rows.
        count: the required n; None for any.
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
            f"{name}[{bad[0]}]={values[bad[0]]}; {bad.size} values are not "
            "rows",
            "Count from 0.",
        )
    return values.astype(np.int64)


def check_finite(name, array):
    """Raises ValueError naming the first row with NaN or infinity.

    Args:
        name: name of the argument.
        array: `[n, ...]`; only floats are checked.
    """
    if array.dtype.kind != "f":
        return
    # A finite sum proves that all values are finite, without a temporary array
    # of this size. A sum of finite values may overflow.
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
    """Returns a batch as a dict; raises ValueError if keys are missing.

    Args:
        name: name of the batch in the message.
        values: a dict; or the tuple (dict, None, ...) that Keras makes of it.
        keys: the keys that the dict must have.
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
        "Pass `fit` one dict with all inputs: its ids define which rows match.",
    )


# When two texts, photos or objects count as equal.
#
# Texts are equal if their `text_key`s are: case and blanks do not matter.
# Transcriptions of one text, with other blanks, hyphens and commas, have equal
# `letters`. Photos are equal if their ids are. Two boxes of a photo show one
# object if they overlap by at least `SAME_THING`.
#
# `numbered` gives equal values one number; `rows_by` finds rows by number.

SAME_THING = 0.5
"""Overlap (IoU) from which two boxes show one object. All papers: 0.5."""
_BYTE_ORDER_MARK = "\ufeff"
_NO_LETTERS = re.compile(r"[\W_]+")


def spelling(text):
    """Returns a text with single blanks between its words."""
    return " ".join(text.replace(_BYTE_ORDER_MARK, " ").split())


def text_key(text):
    """Returns the case-folded text with single blanks between its words.

    Texts with equal keys count as equal. Punctuation matters.
    """
    return spelling(text).casefold()


def letters(text):
    """Returns only the letters and digits of a text, case-folded."""
    return _NO_LETTERS.sub("", text).casefold()


def numbered(keys):
    """Numbers the distinct keys by first occurrence: int64 `[n]`, from 0."""
    numbers = {}
    found = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(found, np.int64)


def first_twice(keys):
    """Returns the first key that repeats an earlier key, or None."""
    seen = set()
    return next((key for key in keys if key in seen or seen.add(key)), None)


def text_ids(texts):
    """Numbers texts by `text_key`: int64 `[n]` from 0, equal for equal keys."""
    return numbered(map(text_key, texts))


def rows_of(some, ids):
    """Returns the row of each of `some` ids in the list `ids`, int64 `[n]`."""
    rows = {key: row for row, key in enumerate(ids)}
    return np.array([rows[key] for key in some], np.int64)


def rows_by(values, count=0):
    """Returns, for each value from 0, the ascending rows that have it.

    Args:
        values: int `[n]` from 0.
        count: minimum number of lists.
    """
    sizes = np.bincount(values, minlength=count)
    order = np.argsort(values, kind="stable")
    return np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []


def place_among_equals(values):
    """Returns, for each entry of `[n]`, the number of equals before it."""
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    starts = np.searchsorted(sorted_values, sorted_values)
    places = np.empty(len(values), np.int64)
    places[order] = np.arange(len(values)) - starts
    return places


# Short representations of objects: sizes, no contents.

MOST_ITEMS = 4
MOST_LETTERS = 80
_OF_ITEMS = (dict.__repr__, list.__repr__, tuple.__repr__)


def short_repr(
    *names: str, **sizes: Callable[[Any], object]
) -> Callable[[Any], str]:
    """Returns a `__repr__` that shows the given attributes.

    Args:
        *names: attributes, or methods without arguments. Attributes that are
            not set yet are left out.
        **sizes: name -> function that computes the value from the object.

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
    """Returns `Class(name=value, ...)` with shortened values."""
    inside = [f"{name}={short_text(value)}" for name, value in parts.items()]
    return f"{type(thing).__name__}({', '.join(inside)})"


def short_text(value: Any) -> str:
    """Returns a short text for a value.

    An array gives its type and shape, a scalar its number, a long list its
    length, a long string its first characters, an object with the default
    `repr` its class.
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
    """Returns type and shape of an array, or the value of a known scalar."""
    is_known = getattr(array.shape, "rank", 0) is not None
    sizes = ", ".join(map(str, array.shape)) if is_known else "?"
    if not sizes and hasattr(array, "numpy"):
        array = array.numpy()
    if not sizes and hasattr(array, "item"):
        return short_text(array.item())
    return f"{getattr(array.dtype, 'name', array.dtype)}[{sizes}]"


def _shown_items(items):
    """Returns a few items, or their number."""
    if len(items) > MOST_ITEMS:
        return f"{len(items)} items"
    if isinstance(items, dict):
        pairs = (f"{key!r}: {short_text(one)}" for key, one in items.items())
        return f"{{{', '.join(pairs)}}}"
    inside = ", ".join(map(short_text, items))
    if isinstance(items, list):
        return f"[{inside}]"
    return f"({inside}{',' * (len(items) == 1)})"


# Rounding of measured numbers, for all tables and lines.
#
# Halves are rounded away from zero, as in the tables of the papers: 43.15 to
# 43.2 and 75.25 to 75.3. Python's formats give 43.1, as the float is slightly
# below 43.15, and 75.2, the even digit.

_NOISE_DIGITS = 9  # Digits after the point; later digits of a float are noise.
_CONTEXT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def rounded(value, digits=1):
    """Formats a number with `digits` digits after the point.

    A number that is not finite gives `nan`, `inf` or `-inf`.
    """
    if not math.isfinite(value):
        return f"{value:.1f}"
    exact = decimal.Decimal(f"{value:.{_NOISE_DIGITS}f}")
    step = decimal.Decimal(1).scaleb(-digits)
    return f"{exact.quantize(step, context=_CONTEXT):f}"


def per_cent(share, digits=1):
    """Formats a fraction in per cent, without the sign: 0.4315 gives "43.2"."""
    return rounded(100 * share, digits)
