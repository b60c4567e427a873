"""Loads whole models from `.keras` files."""

import importlib
import io
import pkgutil
import zipfile
from typing import Any

import keras

from tbnets import layers, losses, models
from tbnets.checks import Path
from tbnets.data import candidate_mining as mining  # noqa: F401
from tbnets.errors import InputError
from tbnets.features import hub, image_encoders  # noqa: F401
from tbnets.features.cnn_weights import check_datasets
from tbnets.models.two_branch import TwoBranchModel
from tbnets.training import optimizers  # noqa: F401

# Importing a module registers its classes with Keras.
for package in (layers, losses, models):
    for module in pkgutil.iter_modules(
        package.__path__, f"{package.__name__}."
    ):
        importlib.import_module(module.name)


def load_model(path: Path, **options: Any) -> TwoBranchModel:
    """Loads a model saved by `model.save("name.keras")`.

    Weights, loss, optimizer and optimizer state are restored, so training
    continues as if uninterrupted. `keras.models.load_model` also works, but
    only after the classes of tbnets are imported.

    Args:
        path: a `.keras` file.
        **options: options of `keras.models.load_model`, for example
            `compile=False` for inference only, or `custom_objects` for your own
            layers that are not registered with Keras.

    Raises:
        ValueError: If the file contains no model, if it is compressed, or if
            its weights require more than 20 times its size in memory.

    Example:
        network.save("network.keras")
        loaded = tbnets.load_model("network.keras")
    """
    if zipfile.is_zipfile(path):  # Keras raises an error for other files.
        _check_sizes(path)
    hub.package()  # Registers the hub's layers.
    return keras.models.load_model(path, **options)


def _check_sizes(path):
    # Keras writes uncompressed members, but reads compressed members of any
    # size.
    try:
        with zipfile.ZipFile(path) as archive:
            for part in archive.infolist():
                if part.compress_type != zipfile.ZIP_STORED:
                    raise InputError(f"{part.filename} is compressed")
            # Read at once, because HDF5 seeks often.
            weights = archive.read("model.weights.h5")
        check_datasets(
            f"the weights of {path}", io.BytesIO(weights), len(weights)
        )
    except Exception as error:  # zipfile and HDF5 raise many types.
        raise InputError(
            "path",
            "be a `.keras` file that `model.save` wrote",
            f"{path} ({error})",
        ) from error
