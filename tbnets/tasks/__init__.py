"""What a run is about: its data, network, measures and endpoints.

`TASKS` and `parts.BUILDERS` are the two axes of a run: what it is about, and
what is trained for it. Each is a plain dict; an entry is all it takes.
"""

from tbnets.errors import InputError
from tbnets.tasks import localization, matching
from tbnets.tasks.parts import BUILDERS

TASKS = {"matching": matching.TENANT, "localization": localization.TENANT}
ALWAYS_READ = ("run",)


def open_task(settings):
    """Returns the task of some settings.

    Flags that the task or the model leaves at one value are set to it.

    Raises:
        ValueError: --task or --model is unknown; the known ones are listed.
            Or the task has not what the model needs.
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
    tenant, model = _entries(settings)
    if not set(model.needs) <= set(tenant.gives):
        fitting = [
            name
            for name, other in TASKS.items()
            if set(model.needs) <= set(other.gives)
        ]
        raise InputError(
            f"`--task` must be {' or '.join(fitting)} with "
            f"--model={settings.model}. Received: --task={settings.task}. "
            "Change one of them."
        )
    vars(settings).update(fixed_flags(settings))
    return tenant.compose(settings, model)


def _entries(settings):
    """Returns the `Tenant` and the `Builder` of a run."""
    return TASKS[settings.task], BUILDERS[settings.model]


def fixed_flags(settings):
    """Returns flag -> value, of those that a run leaves at one value."""
    return dict(item for one in _entries(settings) for item in one.fixed)


def groups_read(settings):
    """Returns the names of the groups of flags that a run reads."""
    own = (group for one in _entries(settings) for group in one.flag_groups)
    return {*ALWAYS_READ, *own}


def readers_of_groups():
    """Returns group of flags -> the tasks and models that read it."""
    readers = {}
    for flag, known in (("task", TASKS), ("model", BUILDERS)):
        for name, entry in known.items():
            for group in entry.flag_groups:
                readers.setdefault(group, []).append(f"--{flag}={name}")
    return {group: " or ".join(names) for group, names in readers.items()}
