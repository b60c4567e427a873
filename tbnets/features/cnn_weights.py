"""Reads the weights of a network from an HDF5 file.

Keras wrote such files in two layouts. The older one (a group a layer, listed
in the attribute `layer_names`) is read here, tensor by tensor, so that what
does not fit can be named; the newer one (`.weights.h5`) is read by Keras.
"""

import hashlib
import pathlib

import h5py
import numpy as np

from tbnets.data.store.npy import ERRORS
from tbnets.errors import InputError, MissingFileError

MOST_LISTED = 5
MOST_UNPACKED = 20
"""Largest ratio of the memory that weights take to the size of their file."""
_FREE = 1 << 20
"""Bytes of memory that are allowed at any ratio."""


def check_datasets(name, file, size):
    """Raises an InputError if the arrays of an HDF5 file would fill the memory.

    HDF5 can compress an array, or leave out parts of it; Keras does neither.

    Args:
        name: the file, for the message.
        file: path of the HDF5 file, or an open binary file.
        size: number of bytes of the file.
    """
    sizes = []

    def add_size(_, item):
        if isinstance(item, h5py.Dataset):
            sizes.append(item.nbytes)

    with h5py.File(file, "r") as opened:
        opened.visititems(add_size)
    if sum(sizes) > MOST_UNPACKED * size + _FREE:
        raise InputError(
            f"Weights must take at most {MOST_UNPACKED} times the size of the "
            f"file. Received: {name} with arrays of {sum(sizes)} bytes in "
            f"{size}. Save them again without compression."
        )


def weights_sha256(network) -> str:
    """Returns the sha256 of all weights of a network, layer by layer."""
    digest = hashlib.sha256()
    for layer in network.layers:
        for tensor in layer.get_weights():
            digest.update(tensor.tobytes())
    return digest.hexdigest()


def load_weights(network, path):
    """Puts the weights of a file into a network.

    Layers are matched by name (with `/` read as `_`); where the names of
    the file are others throughout, by their order. What the file has beyond
    the network, such as a classifier, is left out.

    Args:
        network: a built Keras model.
        path: HDF5 file that Keras wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no HDF5 file of weights, or a tensor is missing
            or of another shape; the message names it. The network is then
            unchanged.
    """
    require_weights_file(path)
    try:
        check_datasets(path, path, pathlib.Path(path).stat().st_size)
        with h5py.File(path, "r") as file:
            root = file.get("model_weights", file)
            is_old = "layer_names" in root.attrs
            stored = _stored_layers(root) if is_old else {}
    # RuntimeError: HDF5's own structures; ValueError: a name that is no UTF-8.
    except (*ERRORS, OSError, RuntimeError) as error:
        raise InputError(
            "`weights` must be an HDF5 file of weights that Keras wrote. "
            f"Received: weights={path}, which can not be read as one "
            f"({error}). Fetch or copy it again."
        ) from error
    if is_old:
        assign(network, stored, path)
        return
    try:
        network.load_weights(str(path))
    except Exception as error:  # Keras raises what it likes here
        raise InputError(
            f"`weights` must fit {network.name}. Received: weights={path}, "
            f"which Keras refuses: {error}. Name the file of this network."
        ) from error


def require_weights_file(path):
    """Raises FileNotFoundError unless there is a file."""
    if not pathlib.Path(path).is_file():
        raise MissingFileError(
            f"`weights` must be a weights file. Received: weights={path}, "
            "which is not a file. Check `weights`."
        )


def _text(name):
    return name.decode() if isinstance(name, bytes) else str(name)


def _stored_layers(root):
    """Returns layer name -> list of arrays, for layers that have any."""
    stored = {}
    for name in map(_text, root.attrs["layer_names"]):
        group = root[name]
        names = map(_text, group.attrs["weight_names"])
        tensors = [np.asarray(group[tensor]) for tensor in names]
        if tensors:
            stored[name.replace("/", "_")] = tensors
    return stored


def assign(network, stored, path):
    """Puts arrays into the layers of a network.

    Args:
        network: a built Keras model.
        stored: dict of layer name -> list of arrays, as `load_weights`
            matches them.
        path: the file they are from, for messages.

    Raises:
        ValueError: a tensor is missing or of another shape; the message
            names it. The network is then unchanged.
    """
    layers = [layer for layer in network.layers if layer.weights]
    missing = [layer.name for layer in layers if layer.name not in stored]
    if not missing:
        matches = [(layer, stored[layer.name]) for layer in layers]
    elif len(missing) == len(layers) and len(layers) == len(stored):
        matches = list(zip(layers, stored.values()))
    else:
        raise InputError(
            f"`weights` must hold every layer of {network.name}. Received: "
            f"weights={path} without {', '.join(missing[:MOST_LISTED])} "
            f"({len(missing)} of {len(layers)} layers); it has "
            f"{', '.join(list(stored)[:MOST_LISTED])}, ... Name the file of "
            "this network, with its classifier where that is asked for."
        )
    for layer, tensors in matches:
        _check_shapes(layer, tensors, path)
    for layer, tensors in matches:
        layer.set_weights(tensors)


def _check_shapes(layer, tensors, path):
    expected = [tuple(weight.shape) for weight in layer.weights]
    found = [tensor.shape for tensor in tensors]
    if found != expected or any(t.dtype.kind not in "fiu" for t in tensors):
        names = [w.name.split("/")[-1].split(":")[0] for w in layer.weights]
        kinds = sorted({str(tensor.dtype) for tensor in tensors})
        raise InputError(
            f"`weights` must hold numbers for layer {layer.name}: "
            f"{', '.join(names)} of shapes {expected}. Received: shapes "
            f"{found} of {', '.join(kinds)} in {path}. Name the file of this "
            "network and version, or fetch it again."
        )
