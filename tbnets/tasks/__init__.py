"""What a run is about: its data, network, measures and endpoints.

`TASKS` and `parts.BUILDERS` are the two axes of a run: what it is about, and
what is trained for it. Each is a plain dict; an entry is all it takes.
"""

from tbnets.tasks.localization import LocalizationTask
from tbnets.tasks.matching import MatchingTask
from tbnets.tasks.parts import BUILDERS

TASKS = {"matching": MatchingTask, "localization": LocalizationTask}
ALWAYS_READ = ("run",)


def open_task(settings):
    """Returns the task of some settings.

    Flags that the model leaves at one value are set to it.

    Raises:
        ValueError: --task or --model is unknown; the known ones are listed.
    """
    for name, value, known in (
        ("task", settings.task, TASKS),
        ("model", settings.model, BUILDERS),
    ):
        if value not in known:
            raise ValueError(
                f"`--{name}` must be one of {', '.join(known)}. Received: "
                f"--{name}={value}. Choose one of these."
            )
    for name, value in BUILDERS[settings.model].fixed:
        setattr(settings, name, value)
    return TASKS[settings.task](settings)


def groups_read(settings):
    """Returns the names of the groups of flags that a run reads."""
    return {
        *ALWAYS_READ,
        *TASKS[settings.task].flag_groups,
        *BUILDERS[settings.model].flag_groups,
    }


def readers_of_groups():
    """Returns group of flags -> the tasks and models that read it."""
    readers = {}
    for flag, known in (("task", TASKS), ("model", BUILDERS)):
        for name, entry in known.items():
            for group in entry.flag_groups:
                readers.setdefault(group, []).append(f"--{flag}={name}")
    return {group: " or ".join(names) for group, names in readers.items()}
