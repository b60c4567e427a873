"""Type aliases, argument checks, text comparison and formatting."""

import decimal
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
from typing_extensions import TypeAliasType

from tbnets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tensorflow as tf

# Types shared by many signatures. They are lazy aliases, so that annotations
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
"""Excludes a single string, which `Sequence[str]` would accept."""
Photo = TypeAliasType(
    "Photo", "str | os.PathLike[str] | bytes | PIL.Image.Image | np.ndarray"
)
"""A path, the bytes of an image file, a PIL image or its pixels."""
Photos = TypeAliasType("Photos", "Sequence[Photo] | np.ndarray | tf.Tensor")


def checked_number(
    name, value, least, whole=False, above=False, most=math.inf, below=False
):
    """Returns `value` as a number; raises ValueError if it is out of range.

    The range is [least, most] without infinity. `above` excludes `least`,
    `below` excludes `most`, and `whole` requires an integer.
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
    kind = "an integer" if whole else "a finite number"
    expected = f"be {kind} {'>' if above else '>='} {least}"
    if most < math.inf:
        expected += f" and {'<' if below else '<='} {most}"
    raise InputError(name, expected, f"{name}={value!r}")


def as_numbers(name, values, shape, dtype=np.float32):
    """Returns `values` as an array; raises ValueError if the shape is wrong.

    A None in `shape` matches any size, and `shape=None` matches any shape.
    """
    try:
        array = np.asarray(values, dtype)
        received = f"shape={array.shape}"
        fits = shape is None or len(shape) == array.ndim
    except (TypeError, ValueError, OverflowError):  # Words, or ragged rows.
        received, fits = f"{name}={short_text(values)}", False
    if fits and all(
        size in (None, actual) for size, actual in zip(shape or (), array.shape)
    ):
        return array
    raise InputError(name, f"be numbers of shape {shape}", received)


def refuse_single(name, values):
    """Raises ValueError unless `values` is a list, tuple or array of items.

    Rejects strings, paths, bytes, single photos, dicts, sets and generators.
    """
    single = str | bytes | os.PathLike | PIL.Image.Image | Mapping
    is_one = isinstance(values, np.ndarray) and values.ndim in (0, 2, 3)
    is_list = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if is_one or isinstance(values, single) or not is_list:
        raise InputError(name, "be a list", f"one {type(values).__name__}")


def checked_rows(name, values, num_rows, count=None):
    """Returns the row indices `values` as an int64 array.

    Raises ValueError if an index is not an integer in [0, num_rows), or if
    there are not `count` indices.
    """
    values = np.asarray(values)
    if values.shape == (0,):
        values = values.astype(np.int64)
    fits = values.ndim == 1 and count in (None, len(values))
    if values.dtype.kind not in "iu" or not fits:
        each = "" if count is None else f", one for each of {count}"
        received = f"{values.dtype}{values.shape}"
        raise InputError(name, f"be integers{each}", received)
    bad = np.flatnonzero((values < 0) | (values >= num_rows))
    if bad.size:
        raise InputError(
            name,
            f"contain only rows >= 0 and < {num_rows}",
            f"{name}[{bad[0]}]={values[bad[0]]}",
        )
    return values.astype(np.int64)


def check_finite(name, array):
    """Raises ValueError if an array contains NaN or infinity."""
    if array.dtype.kind != "f":
        return
    # A finite sum proves that all values are finite and needs no temporary
    # array. An infinite sum may be an overflow, so the values are checked.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum(dtype=np.float64)):
            return
    for place in map(tuple, np.argwhere(~np.isfinite(array))):
        raise InputError(
            name,
            "contain only finite numbers",
            f"{array[place]} in row {place[0]}",
        )


def checked_dict(name, values, keys):
    """Returns a batch as a dict; raises ValueError if a key is missing.

    `values` is the dict, or the tuple (dict, None, ...) that Keras passes.
    """
    if isinstance(values, tuple | list) and not any(
        value is not None for value in values[1:]
    ):
        values = next(iter(values), values)
    is_dict = isinstance(values, Mapping)
    if is_dict and all(key in values for key in keys):
        return values
    kind = type(values).__name__
    raise InputError(
        name,
        f"be one dict with {', '.join(keys)}",
        f"a dict of {', '.join(values)}" if is_dict else f"one {kind}",
    )


# Equality of texts, photos and objects.
#
# Two texts count as equal if they have equal `text_key`s, so case and spaces do
# not matter. Two transcriptions of a caption may differ in spaces, hyphens and
# commas, but have equal `letters`. Two photos count as equal if they have equal
# ids. Two boxes in a photo show the same object if their overlap (IoU) is at
# least `SAME_THING`.

SAME_THING = 0.5
"""Minimum IoU of two boxes that show the same object. All papers use 0.5."""
_BYTE_ORDER_MARK = "\ufeff"
_NO_LETTERS = re.compile(r"[\W_]+")


def spelling(text):
    """Returns a text with single spaces between its words."""
    return " ".join(text.replace(_BYTE_ORDER_MARK, " ").split())


def text_key(text):
    """Returns the case-folded text with single spaces between its words."""
    return spelling(text).casefold()


def letters(text):
    """Returns only the letters and digits of a text, case-folded."""
    return _NO_LETTERS.sub("", text).casefold()


def numbered(keys):
    """Returns int64 ids `[n]`, counted from 0; equal keys have equal ids."""
    numbers = {}
    ids = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(ids, np.int64)


def first_twice(keys):
    """Returns the first key that occurred before, or None if all differ."""
    seen = set()
    return next((key for key in keys if key in seen or seen.add(key)), None)


def text_ids(texts):
    """Returns int64 ids `[n]`; texts with equal `text_key`s have equal ids."""
    return numbered(map(text_key, texts))


def rows_of(some, ids):
    """Returns, for each id in `some`, its position in `ids`, int64 `[n]`."""
    rows = {key: row for row, key in enumerate(ids)}
    return np.array([rows[key] for key in some], np.int64)


def rows_by(values, count=0):
    """Returns a list of arrays; array v contains the rows with the value v.

    `values` is int `[n]`. Rows are ascending. There are at least `count`
    arrays.
    """
    sizes = np.bincount(values, minlength=count)
    order = np.argsort(values, kind="stable")
    return np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []


def place_among_equals(values):
    """Returns int64 `[n]`: how often each value occurs before its position."""
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    starts = np.searchsorted(sorted_values, sorted_values)
    places = np.empty(len(values), np.int64)
    places[order] = np.arange(len(values)) - starts
    return places


# Short representations of objects, which show sizes instead of contents.

MOST_ITEMS = 4
MOST_LETTERS = 80
_OF_ITEMS = (dict.__repr__, list.__repr__, tuple.__repr__)


def short_repr(
    *names: str, **sizes: Callable[[Any], object]
) -> Callable[[Any], str]:
    """Returns a `__repr__` method that shows the given attributes.

    Args:
        *names: attributes, or methods without arguments. Attributes that are
            not set yet are skipped.
        **sizes: functions of the object that compute additional values.

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


def with_parts(thing: object, parts: Mapping[str, object]) -> str:
    """Returns `Class(name=value, ...)` with shortened values."""
    inside = [f"{name}={short_text(value)}" for name, value in parts.items()]
    return f"{type(thing).__name__}({', '.join(inside)})"


def short_text(value: Any) -> str:
    """Returns a short text for a value; for an array, its dtype and shape."""
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
    is_known = getattr(array.shape, "rank", 0) is not None
    sizes = ", ".join(map(str, array.shape)) if is_known else "?"
    if not sizes and hasattr(array, "numpy"):
        array = array.numpy()
    if not sizes and hasattr(array, "item"):
        return short_text(array.item())
    return f"{getattr(array.dtype, 'name', array.dtype)}[{sizes}]"


def _shown_items(items):
    if len(items) > MOST_ITEMS:
        return f"{len(items)} items"
    if isinstance(items, dict):
        pairs = (f"{key!r}: {short_text(v)}" for key, v in items.items())
        return f"{{{', '.join(pairs)}}}"
    inside = ", ".join(map(short_text, items))
    if isinstance(items, list):
        return f"[{inside}]"
    return f"({inside}{',' * (len(items) == 1)})"


# Rounding of measured numbers.
#
# Halves are rounded away from zero, as in the papers' tables: 43.15 gives 43.2,
# and 75.25 gives 75.3. Python's format gives 43.1, because the float is
# slightly below 43.15, and 75.2, because it rounds to the even digit.

_NOISE_DIGITS = 9  # Later digits of a float are noise.
_CONTEXT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def rounded(value, digits=1):
    """Formats a number with `digits` digits after the decimal point.

    A number that is not finite becomes `nan`, `inf` or `-inf`.
    """
    if not math.isfinite(value):
        return f"{value:.1f}"
    exact = decimal.Decimal(f"{value:.{_NOISE_DIGITS}f}")
    step = decimal.Decimal(1).scaleb(-digits)
    return f"{exact.quantize(step, context=_CONTEXT):f}"


def per_cent(share, digits=1):
    """Formats a fraction as a percentage without "%": 0.4315 becomes "43.2"."""
    return rounded(100 * share, digits)


def checked_arrays(
    image_embeddings, text_embeddings, caption_to_image, image_groups=None
):
    """Checks the arrays of `evaluate_retrieval`, and returns them."""
    images, texts = checked_embeddings(
        image_embeddings=image_embeddings, text_embeddings=text_embeddings
    )
    counts = len(images), len(texts)
    groups = caption_to_image, image_groups
    return images, texts, *checked_groups(*groups, *counts)


def checked_groups(caption_to_image, image_groups, num_images, num_texts):
    """Returns the image of each caption and the group of each image."""
    counts = num_images, num_texts
    rows = checked_rows("caption_to_image", caption_to_image, *counts)
    if image_groups is None:
        return rows, np.arange(num_images)
    unbounded = np.iinfo(np.int64).max
    names = "image_groups", image_groups
    return rows, checked_rows(*names, unbounded, num_images)


def checked_embeddings(**named):
    """Checks that two arrays `[rows, dim]` have equal `dim`; returns both."""
    arrays = {name: np.asarray(each) for name, each in named.items()}
    for name, values in arrays.items():
        kind, shape = values.dtype, values.shape
        is_real = kind.kind in "fiu" or kind.name == "bfloat16"
        if not is_real or len(shape) != 2 or 0 in shape:
            raise InputError(
                name,
                "hold real numbers of shape [rows, dim], both >= 1",
                f"{kind}{shape}",
            )
    (first, first_rows), (name, second_rows) = arrays.items()
    if first_rows.shape[1] != second_rows.shape[1]:
        raise InputError(
            name,
            f"have {first_rows.shape[1]} columns like `{first}`",
            second_rows.shape,
        )
    return first_rows, second_rows


def warn_of_bfloat16(name, dtype):
    """Warns about the argument `name` if its dtype is bfloat16."""
    if dtype.name == "bfloat16":
        warnings.warn(
            f"`{name}` should be float32. Received: bfloat16, whose rounding "
            "causes ties and changes ranks. Pass the float32 embeddings.",
            stacklevel=2,
        )


def finite_scores(values, rows=None, name="scores"):
    """Checks that all scores are finite; returns them as float32.

    Error messages contain the number in `rows` of a bad row, or its position if
    `rows` is None.
    """
    values = np.asarray(values)
    warn_of_bfloat16(name, values.dtype)
    with np.errstate(over="ignore"):  # Reported below as non-finite.
        scores = values.astype(np.float32, copy=False)
    bad = np.argwhere(~np.isfinite(scores))
    if len(bad):
        value, place = values[tuple(bad[0])], bad[0].tolist()
        if rows is not None:
            place[0] = int(rows[place[0]])
        raise InputError(name, "be finite in float32", f"{name}{place}={value}")
    return scores
