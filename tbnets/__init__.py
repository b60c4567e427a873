"""Two-branch networks for image-text matching in Keras.

All public names are attributes of this package, such as
`tbnets.EmbeddingNetwork`. See `docs/library.md` for examples and
`docs/architecture.md` for an overview of the packages.

The first use of a public name imports its module and TensorFlow. TensorFlow's
start-up messages are hidden unless the environment variable
TF_CPP_MIN_LOG_LEVEL is set.
"""

import ast
import importlib
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

# Editors and type checkers read this stub too.
_STUB = ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text("utf-8"))
_MODULES = {
    alias.name: f"tbnets.{node.module}"
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""Maps each public name to the module that defines it."""

__all__ = [*_MODULES]


def __getattr__(name):
    """Imports a public name on first use."""
    if name in _MODULES:
        startup = importlib.import_module("tbnets.startup")
        with startup.quiet_tensorflow():
            module = importlib.import_module(_MODULES[name])
            if not hasattr(module, name):  # The name is a module.
                importlib.import_module(f"{_MODULES[name]}.{name}")
        globals()[name] = value = getattr(module, name)
        return value
    message = f"module 'tbnets' has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__():
    """Lists only the public names, for tab completion."""
    dunders = (name for name in globals() if name.startswith("__"))
    return sorted({*_MODULES, *dunders})
