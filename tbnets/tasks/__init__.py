"""What a run is about: its data, network, measures and endpoints.

`TASKS` and `parts.BUILDERS` are the two axes of a run: what it is about, and
what is trained for it. Each is a plain dict; an entry is all it takes.
"""

from tbnets.errors import InputError
from tbnets.tasks.hierarchical_matching import HierarchicalMatching
from tbnets.tasks.localization import LocalizationTask
from tbnets.tasks.matching import MatchingTask
from tbnets.tasks.parts import BUILDERS

TASKS = {"matching": MatchingTask, "localization": LocalizationTask}
OF_BOTH = {("matching", "hm_lstm"): HierarchicalMatching}
"""(task, model) -> the task where a model needs more of it than others do."""
ONE_TASK = {"hm_lstm": "matching"}
"""Model -> the task, where it fits one alone."""
ALWAYS_READ = ("run",)


def open_task(settings):
    """Returns the task of some settings.

    Flags that the task or the model leaves at one value are set to it.

    Raises:
        ValueError: --task or --model is unknown; the known ones are listed.
    """
    for name, value, known in (
        ("task", settings.task, TASKS),
        ("model", settings.model, BUILDERS),
    ):
        if value not in known:
            raise InputError(
                f"`--{name}` must be one of {', '.join(known)}. Received: "
                f"--{name}={value}. Choose one of these."
            )
    fitting = ONE_TASK.get(settings.model, settings.task)
    if settings.task != fitting:
        raise InputError(
            f"`--task` must be {fitting} with --model={settings.model}. "
            f"Received: --task={settings.task}. Change one of them."
        )
    vars(settings).update(fixed_flags(settings))
    return _task_of(settings)(settings)


def _task_of(settings):
    """Returns the class of a run's task."""
    task = TASKS[settings.task]
    return OF_BOTH.get((settings.task, settings.model), task)


def fixed_flags(settings):
    """Returns flag -> value, of those that a run leaves at one value."""
    builder = BUILDERS[settings.model]
    return dict((*_task_of(settings).fixed, *builder.fixed))


def groups_read(settings):
    """Returns the names of the groups of flags that a run reads."""
    return {
        *ALWAYS_READ,
        *_task_of(settings).flag_groups,
        *BUILDERS[settings.model].flag_groups,
    }


def readers_of_groups():
    """Returns group of flags -> the tasks and models that read it."""
    readers = {}
    for flag, known in (("task", TASKS), ("model", BUILDERS)):
        for name, entry in known.items():
            for group in entry.flag_groups:
                readers.setdefault(group, []).append(f"--{flag}={name}")
    for (task, model), entry in OF_BOTH.items():
        for group in set(entry.flag_groups) - set(TASKS[task].flag_groups):
            readers.setdefault(group, []).append(f"--model={model}")
    return {group: " or ".join(names) for group, names in readers.items()}
