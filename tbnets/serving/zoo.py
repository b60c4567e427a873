"""The model zoo: trained models that are part of the package.

::

    model_zoo/NAME/README.md      description, training data and use
                  /NAME.flags     flags of the training run
                  /metrics.json   evaluation metrics
                  /sha256.txt     SHA-256 of all other files
                  /1/             the SavedModel
                  /answers.json   only if `assembled` adds image networks

The checksums are verified before a model is loaded.
"""

import os
import pathlib
from typing import TYPE_CHECKING, NamedTuple

from tbnets import startup
from tbnets.checks import Path, per_cent
from tbnets.errors import InputError, MissingFileError
from tbnets.features import hub
from tbnets.files import CheckedFile, shipped_folder
from tbnets.serving.checksums import (
    ANSWERS,
    CHECKSUMS,
    check_files,
    model_files,
)

if TYPE_CHECKING:
    from tbnets.serving.served import Served

METRICS = "metrics.json"
_DIRECTIONS = ("image_to_text", "text_to_image", "phrase_to_region")


def folder() -> pathlib.Path:
    """Returns the folder of the zoo, in a clone or in the installed package."""
    return shipped_folder("model_zoo")


def names() -> list[str]:
    """Returns the sorted names of the zoo models.

    Example:
        tbnets.zoo.names()  # ["flickr8k_photos", "scenes_embedding", ...]
    """
    return sorted(path.parent.name for path in folder().glob(f"*/{CHECKSUMS}"))


class Described(NamedTuple):
    """Description of a zoo model.

    Args:
        name: name for `load`.
        task: "matching" of images and sentences, or "localization" of phrases.
        language: language of the texts.
        size: size of the model's files in bytes.
        recall: recall at 1, 5 and 10 on the test split, for each direction.
    """

    name: str
    task: str
    language: str
    size: int
    recall: dict[str, list[float]]


class Descriptions(list[Described]):
    """A list of `Described` that prints as a table."""

    def __repr__(self) -> str:
        titles = [way.replace("_", " ") for way in _DIRECTIONS]
        rows = [("model", "task", "language", "size", *titles)]
        for model in self:
            recalls = [model.recall.get(way, ()) for way in _DIRECTIONS]
            cells = [" ".join(map(per_cent, values)) for values in recalls]
            size = f"{model.size / 1e6:.1f} MB"
            rows.append((model.name, model.task, model.language, size, *cells))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
            for row in rows
        ]
        lines.append("Recall at 1, 5 and 10 in per cent, on the test splits.")
        return "\n".join(line.rstrip() for line in lines)


def describe() -> Descriptions:
    """Returns a table of the zoo models, as a list of `Described`.

    Example:
        print(tbnets.zoo.describe())
    """
    descriptions = Descriptions()
    for name in names():
        path = folder() / name
        metrics = CheckedFile(path / METRICS).json()
        test = metrics["test"]
        recall = {
            way: [test[f"{way}/recall_at_{k}"] for k in (1, 5, 10)]
            for way in _DIRECTIONS
            if f"{way}/recall_at_1" in test
        }
        task = "localization" if _DIRECTIONS[-1] in recall else "matching"
        language = metrics["language"]
        descriptions.append(Described(name, task, language, size(path), recall))
    return descriptions


def size(path: Path) -> int:
    """Returns the size of a model's files in bytes."""
    return sum(file.stat().st_size for file in model_files(path).values())


def load(name: str) -> "Served":
    """Loads a zoo model after verifying its files.

    Args:
        name: a name in `names()`.

    Returns:
        A `served.Served`.

    Raises:
        ValueError: there is no such model, or its files were changed.

    Example:
        model = tbnets.zoo.load("flickr8k_photos")
        model.similarity(["dog.jpg"], ["a dog in the snow"])  # [1, 1] cosine
    """
    if name not in names():
        raise InputError("name", "be a zoo model", f"name={name!r}", _known())
    return open_model(name)


def open_model(name_or_path: Path, trust: bool = False) -> "Served":
    """Loads a zoo model or a user's own model.

    Args:
        name_or_path: a name in `names()`; the folder of a run, of a SavedModel
            or of its versions; or `hub:PRESET`, a Keras Hub preset that embeds
            photos and captions. For a folder with the name of a zoo model, pass
            `./NAME` or a `pathlib.Path`.
        trust: whether to allow all ops in the model's graph.

    Returns:
        A `served.Served`.

    Raises:
        ValueError: as in `load` and `served.load_saved_model`.
        FileNotFoundError: there is no such model or folder.
    """
    path = locate(name_or_path)
    with startup.quiet_tensorflow():
        from tbnets.serving.served import load_saved_model
    return load_saved_model(path, trust)


def model_folder(name_or_path: Path) -> pathlib.Path:
    """Returns the folder of a zoo model, or any other argument as a path.

    A Keras Hub preset, `hub:PRESET`, is exported on first use.
    """
    if hub.is_hub(name_or_path):
        with startup.quiet_tensorflow():
            return hub.package().exported(name_or_path)
    # Only strings are names: pathlib turns ./NAME into NAME.
    is_name = isinstance(name_or_path, str) and name_or_path in names()
    return pathlib.Path(folder() if is_name else "", name_or_path)


def locate(name_or_path: Path) -> pathlib.Path:
    """Returns the folder of the model that `open_model` loads.

    Verifies the files of a zoo model, and assembles the model if it needs
    networks from the `photos` extra.
    """
    path = model_folder(name_or_path)
    if not (os.fspath(name_or_path) and path.is_dir()):
        expected = "be the name of a zoo model, or a folder with a SavedModel"
        raise MissingFileError("model", expected, name_or_path, _known())
    if (path / CHECKSUMS).is_file():
        check_files(path)
        if (path / ANSWERS).is_file():
            with startup.quiet_tensorflow():
                from tbnets.serving.assembled import assembled
            return assembled(path)
    return path


def _known():
    if not names():
        return f"The zoo in {folder()} is empty."
    return f"The zoo has {', '.join(names())}."
