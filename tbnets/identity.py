"""What "the same" means, one function each: a text, a photo, a thing.

Two texts are the same where their `text_key` is: they read alike, in capitals
or not. Where two hands wrote down one text, with other blanks, hyphens and
commas, their `letters` are the same. Photos are the same where their ids are.
Two boxes of a photo show the same thing from an overlap of `SAME_THING` on.

What is the same gets one number (`numbered`), and is found by it (`rows_by`).
"""

import re

import numpy as np

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
