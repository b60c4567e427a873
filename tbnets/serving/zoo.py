"""The model zoo: trained networks that come with the package.

::

    model_zoo/NAME/README.md      what it is, learned from what, for what
                  /NAME.flags     what trained it
                  /metrics.json   how good it is
                  /sha256.txt     the sha256 of every other file
                  /1/             the SavedModel
                  /answers.json   of a SavedModel of features alone, which
                                  networks of the extra `photos` are put before

A model is loaded from there when each of its files is the one that
`sha256.txt` names; how a part is made whole, `assembled` tells. Nothing is
downloaded, and TensorFlow is not imported before a model is asked for.
"""

import hashlib
import os
import pathlib
import shutil
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

import tbnets
from tbnets import startup
from tbnets.annotations import Path
from tbnets.checks import per_cent
from tbnets.data.photo_kinds import MAX_PIXELS
from tbnets.errors import (
    FileError,
    InputError,
    MissingFileError,
    UserError,
    check_kind,
)
from tbnets.features.photo_features import open_photo_features
from tbnets.files import CheckedFile, new_folder, shipped_folder, write_text
from tbnets.locks import FolderLock
from tbnets.progress import say
from tbnets.serving.checksums import (
    ANSWERS,
    CHECKSUMS,
    check_files,
    model_files,
    write_checksums,
)
from tbnets.serving.endpoints import begin_with_photos
from tbnets.serving.export import reexport
from tbnets.serving.photo_index import IDENTITY
from tbnets.serving.saved_files import hash_files
from tbnets.serving.served import load_saved_model

# A model of the zoo put together of what it holds and what pip installs.
#
# What learns on features of photos is far smaller than the networks that make
# them, and these are published. So a folder of the zoo may hold the branches
# alone, a SavedModel of features, with `answers.json`: what the whole answers
# to some photos and sentences. The first use puts the networks of the extra
# `photos` before it, asks the same, and keeps the whole::
#
#     CACHE/zoo/DIGEST/NAME/1/            the SavedModel
#                          /identity.txt  what it was made of
#                          /sha256.txt    as in the zoo
#
# `CACHE` is `$TBNETS_CACHE`, else `tbnets` in the user's folder for such
# files. A digest stands for the files of the zoo and the versions of what made
# the whole.

TOLERANCE = 1e-3
"""A number of an embedding may differ by so much from another machine's."""
_NUMBERS = 32
"""So many of each embedding are compared."""
_SIZES = ((500, 375), (320, 480), (90, 60))
_CAPTIONS = ("a dog runs through the snow", "two children on a beach")
_making = threading.Lock()


def put_together(source, path):
    """Writes a model of photos: networks, and what learned on their features.

    Args:
        source: a SavedModel of features by networks on photos, as in
            `saved_files.newest_version`.
        path: folder to write, as in `export.write_saved_model`.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        ValueError: the networks are not installed, their weights are others,
            or the model does not tell what made its features.
    """

    def add(served):
        made_by = served.metadata.get("metadata", {})
        made_by = made_by.get("image_features_made_by", {})
        try:
            features = open_photo_features(made_by, "imagenet")
        except (KeyError, TypeError) as error:
            raise InputError(
                "source",
                "tell which networks made its features",
                f"source={source}, without {error}",
                "Export it from a run on feature stores of photos.",
            ) from error
        return begin_with_photos(served, features)

    return reexport(source, path, add=add, told={"max_pixels": MAX_PIXELS})


def answers_of(model):
    """Returns what a model answers, for `answers.json`.

    Args:
        model: a `Served` of photos and sentences.
    """
    found = {
        "photos": model.embed_images([_mosaic(*size) for size in _SIZES]),
        "texts": model.embed_text(_CAPTIONS),
    }
    return {
        name: np.round(rows[:, :_NUMBERS].astype(float), 6).tolist()
        for name, rows in found.items()
    }


def _mosaic(width, height):
    """Returns a picture that is the same everywhere: uint8 `[h, w, 3]`."""
    x, y = np.arange(width) // 40, np.arange(height)[:, None] // 30
    colours = [
        x * a * (y + b) + y * b for a, b in ((97, 31), (57, 83), (19, 7))
    ]
    return (np.stack(colours, axis=2) % 256).astype(np.uint8)


def check_answers(model, wanted):
    """Refuses a model that does not answer as the one that was measured.

    Args:
        model: the `Served`.
        wanted: path of `answers.json`.

    Raises:
        ValueError: an answer differs by more than `TOLERANCE`.
    """
    told = CheckedFile(wanted).json()
    for name, rows in answers_of(model).items():
        try:
            worst = np.abs(np.subtract(rows, told[name])).max()
        except (LookupError, TypeError, ValueError):
            worst = np.inf
        if not worst <= TOLERANCE:
            raise InputError(
                f"The model must answer as {wanted} says, by {TOLERANCE:g}. "
                f"Received: {name} that differ by {worst:g}. Install the "
                'networks of `pip install "tbnets[photos]"` anew, or another '
                "version of TensorFlow."
            )


def cache_folder():
    """Returns where what was put together is kept; nothing is created."""
    given = os.environ.get("TBNETS_CACHE")
    if given:
        return pathlib.Path(given)
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(os.path.expanduser(caches), "tbnets")


def assembled(folder):
    """Returns the folder of a whole model, which is put together once.

    Args:
        folder: that of the zoo, whose files were checked.

    Raises:
        ValueError: see `put_together` and `check_answers`.
        OSError: it can not be kept.
    """
    folder = folder.absolute()
    told = (folder / CHECKSUMS).read_bytes(), *_versions()
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:12]
    path = cache_folder() / "zoo" / digest / folder.name
    if _is_whole(path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _making:
            lock = FolderLock.wait(path.parent, ".lock", _tell)
            if not _is_whole(path):  # Nobody else was faster.
                _make(folder, path)
            del lock
    except PermissionError as error:
        raise FileError(
            error.errno,
            "`TBNETS_CACHE` must name a folder that can be written, for models "
            f"that are put together. Received: {cache_folder()}, which can "
            f"not: {error.strerror}. Set the variable to another",
        ) from error
    return path


def _tell(holder):
    say(f"waiting for process {holder}, which puts the same model together")


def _is_whole(path):
    """Tells whether a folder is there, each file as it was written."""
    try:
        check_files(path)
    except (UserError, OSError):
        return False
    return True


def _versions():
    return tbnets.__version__, tf.__version__


def _identity(folder):
    """Returns the digest of the part, without what is there for people."""
    told = repr((hash_files(folder / "1"), *_versions()))
    return hashlib.sha256(told.encode()).hexdigest()


def _make(folder, path):
    """Puts a model together in a folder, which appears once it is whole."""
    say(f"putting {folder.name} together, once; it is kept in {path}")
    start = time.monotonic()
    shutil.rmtree(path, ignore_errors=True)  # What was there is damaged.
    with new_folder(path) as partial:
        put_together(folder, partial / "1")
        write_text(partial / IDENTITY, f"{_identity(folder)}\n")
        write_checksums(partial)
        check_answers(load_saved_model(partial), folder / ANSWERS)
    say(f"that took {time.monotonic() - start:.0f} s")


if TYPE_CHECKING:
    from tbnets.serving.served import Served

METRICS = "metrics.json"
_DIRECTIONS = ("image_to_text", "text_to_image", "phrase_to_region")


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
        task = "localization" if _DIRECTIONS[-1] in recall else "matching"
        language = metrics["language"]
        found.append(Described(name, task, language, size(path), recall))
    return found


def size(path: Path) -> int:
    """Returns how many bytes the files of a model have."""
    return sum(file.stat().st_size for file in model_files(path).values())


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
    check_name(name)
    return open_model(name)


def check_name(name: str, argument: str = "name") -> None:
    """Refuses what is no name of a model; the argument is what gave it."""
    if name not in names():
        raise InputError(
            argument,
            "be one of the zoo's",
            f"{argument}={name!r}",
            f"{_known()}",
        )


def open_model(name_or_path: Path, trust: bool = False) -> "Served":
    """Loads what a user names: a model of the zoo or one of their own.

    Args:
        name_or_path: one of `names()`; or the folder of a run, of a SavedModel
            or of its versions. A name of the zoo is taken as such: write
            `./NAME`, or give a `pathlib.Path`, for a folder that is called the
            same.
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

    One of the zoo is checked before, file by file; where it holds a part, the
    folder is that of the whole, which is put together first if need be.
    """
    advice = "Give a name of the zoo, or a folder."
    check_kind("name_or_path", name_or_path, (str, os.PathLike), advice)
    # A path is none: pathlib makes of ./NAME the same as of NAME.
    is_name = isinstance(name_or_path, str) and name_or_path in names()
    path = pathlib.Path(folder() if is_name else "", name_or_path)
    if not (os.fspath(name_or_path) and path.is_dir()):
        raise MissingFileError(
            "`model` must be a name of the zoo, or a folder with a SavedModel. "
            f"Received: model={name_or_path}, where there is none. {_known()} "
            "Your own are the folders of your runs."
        )
    if (path / CHECKSUMS).is_file():
        check_files(path)
        if (path / ANSWERS).is_file():
            with startup.quiet_tensorflow():
                pass
            return assembled(path)
    return path


def _known():
    """Returns a sentence with the names there are."""
    if not names():
        return f"There are none: {folder()} holds no model."
    return f"There are: {', '.join(names())}."
