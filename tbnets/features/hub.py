"""Handles the names of Keras Hub presets, `hub:PRESET`.

PRESET is a name in Keras Hub (`hub:clip_vit_base_patch16`), a handle
(`hub:kaggle://...`, `hub:hf://...`), or a folder.
"""

import pathlib

PREFIX = "hub:"
"""Prefix of a preset in flags that also accept other networks."""


def package():
    """Imports `tbnets.extras.hub`."""
    # This is the only import of an extra in the core packages.
    from tbnets.extras import hub

    return hub


def is_hub(name):
    """Returns whether a flag's value names a Keras Hub preset."""
    return isinstance(name, str) and name.startswith(PREFIX)


def placed(name, *starts):
    """Makes the folder path in a preset's name absolute.

    A relative path is looked up in the folders `starts`, in order, or by
    default in the current folder. If no folder exists, the name is returned
    unchanged.
    """
    for start in starts or [""] if is_hub(name) else ():
        folder = pathlib.Path(start, name.removeprefix(PREFIX)).absolute()
        if folder.is_dir():
            return f"{PREFIX}{folder}"
    return name


def unplaced(name):
    """Removes the parent folders from the path in a preset's name."""
    is_path = is_hub(name) and "/" in name and "://" not in name
    return f"{PREFIX}{pathlib.Path(name).name}" if is_path else name
