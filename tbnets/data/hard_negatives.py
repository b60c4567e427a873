"""Hard negatives: wrong regions that a network ranks before a right one.

    table = hard_negatives(similarities, roles.roles, 50)
    table[p][table[p] >= 0]  # columns of phrase p, the hardest first

`similarities` and `roles` have a row for each phrase and a column for each
region of its photo, as `proposal_roles` does.
"""

import numpy as np

from tbnets.data.proposal_roles import NEGATIVE, POSITIVE
from tbnets.errors import InputError

PER_PHRASE = 50
NONE = -1
ROWS_AT_ONCE = 4096


def hard_negatives(similarities, roles, limit=PER_PHRASE):
    """Finds the negatives of each phrase that rank before its positives.

    A negative is hard where it is more similar to the phrase than one of the
    phrase's positives, the least similar of them. The most similar ones are
    kept, of equally similar ones those that stand first. A phrase without a
    positive has none.

    Args:
        similarities: float `[num_phrases, width]`; larger is closer.
        roles: int8 `[num_phrases, width]`, of `proposal_roles`.
        limit: how many are kept of a phrase, at least 1. Wang 2016: 50.

    Returns:
        int16 `[num_phrases, limit]`, columns of `roles`, then -1.

    Raises:
        ValueError: tables do not fit, are wider than int16 counts, or `limit`
            is too small.

    Source: Wang et al. 2016, Sec. 3.3, "Fine-tuned with negative mining".
        Departures: a phrase that is said of several photos has a list for
        each, of that photo's regions; lists hold the hardest, where the paper
        samples; regions that overlap the truth by more than a negative may
        are left out, of which the paper says nothing; positives are
        proposals, not the true boxes.
    """
    if similarities.shape != roles.shape or limit < 1:
        raise InputError(
            "`similarities` must have the shape of `roles`, and `limit` be at "
            f"least 1. Received: {similarities.shape}, {roles.shape} and "
            f"limit={limit}. Score the regions that the roles are of."
        )
    if roles.shape[1] > np.iinfo(np.int16).max:
        raise InputError(
            "`roles` must have at most 32767 columns. Received: "
            f"{roles.shape[1]} regions of a photo. Propose fewer."
        )
    found = np.full((len(roles), limit), NONE, np.int16)
    for start in range(0, len(roles), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        part = _hardest(np.asarray(similarities[rows]), roles[rows], limit)
        found[rows, : part.shape[1]] = part
    return found


def _hardest(similarities, roles, limit):
    """Returns int `[rows, at most limit]`, as `hard_negatives` does."""
    positives = np.where(roles == POSITIVE, similarities, np.inf)
    bar = positives.min(axis=1, initial=np.inf, keepdims=True)
    is_hard = (roles == NEGATIVE) & (similarities > bar)
    order = np.argsort(
        np.where(is_hard, -similarities, np.inf), axis=1, kind="stable"
    )[:, :limit]
    kept = np.take_along_axis(is_hard, order, axis=1)
    return np.where(kept, order, NONE)


def listed(table, width):
    """Returns which columns stand in some rows of a table.

    Args:
        table: int `[n, limit]`, rows of what `hard_negatives` returned.
        width: how many columns there are.

    Returns:
        bool `[n, width]`.
    """
    found = np.zeros((len(table), width), bool)
    rows, places = np.nonzero(table != NONE)
    found[rows, table[rows, places]] = True
    return found


def listed_rows(table, first_rows):
    """Finds the rows of a store that some rows of a table list, and whose.

    Args:
        table: int `[n, limit]`, rows of what `hard_negatives` returned.
        first_rows: int `[n]`, row of the first region of each one's photo.

    Returns:
        (rows, is_listed): int `[m]`, each row once, ascending; and bool
        `[n, m]`, which of them each row of the table lists.
    """
    owners, places = np.nonzero(table != NONE)
    rows = first_rows[owners] + table[owners, places]
    rows, columns = np.unique(rows, return_inverse=True)
    is_listed = np.zeros((len(table), len(rows)), bool)
    is_listed[owners, columns.ravel()] = True
    return rows, is_listed
