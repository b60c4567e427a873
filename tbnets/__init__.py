"""Two-branch networks for image-text matching in Keras.

What a library user needs is found right here, as `tbnets.EmbeddingNetwork`;
`docs/library.md` shows it at work, and `docs/architecture.md` describes the
packages.

Importing this module is cheap: a name imports its module, and with it
TensorFlow, when it is first asked for. TensorFlow then keeps its start-up
messages to itself, unless the caller's environment says by
TF_CPP_MIN_LOG_LEVEL how much it wants to hear.
"""

import ast
import importlib
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

# Editors and type checkers read the same file.
_STUB = ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text("utf-8"))
_MODULES = {
    alias.name: f"tbnets.{node.module}"
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""Public name -> the module that it is imported from."""

__all__ = [*_MODULES]


def __getattr__(name):
    """Imports a public name when it is first asked for."""
    if name in _MODULES:
        startup = importlib.import_module("tbnets.startup")
        with startup.quiet_tensorflow():
            module = importlib.import_module(_MODULES[name])
            if not hasattr(module, name):  # It is a module itself.
                importlib.import_module(f"{_MODULES[name]}.{name}")
        globals()[name] = value = getattr(module, name)
        return value
    message = f"module 'tbnets' has no attribute {name!r}."
    if not name.startswith("_"):
        message += _nearest(name)
    raise AttributeError(message, name=name)


def __dir__():
    """Names the public ones alone: what completes `tbnets.`."""
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*_MODULES, *own})


def _nearest(name):
    """Returns a sentence with the public names most like a wrong one."""
    import difflib

    known = {public.casefold(): public for public in _MODULES}
    found = difflib.get_close_matches(name.casefold(), known)
    meant = " or ".join(f"tbnets.{known[key]}" for key in found)
    return f" Did you mean {meant}?" if meant else " See dir(tbnets)."
