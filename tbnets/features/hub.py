"""Names of presets of Keras Hub, `hub:PRESET`; what opens them is an extra.

A preset is said by a name of Keras Hub (`hub:clip_vit_base_patch16`), by a
handle (`hub:kaggle://...`, `hub:hf://...`), or by a folder.
"""

import pathlib

PREFIX = "hub:"
"""What stands before a preset where a flag may also name other networks."""


def package():
    """Returns `tbnets.extras.hub`, imported when a preset is asked for.

    It is the one place where the core imports an extra.
    """
    from tbnets.extras import hub

    return hub


def is_hub(name):
    """Tells whether a flag's value names a preset of Keras Hub."""
    return isinstance(name, str) and name.startswith(PREFIX)


def placed(name, *starts):
    """Returns the name of a preset with a relative folder's place in full.

    Args:
        name: a flag's value; another than a preset's is returned as it is.
        *starts: folders that relative ones may start from; none: the current.
    """
    for start in starts or [""] if is_hub(name) else ():
        folder = pathlib.Path(start, name.removeprefix(PREFIX)).absolute()
        if folder.is_dir():
            return f"{PREFIX}{folder}"
    return name


def unplaced(name):
    """Returns the name of a preset without the folders above its own.

    Any other value of a flag is returned as it is.
    """
    is_path = is_hub(name) and "/" in name and "://" not in name
    return f"{PREFIX}{pathlib.Path(name).name}" if is_path else name
