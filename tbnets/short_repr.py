"""What an object says of itself, in a line or two: sizes, no contents."""

import os
from collections.abc import Callable, Mapping
from typing import Any

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
    inside = [f"{name}={shown(value)}" for name, value in parts.items()]
    return f"{type(thing).__name__}({', '.join(inside)})"


def shown(value: Any) -> str:
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
        return shown(array.item())
    return f"{getattr(array.dtype, 'name', array.dtype)}[{sizes}]"


def _shown_items(items):
    """Returns a few items, or how many there are."""
    if len(items) > MOST_ITEMS:
        return f"{len(items)} items"
    if isinstance(items, dict):
        pairs = (f"{key!r}: {shown(one)}" for key, one in items.items())
        return f"{{{', '.join(pairs)}}}"
    inside = ", ".join(map(shown, items))
    if isinstance(items, list):
        return f"[{inside}]"
    return f"({inside}{',' * (len(items) == 1)})"
