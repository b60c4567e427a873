"""Reads the weights of a network from an HDF5 or a torch file."""

import collections
import hashlib
import io
import math
import pathlib
import pickle
import struct

import h5py
import numpy as np

from tbnets.data.store.npy import ERRORS
from tbnets.errors import InputError
from tbnets.files import require_file

# An old torch checkpoint consists of five pickles and the storages of the
# tensors. The pickles hold a magic number, a protocol number, facts about the
# machine, the tensors by name, and the keys of the storages. A pickle can call
# any function that it names, so the unpickler accepts only the four names in
# `_NAMES` and imports no others.

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
MOST_BYTES = 1 << 30
_DAMAGES = (*ERRORS, EOFError, pickle.UnpicklingError, struct.error)
"""Errors that a broken pickle raises."""


def _note_tensor(storage, offset, shape, strides, *_):
    return storage, (offset, shape, strides)


_DTYPES = {"torch.FloatStorage": "<f4", "torch.LongStorage": "<i8"}
_NAMES = _DTYPES | {
    "collections.OrderedDict": collections.OrderedDict,
    "torch._utils._rebuild_tensor_v2": _note_tensor,
}


class _Unpickler(pickle._Unpickler):
    # Python's C unpickler would allocate as much memory as a damaged file
    # requests.

    def find_class(self, module, name):
        name = f"{module}.{name}"
        if name not in _NAMES:
            raise InputError(f"names {name!a:.80} (it was not called)")
        return _NAMES[name]

    def persistent_load(self, identity):
        _, dtype, key, _, size, _ = identity
        return key, dtype, size


def read_tensors(path) -> dict:
    """Reads a torch checkpoint that contains one dictionary of tensors.

    The file must be at most 1 GiB, and written by `torch.save` before torch 1.6
    or with `_use_new_zipfile_serialization=False`. No code in the file is
    executed, and its size bounds the memory use. The returned arrays are
    read-only float32 or int64.
    """
    path = pathlib.Path(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"has more than {MOST_BYTES} bytes")
        return _tensors(path.read_bytes())
    except _DAMAGES as error:
        raise InputError(
            "weights",
            "be a torch checkpoint of tensors, saved with "
            "_use_new_zipfile_serialization=False",
            f"weights={path} ({error!s:.300})",
            "Name another file, or install or download it again.",
        ) from error


def _tensors(content):
    stream = io.BytesIO(content)
    magic, version, facts, tensors, keys = (
        _Unpickler(stream).load() for _ in range(5)
    )
    # A malicious pickle can replace the methods of a dictionary.
    is_little = dict.get(facts, "little_endian") is True
    if (magic, version, is_little) != (MAGIC_NUMBER, PROTOCOL_VERSION, True):
        raise InputError("it is not a little-endian checkpoint")
    tensors = dict(dict.items(tensors))
    storages = {key: where for (key, *where), _ in tensors.values()}
    start, arrays = stream.tell(), {}
    for key in keys:
        dtype, size = storages[key]
        if int.from_bytes(content[start : start + 8], "little") != size:
            raise InputError(f"a storage has not {size!a:.40} numbers")
        arrays[key] = np.frombuffer(content, dtype, size, start + 8)
        start += 8 + arrays[key].nbytes
    return {
        name: _view(arrays[key], *place)
        for name, ((key, *_), place) in tensors.items()
    }


def _view(numbers, offset, shape, strides):
    # A step of 0 would give a view that is larger than its storage.
    if math.prod(shape) > numbers.size:
        raise InputError(f"a tensor exceeds its storage: {shape!a:.200}")
    size = numbers.itemsize
    steps = [size * step for step in strides]
    return np.ndarray(shape, numbers.dtype, numbers, size * offset, steps)


MOST_LISTED = 5
MOST_UNPACKED = 20
"""Maximum ratio of the weights' memory to the size of their file."""
_FREE = 1 << 20
"""Bytes of memory that are always allowed, in addition to this ratio."""


def check_datasets(name, file, size):
    """Raises an InputError if an HDF5 file's arrays need too much memory.

    `file` is a path or an open binary file of `size` bytes.
    """
    sizes = []

    def add_size(_, item):
        if isinstance(item, h5py.Dataset):
            sizes.append(item.nbytes)

    with h5py.File(file, "r") as opened:
        opened.visititems(add_size)
    if sum(sizes) > MOST_UNPACKED * size + _FREE:
        raise InputError(
            f"{name} must have arrays of at most {MOST_UNPACKED} times its "
            f"{size} bytes. Received: {sum(sizes)} bytes."
        )


def weights_sha256(network) -> str:
    """Returns the SHA-256 digest of a network's weights, in layer order."""
    digest = hashlib.sha256()
    for layer in network.layers:
        for tensor in layer.get_weights():
            digest.update(tensor.tobytes())
    return digest.hexdigest()


def load_weights(network, path):
    """Loads weights from a Keras HDF5 file into a network.

    Layers are matched by name, or by order if no name matches. Layers that the
    network lacks, such as a classifier, are skipped. If an error is raised, the
    network is unchanged.
    """
    require_file(path, "weights")
    try:
        check_datasets(path, path, pathlib.Path(path).stat().st_size)
        with h5py.File(path, "r") as file:
            root = file.get("model_weights", file)
            is_old = "layer_names" in root.attrs
            stored = _stored_layers(root) if is_old else {}
    # HDF5 raises RuntimeError; a name that is not UTF-8 raises ValueError.
    except (*ERRORS, OSError, RuntimeError) as error:
        received = f"weights={path}, which cannot be read ({error})"
        raise InputError(
            "weights", "be an HDF5 file that Keras wrote", received
        ) from error
    if is_old:
        assign(network, stored, path)
        return
    try:
        network.load_weights(str(path))
    except Exception as error:  # Keras raises many types here.
        received = f"weights={path}, which Keras rejects ({error})"
        raise InputError("weights", f"fit {network.name}", received) from error


def _text(name):
    return name.decode() if isinstance(name, bytes) else str(name)


def _stored_layers(root):
    stored = {}
    for name in map(_text, root.attrs["layer_names"]):
        group = root[name]
        names = map(_text, group.attrs["weight_names"])
        tensors = [np.asarray(group[tensor]) for tensor in names]
        if tensors:
            stored[name.replace("/", "_")] = tensors
    return stored


def assign(network, stored, path):
    """Sets a network's weights from a dict {layer name: list of arrays}.

    Layers are matched as in `load_weights`. `path` is for error messages.
    """
    layers = [layer for layer in network.layers if layer.weights]
    missing = [layer.name for layer in layers if layer.name not in stored]
    if not missing:
        matches = [(layer, stored[layer.name]) for layer in layers]
    elif len(missing) == len(layers) and len(layers) == len(stored):
        matches = list(zip(layers, stored.values()))
    else:
        raise InputError(
            "weights",
            f"have every layer of {network.name}",
            f"weights={path} without {len(missing)} of {len(layers)} layers, "
            f"such as {', '.join(missing[:MOST_LISTED])}",
        )
    for layer, tensors in matches:
        expected = [tuple(weight.shape) for weight in layer.weights]
        shapes = [tensor.shape for tensor in tensors]
        is_numeric = all(x.dtype.kind in "fiu" for x in tensors)
        if shapes != expected or not is_numeric:
            raise InputError(
                "weights",
                f"have numbers of shapes {expected} in layer {layer.name}",
                f"weights={path} with {shapes}",
            )
    for layer, tensors in matches:
        layer.set_weights(tensors)
