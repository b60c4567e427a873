"""Maps the names of tasks and models to their definitions.

To add a task, add its class to `TASKS`. To add a model, add a row to `MODELS`.
"""

from tbnets.errors import InputError, check_choice
from tbnets.tasks.builders import MODELS as MODELS
from tbnets.tasks.hierarchical import HierarchicalTask
from tbnets.tasks.localization import LocalizationTask
from tbnets.tasks.matching import MatchingTask
from tbnets.tasks.settings.settings import BASE, Settings, make_settings

TASKS = {"matching": MatchingTask, "localization": LocalizationTask}
VARIANTS = {("matching", "hm_lstm"): HierarchicalTask}
"""Maps (task, model) to a subclass of the task for this model."""


def settings_of(record) -> Settings:
    """Returns the `Settings` for a record, a dict of all flag values.

    Raises ValueError if --task or --model is unknown, or if the model does not
    support the task.
    """
    for name, known in (("task", TASKS), ("model", MODELS)):
        check_choice(f"--{name}", record[name], known)
    task, model = TASKS[record["task"]], MODELS[record["model"]]
    if model.tasks and record["task"] not in model.tasks:
        expected = f"be {model.tasks[0]} with --model={record['model']}"
        raise InputError("--task", expected, f"--task={record['task']}")
    groups = {*BASE, *task.flag_groups, *model.flag_groups}
    return make_settings(record, groups)


def open_task(settings: Settings):
    """Returns the `Task` that the settings describe."""
    task, model = settings.run.task, settings.run.model
    kind = VARIANTS.get((task, model), TASKS[task])
    return kind(settings)
