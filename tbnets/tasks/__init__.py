"""Tasks and models of runs.

The names of `registry` are attributes of this package. Their first use imports
TensorFlow, which is not needed to read flags (`settings`).
"""

import importlib

_NAMES = {
    "BUILDERS",
    "TASKS",
    "fixed_flags",
    "open_task",
    "settings_of",
}


def __getattr__(name):
    """Imports a name of `registry` on first use."""
    if name in _NAMES:
        return getattr(importlib.import_module("tbnets.tasks.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.")
