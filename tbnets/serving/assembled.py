"""Assembles a zoo model from its own part and networks that pip installs.

A model on features of photos is far smaller than the published networks that
make the features. So a folder of the zoo may hold only a SavedModel of
features, with `answers.json`: the whole model's embeddings of some photos and
sentences. The first use adds the networks of the extra `photos`, compares the
embeddings and keeps the whole::

    CACHE/zoo/DIGEST/NAME/1/            the SavedModel
                         /identity.txt  digest of its parts
                         /sha256.txt    as in the zoo

`CACHE` is `$TBNETS_CACHE`, else `tbnets` in the user's cache folder. `DIGEST`
depends on the files of the zoo and the versions of tbnets and TensorFlow.
"""

import hashlib
import os
import pathlib
import shutil
import threading
import time

import numpy as np
import tensorflow as tf

import tbnets
from tbnets.data.photo_kinds import MAX_PIXELS
from tbnets.data.store.locks import FolderLock
from tbnets.errors import (
    FileError,
    InputError,
    UserError,
)
from tbnets.features.photo_features import open_photo_features
from tbnets.files import CheckedFile, new_folder, write_text
from tbnets.progress import say
from tbnets.serving.checksums import (
    ANSWERS,
    CHECKSUMS,
    check_files,
    write_checksums,
)
from tbnets.serving.endpoints import begin_with_photos
from tbnets.serving.export import reexport
from tbnets.serving.photo_index import IDENTITY
from tbnets.serving.saved_files import hash_files
from tbnets.serving.served import load_saved_model

TOLERANCE = 1e-3
"""Allowed difference of a number in an embedding from the recorded one."""
_NUMBERS = 32
"""Number of values compared in each embedding."""
_SIZES = ((500, 375), (320, 480), (90, 60))
_CAPTIONS = ("a dog runs through the snow", "two children on a beach")
_making = threading.Lock()


def put_together(source, path):
    """Writes a model of photos: networks and the model of their features.

    Args:
        source: a SavedModel of features that networks made of photos, as in
            `saved_files.newest_version`.
        path: folder to write, as in `export.write_saved_model`.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        ValueError: the networks are not installed, have different weights, or
            the model has no description of its features.
    """

    def add(served):
        made_by = served.metadata.get("metadata", {})
        made_by = made_by.get("image_features_made_by", {})
        try:
            features = open_photo_features(made_by, "imagenet")
        except (KeyError, TypeError) as error:
            raise InputError(
                "source",
                "record the networks of its features",
                f"source={source}, without {error}",
                "Export it from a run on feature stores of photos.",
            ) from error
        return begin_with_photos(served, features)

    return reexport(source, path, add=add, told={"max_pixels": MAX_PIXELS})


def answers_of(model):
    """Returns the embeddings of a model for `answers.json`.

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
    """Returns a picture that is equal on every machine: uint8 `[h, w, 3]`."""
    x, y = np.arange(width) // 40, np.arange(height)[:, None] // 30
    colours = [
        x * a * (y + b) + y * b for a, b in ((97, 31), (57, 83), (19, 7))
    ]
    return (np.stack(colours, axis=2) % 256).astype(np.uint8)


def check_answers(model, wanted):
    """Raises a ValueError if a model's embeddings differ from recorded ones.

    Args:
        model: the `Served`.
        wanted: path of `answers.json`; `TOLERANCE` is the limit.
    """
    told = CheckedFile(wanted).json()
    for name, rows in answers_of(model).items():
        try:
            worst = np.abs(np.subtract(rows, told[name])).max()
        except (LookupError, TypeError, ValueError):
            worst = np.inf
        if not worst <= TOLERANCE:
            raise InputError(
                f"The model must reproduce {wanted} within {TOLERANCE:g}. "
                f"Received: {name} that differ by {worst:g}. Reinstall the "
                'networks: `pip install "tbnets[photos]"`, or install '
                "another version of TensorFlow."
            )


def cache_folder():
    """Returns the folder for assembled models, without creating it."""
    given = os.environ.get("TBNETS_CACHE")
    if given:
        return pathlib.Path(given)
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(os.path.expanduser(caches), "tbnets")


def assembled(folder):
    """Returns the folder of an assembled model, which is assembled once.

    Args:
        folder: folder of the zoo, whose files were checked.

    Raises:
        ValueError: as in `put_together` and `check_answers`.
        OSError: the assembled model cannot be kept.
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
            if not _is_whole(path):  # Another process may have made it.
                _make(folder, path)
            del lock
    except PermissionError as error:
        raise FileError(
            error.errno,
            "`TBNETS_CACHE` must name a writable folder for assembled "
            f"models. Received: {cache_folder()}, which is not: "
            f"{error.strerror}. Set the variable to another",
        ) from error
    return path


def _tell(holder):
    say(f"waiting for process {holder}, which puts the same model together")


def _is_whole(path):
    """Returns whether a folder exists with each file unchanged."""
    try:
        check_files(path)
    except (UserError, OSError):
        return False
    return True


def _versions():
    return tbnets.__version__, tf.__version__


def _identity(folder):
    """Returns the digest of the model's part and of the versions."""
    told = repr((hash_files(folder / "1"), *_versions()))
    return hashlib.sha256(told.encode()).hexdigest()


def _make(folder, path):
    """Assembles a model in a folder, which appears once it is whole."""
    say(f"putting {folder.name} together, once; it is kept in {path}")
    start = time.monotonic()
    shutil.rmtree(path, ignore_errors=True)  # The folder is damaged.
    with new_folder(path) as partial:
        put_together(folder, partial / "1")
        write_text(partial / IDENTITY, f"{_identity(folder)}\n")
        write_checksums(partial)
        check_answers(load_saved_model(partial), folder / ANSWERS)
    say(f"that took {time.monotonic() - start:.0f} s")
