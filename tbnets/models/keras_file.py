"""Whole models as Keras saves them: one `.keras` file."""

import contextlib
import importlib
import pkgutil
import zipfile
from typing import Any

import h5py
import keras

from tbnets import layers, losses, models
from tbnets.annotations import Path
from tbnets.features.cnn_weights import check_datasets, check_unpacked_size
from tbnets.models.two_branch import TwoBranchModel
from tbnets.training import fused_optimizers  # noqa: F401

# Keras finds the classes that a file names once they are registered, and they
# are when their modules are imported.
for room in (layers, losses, models):
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)


def load_model(path: Path, **options: Any) -> TwoBranchModel:
    """Loads a model that `model.save("name.keras")` wrote, ready for `fit`.

    Weights, loss, optimizer and its state are as they were saved: training
    goes on as if it had not stopped. `keras.models.load_model` does the same
    where the classes of tbnets have been imported; in a fresh process Keras 3
    does not find them.

    Args:
        path: a `.keras` file.
        **options: as of `keras.models.load_model`, for example `compile=False`
            for a model that is only asked, or `custom_objects` for layers of
            your own that are not registered with Keras.

    Returns:
        The model.

    Raises:
        ValueError: the file would unpack to more than 20 times its size.

    Example:
        network.save("network.keras")
        network = tbnets.load_model("network.keras")
    """
    with contextlib.suppress(OSError, zipfile.BadZipFile):  # Keras reports it.
        _check_sizes(path)
    return keras.models.load_model(path, **options)


def _check_sizes(path):
    """Raises an InputError if a part of a `.keras` file would fill the memory.

    Keras unpacks the parts whole before it reads them.
    """
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            name, packed = f"{part.filename} of {path}", part.compress_size
            check_unpacked_size(name, part.file_size, packed)
            if part.filename.endswith(".h5"):
                with archive.open(part) as stream, h5py.File(stream) as file:
                    check_datasets(name, file, packed)
