"""The model zoo: trained networks that come with the package.

::

    model_zoo/NAME/README.md      what it is, learned from what, for what
                  /NAME.flags     what trained it
                  /metrics.json   how good it is
                  /sha256.txt     the sha256 of every other file
                  /1/             the SavedModel

A model is loaded from there when each of its files is the one that
`sha256.txt` names. Nothing is downloaded, and TensorFlow is not imported
before a model is asked for.
"""

import pathlib
import re
from typing import TYPE_CHECKING, NamedTuple

from tbnets import startup
from tbnets.annotations import Path
from tbnets.checked_files import CheckedFile
from tbnets.errors import InputError, MissingFileError
from tbnets.rounding import per_cent
from tbnets.shipped import shipped_folder

if TYPE_CHECKING:
    from tbnets.serving.served import Served

CHECKSUMS = "sha256.txt"
METRICS = "metrics.json"
_DIRECTIONS = ("image_to_text", "text_to_image", "phrase_to_region")
_CURE = (
    "Restore the folder: `git checkout -- model_zoo` in a clone, `pip install "
    "--force-reinstall --no-deps` of the package elsewhere."
)


def folder() -> pathlib.Path:
    """Returns the folder of the zoo; see `shipped_folder`."""
    return shipped_folder("model_zoo")


def names() -> list[str]:
    """Returns the names of the models that `load` takes, sorted.

    Example:
        tbnets.zoo.names()  # ["flickr8k_photos", "scenes_embedding", ...]
    """
    return sorted(path.parent.name for path in folder().glob(f"*/{CHECKSUMS}"))


class Described(NamedTuple):
    """What a model of the zoo is.

    Args:
        name: as `load` takes it.
        task: "matching" of images and sentences, or "localization" of
            phrases, as `--task` calls them.
        language: of its sentences or phrases.
        size: bytes of its files.
        recall: direction -> at 1, 5 and 10, fractions in [0, 1], on the test
            split that its card names.
    """

    name: str
    task: str
    language: str
    size: int
    recall: dict[str, list[float]]


class Descriptions(list[Described]):
    """The `Described` of each model, which print as a table."""

    def __repr__(self) -> str:
        titles = [way.replace("_", " ") for way in _DIRECTIONS]
        rows = [("model", "task", "language", "size", *titles)]
        for one in self:
            recalls = [one.recall.get(way, ()) for way in _DIRECTIONS]
            told = [" ".join(map(per_cent, some)) for some in recalls]
            size = f"{one.size / 1e6:.1f} MB"
            rows.append((one.name, one.task, one.language, size, *told))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
            for row in rows
        ]
        lines.append("Recall at 1, 5 and 10 in per cent, on each one's test.")
        return "\n".join(line.rstrip() for line in lines)


def describe() -> Descriptions:
    """Tells what the models of the zoo are, without loading any.

    Returns:
        list of `Described`, which prints as a table.

    Example:
        print(tbnets.zoo.describe())
    """
    found = Descriptions()
    for name in names():
        path = folder() / name
        metrics = CheckedFile(path / METRICS).json()
        test = metrics["test"]
        recall = {
            way: [test[f"{way}/recall_at_{k}"] for k in (1, 5, 10)]
            for way in _DIRECTIONS
            if f"{way}/recall_at_1" in test
        }
        is_of_boxes = _DIRECTIONS[-1] in recall
        task = "localization" if is_of_boxes else "matching"
        language = metrics["language"]
        found.append(Described(name, task, language, size(path), recall))
    return found


def size(path: Path) -> int:
    """Returns how many bytes the files of a model have."""
    return sum(file.stat().st_size for file in list_files(path).values())


def load(name: str) -> "Served":
    """Loads a model of the zoo, once all of its files are checked.

    Args:
        name: one of `names()`.

    Returns:
        A `served.Served`.

    Raises:
        ValueError: no model has this name, or a file of it was changed, is
            missing or too many.

    Example:
        model = tbnets.zoo.load("flickr8k_photos")
        model.similarity(["dog.jpg"], ["a dog in the snow"])  # [1, 1] cosine
    """
    if name not in names():
        raise InputError(
            f"`name` must be one of the zoo's. Received: name={name!r}. "
            f"{_known()}"
        )
    return open_model(name)


def open_model(name_or_path: Path, trust: bool = False) -> "Served":
    """Loads what a user names: a model of the zoo or one of their own.

    Args:
        name_or_path: one of `names()`; or the folder of a run, of a SavedModel
            or of its versions. A name of the zoo is taken as such: write
            `./NAME` for a folder that is called the same.
        trust: as of `served.load_saved_model`.

    Returns:
        A `served.Served`.

    Raises:
        ValueError: see `load` and `served.load_saved_model`.
        FileNotFoundError: it is neither.
    """
    path = locate(name_or_path)
    with startup.quiet_tensorflow():
        from tbnets.serving.served import load_saved_model
    return load_saved_model(path, trust)


def locate(name_or_path: Path) -> pathlib.Path:
    """Returns the folder of what a user names, as `open_model` takes it.

    One of the zoo is checked before, file by file.
    """
    is_name = str(name_or_path) in names()
    path = pathlib.Path(folder() if is_name else "", name_or_path)
    if not path.is_dir():
        raise MissingFileError(
            "`model` must be a name of the zoo, or a folder with a SavedModel. "
            f"Received: model={name_or_path}, where there is none. {_known()} "
            "Your own are the folders of your runs."
        )
    if (path / CHECKSUMS).is_file():
        check_files(path)
    return path


def _known():
    """Returns a sentence with the names there are."""
    if not names():
        return f"There are none: {folder()} holds no model."
    return f"There are: {', '.join(names())}."


def list_files(path: Path) -> dict[str, pathlib.Path]:
    """Returns the files of a model: their path in the folder -> full path.

    The list of checksums is left out. A link is listed, not followed.
    """
    path = pathlib.Path(path)
    found = {
        one.relative_to(path).as_posix(): one
        for one in path.rglob("*")
        if one.is_symlink() or not one.is_dir()
    }
    found.pop(CHECKSUMS, None)
    return dict(sorted(found.items()))


def read_checksums(path: Path) -> dict[str, str]:
    """Returns what the list of a folder says: file -> sha256.

    Raises:
        ValueError: a line is no checksum with a file, or names one twice.
    """
    file = CheckedFile(pathlib.Path(path, CHECKSUMS))
    wanted = {}
    for number, line in enumerate(file.lines()[0], 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if match is None or match[2] in wanted:
            file.report(
                "expected a sha256, two blanks and a file that no line names "
                f"yet; found {line[:90]!r}. {_CURE}",
                number,
            )
        wanted[match[2]] = match[1]
    return wanted


def check_files(path: Path) -> None:
    """Refuses a folder whose files are not those of its list.

    Args:
        path: folder with `sha256.txt`.

    Raises:
        ValueError: a file is missing, too many, or changed by a byte; names
            the first one.
    """
    with startup.quiet_tensorflow():
        from tbnets.serving.saved_files import differences
    path = pathlib.Path(path)
    wanted, found = read_checksums(path), list_files(path)
    problems = [
        *differences(path, wanted),
        *(f"{name} is a link" for name in found if found[name].is_symlink()),
        *(f"{name} is not one of it" for name in found if name not in wanted),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise InputError(
            "A model of the zoo must be as it was published. Received: "
            f"{path}, where {problems[0]}{more}. {_CURE}"
        )
