"""The tasks and models that a run may have.

The names of `registry` are attributes of this package. The first use of such a
name imports TensorFlow; reading flags (`settings`) does not.
"""

import importlib

_NAMES = {
    "BUILDERS",
    "COMPOSED",
    "TASKS",
    "fixed_flags",
    "open_task",
    "settings_of",
}


def __getattr__(name):
    """Imports a name of `registry` when it is first used."""
    if name in _NAMES:
        return getattr(importlib.import_module("tbnets.tasks.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.")
