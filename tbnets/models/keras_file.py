"""Whole models as Keras saves them: one `.keras` file."""

import importlib
import io
import pkgutil
import zipfile
from typing import Any

import keras

from tbnets import layers, losses, models
from tbnets.checks import Path
from tbnets.data.localization import mining  # noqa: F401
from tbnets.errors import InputError
from tbnets.features import (  # noqa: F401
    fisher_vectors,
    hub,
    image_encoders,
)
from tbnets.features.cnn_weights import check_datasets
from tbnets.models.two_branch import TwoBranchModel
from tbnets.training import optimizers  # noqa: F401

# Keras finds the classes that a file names once they are registered, and they
# are when their modules are imported.
for package in (layers, losses, models):
    for module in pkgutil.iter_modules(
        package.__path__, f"{package.__name__}."
    ):
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
        ValueError: the file holds no model, is compressed, or its weights
            would take more than 20 times the memory of the file.

    Example:
        network.save("network.keras")
        network = tbnets.load_model("network.keras")
    """
    if zipfile.is_zipfile(path):  # Keras reports any other file.
        _check_sizes(path)
    hub.package()  # Registers its layers.
    return keras.models.load_model(path, **options)


def _check_sizes(path):
    """Raises an InputError if a `.keras` file would fill the memory.

    Keras stores the parts of the archive uncompressed, and unpacks any other
    one whole, whatever size it states.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for part in archive.infolist():
                if part.compress_type != zipfile.ZIP_STORED:
                    raise InputError(f"{part.filename} is compressed")
            weights = archive.read("model.weights.h5")  # HDF5 seeks a lot.
        check_datasets(
            f"the weights of {path}", io.BytesIO(weights), len(weights)
        )
    except Exception as error:  # Of zip archives and HDF5, of several kinds.
        raise InputError(
            "path",
            "be a `.keras` file as `model.save` writes it",
            f"path={path} ({error})",
            "Save the model again.",
        ) from error
