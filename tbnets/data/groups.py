"""Rows that belong together, by a value that they share."""

import numpy as np


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
