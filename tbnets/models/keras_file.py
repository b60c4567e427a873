"""Loads whole models from `.keras` files."""

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

# Importing a module registers its classes; Keras then finds them by name.
for package in (layers, losses, models):
    for module in pkgutil.iter_modules(
        package.__path__, f"{package.__name__}."
    ):
        importlib.import_module(module.name)


def load_model(path: Path, **options: Any) -> TwoBranchModel:
    """Loads a model that `model.save("name.keras")` wrote, ready for `fit`.

    Weights, loss, optimizer and optimizer state are restored, so training
    continues without a change. `keras.models.load_model` also works once the
    classes of tbnets are imported; in a fresh process Keras 3 does not find
    them.

    Args:
        path: a `.keras` file.
        **options: options of `keras.models.load_model`, for example
            `compile=False` for inference only, or `custom_objects` for your
            own layers that are not registered with Keras.

    Returns:
        The model.

    Raises:
        ValueError: If the file holds no model or is compressed, or its weights
            need more than 20 times the file's size in memory.

    Example:
        network.save("network.keras")
        network = tbnets.load_model("network.keras")
    """
    if zipfile.is_zipfile(path):  # Keras reports other files.
        _check_sizes(path)
    hub.package()  # Registers the hub's layers.
    return keras.models.load_model(path, **options)


def _check_sizes(path):
    """Raises InputError if a `.keras` file would fill the memory.

    Keras writes uncompressed members, but unpacks compressed ones at any size.
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
    except Exception as error:  # Zip and HDF5 raise several types.
        raise InputError(
            "path",
            "be a `.keras` file as `model.save` writes it",
            f"path={path} ({error})",
            "Save the model again.",
        ) from error
