"""Reads the tensors of a torch checkpoint of the older kind, without torch.

Such a file is four pickles (a magic number, a protocol number, facts of the
machine that wrote it, the tensors by name), a fifth with the keys of the
storages, and the storages. A pickle is a program: before one is run, its
instructions are looked at, and those that build dictionaries, lists, tuples,
strings and whole numbers alone are let through. The names that it asks for
are looked up in a table here, never imported: `OrderedDict` is Python's own,
`_rebuild_tensor_v2` a note of where a tensor lies. Every other is refused.
"""

import collections
import io
import math
import pathlib
import pickle
import pickletools
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
MOST_BYTES = 1 << 30
MOST_INSTRUCTIONS = 200_000
MOST_TUPLES = 10_000
"""Where they lie in each other, Python's hash of them calls itself in C."""
MOST_DIMENSIONS = 8
_INSTRUCTIONS = frozenset(
    """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1
    BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT
    MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID
    """.split()
)


class BrokenTorchFileError(InputError):
    """A file that is no torch checkpoint of tensors alone, or a damaged one.

    Args:
        reason: what is wrong with it, a few words after "which".
    """


class _Storage(NamedTuple):
    """Numbers in a row, somewhere behind the pickles."""

    key: str
    dtype: str
    size: int


class _Tensor(NamedTuple):
    """Where a tensor lies in its storage, counted in numbers."""

    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple


class _NoteTensor:
    """Stands for `_rebuild_tensor_v2`; a pickle can change nothing of it."""

    __slots__ = ()

    def __call__(self, *arguments):
        """Returns the `_Tensor` of arguments that fit together."""
        storage, offset, shape, strides = arguments[:4]
        if not (
            isinstance(storage, _Storage)
            and type(shape) is type(strides) is tuple
            and len(shape) == len(strides) <= MOST_DIMENSIONS
            and _are_counts((offset, *shape, *strides))
        ):
            raise BrokenTorchFileError("describes a tensor that can not be")
        last = offset + sum(
            (side - 1) * stride for side, stride in zip(shape, strides)
        )
        size = math.prod(shape)
        if not 0 < size <= storage.size or last >= storage.size:
            raise BrokenTorchFileError(
                f"has a tensor of shape {shape!a:.80}, strides {strides!a:.80} "
                f"from {offset!a:.40} on, beyond its storage of "
                f"{storage.size!a:.40} numbers"
            )
        return _Tensor(storage, offset, shape, strides)


_NAMES = {
    "collections.OrderedDict": collections.OrderedDict,
    "torch._utils._rebuild_tensor_v2": _NoteTensor(),
    "torch.FloatStorage": "<f4",
    "torch.LongStorage": "<i8",
}


class _Unpickler(pickle.Unpickler):
    """Runs a pickle; afterwards `storages` has key -> `_Storage`."""

    def __init__(self, stream):
        super().__init__(stream)
        self.storages = {}

    def find_class(self, module, name):
        """Returns what stands for a name; nothing is imported for it."""
        name = f"{module}.{name}"
        if name not in _NAMES:
            raise BrokenTorchFileError(
                f"asks for {name!a:.80}, which tensors do not need and which "
                "was not called"
            )
        return _NAMES[name]

    def persistent_load(self, identity):
        """Returns the `_Storage` of what identifies one."""
        kind, dtype, key, _, size, view = identity
        if not (
            kind == "storage"
            and dtype in ("<f4", "<i8")
            and type(key) is str
            and _are_counts([size])
            and view is None
        ):
            raise BrokenTorchFileError("names a storage that can not be")
        storage = _Storage(key, dtype, size)
        if self.storages.setdefault(key, storage) != storage:
            raise BrokenTorchFileError(f"has two storages {key!a:.40}")
        return storage


def _run(stream):
    """Runs the pickle at the stream's place, and leaves it at its end.

    Returns:
        (value, storages): what it made, and key -> `_Storage` of those that
        it named.
    """
    start = stream.tell()
    try:
        _check_instructions(stream)
        stream.seek(start)
        unpickler = _Unpickler(stream)
        return unpickler.load(), unpickler.storages
    except BrokenTorchFileError:
        raise
    except (
        *(ValueError, TypeError, LookupError, AttributeError, EOFError),
        *(OverflowError, RecursionError, pickle.UnpicklingError),
    ) as error:
        raise BrokenTorchFileError(
            "is cut off, damaged or no such file: its pickles can not be "
            f"read at byte {stream.tell()} ({error!s:.80})"
        ) from error


def _check_instructions(stream):
    """Refuses a pickle that could do more than make notes of tensors."""
    tuples = 0
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        name = opcode.name
        tuples += name.startswith("TUPLE")
        if count == MOST_INSTRUCTIONS or tuples > MOST_TUPLES:
            raise BrokenTorchFileError(
                f"has more than {MOST_INSTRUCTIONS} instructions, or makes "
                f"more than {MOST_TUPLES} tuples"
            )
        # Python makes room for all places up to that at which one is kept.
        if name not in _INSTRUCTIONS or (
            name == "LONG_BINPUT" and argument > count
        ):
            raise BrokenTorchFileError(
                f"holds the instruction {name} {argument!a:.80}, which "
                "tensors do not need"
            )


def read_tensors(path) -> dict:
    """Reads a checkpoint that is one dictionary of tensors.

    Args:
        path: file that `torch.save` wrote before torch 1.6, or later with
            `_use_new_zipfile_serialization=False`.

    Returns:
        dict of name -> float32 or int64 array. They are views of the file's
        content, which is at most 1 GiB, and can not be written to.

    Raises:
        ValueError: it is none, holds something other than tensors, is cut
            off, or its sizes contradict each other. Nothing of it has been
            executed, and no memory asked for on its word.
    """
    path = pathlib.Path(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BrokenTorchFileError(f"has more than {MOST_BYTES} bytes")
        return _tensors(path.read_bytes())
    except BrokenTorchFileError as error:
        raise BrokenTorchFileError(
            "`weights` must be a torch checkpoint of the older kind that "
            f"holds tensors alone. Received: weights={path}, which {error}. "
            "Name another file, or install or fetch this one again."
        ) from error


def _tensors(content):
    """Returns name -> array of a checkpoint's content."""
    if content.startswith(b"PK\x03\x04"):
        raise BrokenTorchFileError(
            "is of the newer kind, a zip archive; in torch, save it with "
            "_use_new_zipfile_serialization=False"
        )
    stream = io.BytesIO(content)
    _check_head(stream)
    notes, storages = _run(stream)
    if not isinstance(notes, dict):
        raise BrokenTorchFileError("holds no dictionary of tensors")
    # A pickle may have put other things in place of a dictionary's methods.
    for name, note in dict.items(notes):
        if type(name) is not str:
            raise BrokenTorchFileError("has a key that is no string")
        if not isinstance(note, _Tensor):
            raise BrokenTorchFileError(f"holds {name!a}, which is no tensor")
    keys, _ = _run(stream)
    if not isinstance(keys, list) or not all(type(x) is str for x in keys):
        raise BrokenTorchFileError("holds no list of its storages' keys")
    arrays = _read_storages(content, stream.tell(), keys, storages)
    return {name: _view(note, arrays) for name, note in dict.items(notes)}


def _check_head(stream):
    """Checks the magic number, the version and the order of bytes."""
    if _run(stream)[0] != MAGIC_NUMBER:
        raise BrokenTorchFileError("does not start with torch's magic number")
    if _run(stream)[0] != PROTOCOL_VERSION:
        raise BrokenTorchFileError(
            f"is of another protocol than {PROTOCOL_VERSION}"
        )
    facts, _ = _run(stream)
    if not isinstance(facts, dict):
        raise BrokenTorchFileError("does not tell the order of its bytes")
    if dict.get(facts, "little_endian") is not True:
        raise BrokenTorchFileError("does not say that it is little-endian")


def _read_storages(content, start, keys, storages):
    """Returns key -> array of the storages, which must fill the file."""
    if len(set(keys)) != len(keys) or set(keys) != set(storages):
        raise BrokenTorchFileError(
            f"lists {len(keys)} storages, which are not the {len(storages)} "
            "of its tensors"
        )
    arrays = {}
    for key in keys:
        _, dtype, size = storages[key]
        dtype = np.dtype(dtype)
        found = int.from_bytes(content[start : start + 8], "little")
        end = start + 8 + size * dtype.itemsize
        if end > len(content):
            raise BrokenTorchFileError(
                f"is cut off: storage {key!a:.40} of {size} numbers ends at "
                f"byte {end}, the file at {len(content)}"
            )
        if found != size:
            raise BrokenTorchFileError(
                f"has a storage {key!a:.40} of {found} numbers, of which its "
                f"tensors say that there are {size}"
            )
        arrays[key] = np.frombuffer(content, dtype, size, start + 8)
        start = end
    if start != len(content):
        raise BrokenTorchFileError(
            f"has {len(content) - start} bytes after its last storage"
        )
    return arrays


def _view(note, arrays):
    """Returns a tensor as a view of its storage."""
    numbers = arrays[note.storage.key]
    size = numbers.itemsize
    return np.lib.stride_tricks.as_strided(
        numbers[note.offset :],
        note.shape,
        [size * stride for stride in note.strides],
        writeable=False,
    )


def _are_counts(values):
    """Tells whether values are whole numbers from 0."""
    return all(type(value) is int and value >= 0 for value in values)
