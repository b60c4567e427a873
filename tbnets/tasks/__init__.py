"""What a run is about: its data, network, measures and endpoints.

`TASKS` and `parts.BUILDERS` are the two axes of a run: what it is about, and
what is trained for it. Each is a plain dict; an entry is all it takes.
"""

from tbnets.errors import InputError, check_choice
from tbnets.tasks.localization.tenant import TENANT as LOCALIZATION
from tbnets.tasks.matching.tenant import TENANT as MATCHING
from tbnets.tasks.parts import BUILDERS
from tbnets.tasks.settings.settings import make_settings

TASKS = {"matching": MATCHING, "localization": LOCALIZATION}


def settings_of(record):
    """Returns the `Settings` that a task and a model make of a record.

    Args:
        record: dict, flag -> value, of all flags; it names both.

    Raises:
        ValueError: --task or --model is unknown; the known ones are listed.
            Or the task has not what the model needs.
    """
    for name, known in (("task", TASKS), ("model", BUILDERS)):
        check_choice(f"--{name}", record[name], known)
    tenant, model = TASKS[record["task"]], BUILDERS[record["model"]]
    needs = set(model.needs)
    fitting = [k for k, other in TASKS.items() if needs <= set(other.gives)]
    if record["task"] not in fitting:
        raise InputError(
            f"`--task` must be {' or '.join(fitting)} with --model="
            f"{record['model']}. Received: --task={record['task']}. Change "
            "one of them."
        )
    groups = ("run", *tenant.flag_groups, *model.flag_groups)
    return make_settings(record, groups, dict((*tenant.fixed, *model.fixed)))


def open_task(settings):
    """Returns the task of some settings."""
    return TASKS[settings.task].compose(settings, BUILDERS[settings.model])
