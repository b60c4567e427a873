"""Writes torch checkpoints of the older kind, right and forged."""

import pickle

import numpy as np

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
FACTS = {"protocol_version": 1001, "little_endian": True}
DICTIONARY = b"ccollections\nOrderedDict\n)R"


def text(value):
    encoded = value.encode()
    return b"X" + len(encoded).to_bytes(4, "little") + encoded


def number(value):
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key, kind, size):
    """What names a storage: a tuple, made persistent."""
    kind = f"ctorch\n{kind}\n".encode()
    return (
        b"("
        + text("storage")
        + kind
        + text(key)
        + text("cpu")
        + (number(size) + b"NtQ")
    )


def tensor(storage, offset, shape, strides):
    """A call of `_rebuild_tensor_v2`."""
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + number(offset)
        + numbers(shape)
        + numbers(strides)
        + b"\x89"
        + DICTIONARY
        + b"tR"
    )


def dictionary(entries):
    """An `OrderedDict` of name -> pickled value, with torch's state."""
    items = b"".join(text(name) + value for name, value in entries.items())
    state = b"}" + text("_metadata") + DICTIONARY + b"s"
    return b"\x80\x02" + DICTIONARY + b"(" + items + b"u" + state + b"b."


def storage_bytes(array):
    return np.int64(array.size).tobytes() + array.tobytes()


def head(magic=MAGIC_NUMBER, version=1001, facts=FACTS):
    return b"".join(pickle.dumps(x, 2) for x in (magic, version, facts))


def plain_tensor(key, array):
    """A tensor that lies in its storage in the order of its axes."""
    strides = [each // array.itemsize for each in array.strides]
    kind = {"f": "FloatStorage", "i": "LongStorage"}[array.dtype.kind]
    return tensor(storage(key, kind, array.size), 0, array.shape, strides)


def checkpoint(tensors):
    """Returns the content of a checkpoint of name -> array."""
    arrays = {
        name: np.array(array, "<i8" if name.endswith("tracked") else "<f4")
        for name, array in tensors.items()
    }
    keys = {name: str(1000 + i) for i, name in enumerate(arrays)}
    return b"".join(
        (
            head(),
            dictionary(
                {k: plain_tensor(keys[k], v) for k, v in arrays.items()}
            ),
            pickle.dumps(list(keys.values()), 2),
            *(storage_bytes(array) for array in arrays.values()),
        )
    )
