"""Folders that come with the package: the zoo, the configurations."""

import pathlib


def shipped_folder(name):
    """Returns a folder of the repository: in the wheel, or beside the package.

    Args:
        name: `model_zoo` or `configs`.

    Returns:
        `pathlib.Path`; where neither is there, the place beside the package.
    """
    package = pathlib.Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
