"""The flags of a run, in groups.

Every flag of a run stands once, with its unit and the papers' value, in
`data_groups` or `learning_groups`. A task and a model name the groups they
read; inside a group a flag may be read under some values of others alone.
"""

from tbnets.flags.data_groups import DATA_GROUPS
from tbnets.flags.flag import reads
from tbnets.flags.learning_groups import LEARNING_GROUPS
from tbnets.losses.presets import PRESETS

GROUPS = {**DATA_GROUPS, **LEARNING_GROUPS}
TITLES = {
    "run": "The run",
    "captions": "Captions and splits",
    "images": "Images, from pixels or from features",
    "features": "Photos, and features of images or regions",
    "regions": "Phrases and regions",
    "phrases": "Regions that phrases name, and batches of both",
    "correspondences": "Regions that phrases are found to name",
    "texts": "Texts, and what reads them",
    "batches": "Batches",
    "branches": "Branches into the shared space",
    "triplet_loss": "Loss",
    "pairs": "Pairs, and the head that judges them",
    "cca": "Canonical correlation analysis",
    "optimizer": "Optimizer",
    "training": "Training",
}
"""Group -> title, in the order in which data pass through a run."""
ALL = {flag.name: flag for group in GROUPS.values() for flag in group}


def flags_read(settings, groups):
    """Returns the flags that a run reads, in the order of the table.

    Args:
        settings: the run's settings.
        groups: names of the groups that its task and model read.
    """
    return [
        flag
        for group, members in GROUPS.items()
        for flag in members
        if group in groups
        and hasattr(settings, flag.name)
        and reads(flag, settings)
    ]


def complete(values):
    """Returns settings with the defaults of those that are missing.

    Beside the flags stands `started_in`, the folder from which relative
    places start: "" for the current one.

    Args:
        values: dict of some settings, for example those that a run of an
            older version was started with; None stands for a missing one.
    """
    found = {}
    for name, flag in ALL.items():
        found[name] = values.get(name)
        if found[name] is None:
            found[name] = flag.default
        if flag.kind == "integers":
            found[name] = [int(item) for item in found[name]]
        elif flag.kind == "list":
            found[name] = list(found[name])
    loss = {**PRESETS["wang2018"], **PRESETS[found["loss"]]}
    for name in found:
        term = name.removesuffix("_weight")
        if found[name] is None:
            found[name] = loss.get(name, loss["term_weights"].get(term, 0.0))
    found["started_in"] = values.get("started_in", "")
    return found
