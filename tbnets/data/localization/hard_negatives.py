"""Finds hard negatives: wrong regions that rank before a correct region.

    table = hard_negatives(similarities, roles.roles, 50)
    table[p][table[p] >= 0]  # columns of phrase p, the hardest first

A run finds hard negatives once, before the first epoch that uses them, and
saves them in its checkpoints.
"""

import numpy as np
import tqdm

from tbnets.data.localization.examples import NEGATIVE, POSITIVE
from tbnets.errors import InputError
from tbnets.progress import progress_bar

TABLE, RECORDED = "hard_negatives", "hard_negatives_recorded"
"""Keys of a run's state: the table, and the first epoch that uses it."""
PER_PHRASE = 50
NONE = -1
ROWS_AT_ONCE = 4096


def hard_negatives(similarities, roles, limit=PER_PHRASE):
    """Finds, for each phrase, the negatives that rank before a positive.

    A negative is hard if it is more similar to the phrase than the least
    similar positive. A phrase without positives has no hard negatives.

    Args:
        similarities: float `[num_phrases, width]`; larger is closer.
        roles: int8 `[num_phrases, width]`, from `proposal_roles`.
        limit: maximum number of negatives per phrase, >= 1. Wang 2016: 50.

    Returns:
        int16 `[num_phrases, limit]`, columns of `roles`, padded with -1.

    Source: Wang et al. 2016, Sec. 3.3, "Fine-tuned with negative mining".
    Departures: a phrase that occurs in several photos has a list per photo; a
    list contains the hardest negatives instead of a sample; regions that
    overlap the true box too much are not negatives; positives are proposals.
    """
    if roles.shape[1] > np.iinfo(np.int16).max:
        raise InputError(
            "roles",
            "have at most 32767 columns",
            f"{roles.shape[1]} regions of a photo",
            "Propose fewer regions.",
        )
    table = np.full((len(roles), limit), NONE, np.int16)
    for start in range(0, len(roles), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        scores = np.asarray(similarities[rows])
        positives = np.where(roles[rows] == POSITIVE, scores, np.inf)
        bar = positives.min(axis=1, initial=np.inf, keepdims=True)
        is_hard = (roles[rows] == NEGATIVE) & (scores > bar)
        keys = np.where(is_hard, -scores, np.inf)
        order = np.argsort(keys, axis=1, kind="stable")[:, :limit]
        is_valid = np.take_along_axis(is_hard, order, axis=1)
        table[rows, : order.shape[1]] = np.where(is_valid, order, NONE)
    return table


def recorded(state, first, examples, score):
    """Returns the state of a run with hard negatives; finds them if missing.

    `first` is the first epoch that uses the hard negatives. `score(examples,
    progress)` returns an object with `similarities`.
    """
    roles, count = examples.roles.roles, len(examples.image_rows)
    if state.get(RECORDED) != first:
        with progress_bar(count, "hard negatives", "photo") as bar:
            similarities = score(examples, bar.update).similarities
        table = hard_negatives(similarities, roles)
        counts = (table != NONE).sum(axis=1)
        tqdm.tqdm.write(
            f"hard negatives: {counts.mean():.1f} regions per phrase; "
            f"{int((counts == 0).sum())} of {len(counts)} phrases have none "
            "and keep their negatives"
        )
        state = {**state, TABLE: table, RECORDED: first}
    table = state[TABLE]
    if len(table) != len(roles) or table.max(initial=NONE) >= roles.shape[1]:
        raise InputError(
            "--phrases",
            "name the phrases with which the run was started",
            f"{roles.shape} phrases and regions, hard negatives for "
            f"{len(table)} phrases",
            "Restore the file, or start a new --run_dir.",
        )
    return state
