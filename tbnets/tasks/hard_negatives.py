"""Settings, network -> the hard negatives that the last epochs learn from.

A run with `--hard_negative_epochs` records them once, before the first of
these epochs, and holds them in its checkpoints: a run that goes on has the
same ones.
"""

import tqdm

from tbnets.data.hard_negatives import NONE, hard_negatives
from tbnets.errors import InputError

TABLE = "hard_negatives"
RECORDED = "hard_negatives_recorded"
"""Names in `Task.held`: the table, and the epoch before which it was made."""


def first_epoch(settings):
    """Returns the epoch (from 0) that learns from them first, or None."""
    count = settings.hard_negative_epochs
    if settings.task != "localization" or not count:
        return None
    return settings.epochs - count


def check(settings):
    """Refuses a run that would look for them before it learned anything.

    Raises:
        ValueError: all epochs would learn from hard negatives.
    """
    first = first_epoch(settings)
    if first is not None and first < 1:
        raise InputError(
            "`--hard_negative_epochs` must be below the number of epochs: "
            "a network that has learned nothing does not know what is hard. "
            f"Received: --hard_negative_epochs={settings.hard_negative_epochs} "
            f"with {settings.epochs} epochs. Lower it, or raise --epochs."
        )


def of_epoch(settings, held, epoch, examples, score):
    """Returns the hard negatives of an epoch, and what a run then holds.

    Args:
        settings: the run's settings.
        held: the task's `held`.
        epoch: integer from 0.
        examples: `PhraseExamples` of the training split.
        score: function (examples, progress) -> `RegionScorer.scores`.

    Returns:
        (table, held): what `data.hard_negatives` returns, None in epochs
        without; and `held`, or the new one.

    Raises:
        ValueError: the run holds those of other phrases.
    """
    first = first_epoch(settings)
    if first is None or epoch < first:
        return None, held
    if held.get(RECORDED) != first:
        table = _record(examples, settings.hard_negatives_per_phrase, score)
        held = {**held, TABLE: table, RECORDED: first}
    table, roles = held[TABLE], examples.roles.roles
    if len(table) != len(roles) or table.max(initial=NONE) >= roles.shape[1]:
        raise InputError(
            "`--phrases` must be those that the run was started with. "
            f"Received: {len(roles)} training phrases with up to "
            f"{roles.shape[1]} regions, and the run holds hard negatives of "
            f"{len(table)}. Restore them, or start a new --run_dir."
        )
    return table, held


def _record(examples, limit, score):
    """Finds the hard negatives of all phrases, with a bar; tells of them."""
    with tqdm.tqdm(
        total=len(examples.image_rows),
        desc="hard negatives",
        leave=False,
        disable=None,
        unit="photo",
    ) as bar:
        similarities = score(examples, bar.update)["similarities"]
    table = hard_negatives(similarities, examples.roles.roles, limit)
    counts = (table != NONE).sum(axis=1)
    tqdm.tqdm.write(
        f"hard negatives: {counts.mean():.1f} regions a phrase; "
        f"{int((counts == 0).sum())} of {len(counts)} phrases have none and "
        "keep the negatives that they had"
    )
    return table
