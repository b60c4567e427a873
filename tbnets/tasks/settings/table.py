"""The flags of a run, in groups.

Every flag of a run stands once, with its unit and the papers' value, in the
modules of groups. A task and a model name the groups they read; inside a
group a flag may be read under some values of others alone.
"""

from tbnets.losses.presets import LOSSES, PRESETS
from tbnets.tasks.settings import data_groups as data
from tbnets.tasks.settings import learning_groups as learning
from tbnets.tasks.settings import phrase_groups as phrases
from tbnets.tasks.settings.flag import flags_of
from tbnets.tasks.settings.text_groups import Texts

GROUPS = {
    "run": data.Run,
    "captions": data.Captions,
    "images": data.Images,
    "features": data.Features,
    "regions": phrases.Regions,
    "phrases": phrases.Phrases,
    "correspondences": phrases.Correspondences,
    "texts": Texts,
    "batches": learning.Batches,
    "branches": learning.Branches,
    "loss": learning.Loss,
    "pairs": learning.Pairs,
    "cca": learning.Cca,
    "optimizer": learning.Optimizer,
    "training": learning.Training,
}
"""In the order in which data pass through a run."""
FLAGS = {name: flags_of(group) for name, group in GROUPS.items()}
"""Name of a group -> its flags."""
ALL = {flag.name: flag for flags in FLAGS.values() for flag in flags}


def complete(values):
    """Returns settings with the defaults of those that are missing.

    Beside the flags stands `started_in`, the folder from which relative
    places start: "" for the current one.

    Args:
        values: dict of some settings; None stands for a missing one.
    """
    given = {name: v for name, v in values.items() if v is not None}
    defaults = {name: flag.default for name, flag in ALL.items()}
    found = {**defaults, "started_in": "", **given}
    loss = {**PRESETS["wang2018"], **LOSSES[found["loss"]]}
    for name in ALL:
        term = name.removesuffix("_weight")
        if found[name] is None:
            found[name] = loss.get(name, loss["term_weights"].get(term, 0.0))
    return found
