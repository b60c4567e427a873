"""Reads the tensors of a torch checkpoint of the older kind, without torch.

Such a file is four pickles (a magic number, a protocol number, facts of the
machine that wrote it, the tensors by name), a fifth with the keys of the
storages, and the storages. A pickle is a program. It is run here by a machine
that knows the few instructions a dictionary of tensors needs and calls
nothing of Python: `OrderedDict` becomes a dict, `_rebuild_tensor_v2` a note
of where a tensor lies. Every other name is refused.
"""

import io
import math
import pathlib
import pickletools
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
MOST_BYTES = 1 << 30
MOST_INSTRUCTIONS = 1_000_000
MOST_DIMENSIONS = 8
_DICTIONARY = "collections.OrderedDict"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_DTYPES = {
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.LongStorage": np.dtype("<i8"),
}
_NAMES = (_DICTIONARY, _TENSOR, *_DTYPES)
_CONSTANTS = {
    "NONE": None,
    "NEWTRUE": True,
    "NEWFALSE": False,
    "EMPTY_TUPLE": (),
}
_SMALL_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


class BrokenTorchFileError(InputError):
    """A file that is no torch checkpoint of tensors alone, or a damaged one.

    Args:
        reason: what is wrong with it, a few words after "which".
    """


class _Name(NamedTuple):
    """A name that a pickle asks for; nothing is imported for it."""

    name: str


class _Storage(NamedTuple):
    """Numbers in a row, somewhere behind the pickles."""

    key: str
    dtype: np.dtype
    size: int


class _Tensor(NamedTuple):
    """Where a tensor lies in its storage, counted in numbers."""

    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple


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
    machine = _Machine()
    notes = machine.run(stream)
    if not isinstance(notes, dict):
        raise BrokenTorchFileError("holds no dictionary of tensors")
    for name, note in notes.items():
        if not isinstance(note, _Tensor):
            raise BrokenTorchFileError(f"holds {name!a}, which is no tensor")
    keys = _Machine().run(stream)
    if not isinstance(keys, list) or not all(type(x) is str for x in keys):
        raise BrokenTorchFileError("holds no list of its storages' keys")
    arrays = _read_storages(content, stream.tell(), keys, machine.storages)
    return {name: _view(note, arrays) for name, note in notes.items()}


def _check_head(stream):
    """Checks the magic number, the version and the order of bytes."""
    if _Machine().run(stream) != MAGIC_NUMBER:
        raise BrokenTorchFileError("does not start with torch's magic number")
    version = _Machine().run(stream)
    if version != PROTOCOL_VERSION:
        raise BrokenTorchFileError(
            f"is of another protocol than {PROTOCOL_VERSION}"
        )
    machine_facts = _Machine().run(stream)
    if not isinstance(machine_facts, dict):
        raise BrokenTorchFileError("does not tell the order of its bytes")
    if machine_facts.get("little_endian") is not True:
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
    size = note.storage.dtype.itemsize
    return np.lib.stride_tricks.as_strided(
        numbers[note.offset :],
        note.shape,
        [size * stride for stride in note.strides],
        writeable=False,
    )


def _are_counts(values):
    """Tells whether values are whole numbers from 0."""
    return all(type(value) is int and value >= 0 for value in values)


def _note_tensor(arguments):
    """Returns the `_Tensor` of the arguments of `_rebuild_tensor_v2`."""
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


class _Machine:
    """Runs one pickle; `pickletools` reads its instructions.

    After a run `storages` holds key -> `_Storage` of those it named.
    """

    def __init__(self):
        self.stack = []
        self.memo = {}
        self.storages = {}

    def run(self, stream):
        """Runs the pickle at the stream's place, and leaves it at its end."""
        try:
            instructions = pickletools.genops(stream)
            for count, (opcode, argument, _) in enumerate(instructions):
                if count == MOST_INSTRUCTIONS:
                    raise BrokenTorchFileError(
                        f"has more than {MOST_INSTRUCTIONS} instructions"
                    )
                self._step(opcode.name, argument)
            [result] = self.stack
            return result
        except BrokenTorchFileError:
            raise
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise BrokenTorchFileError(
                "is cut off, damaged or no such file: its pickles can not be "
                f"read at byte {stream.tell()} ({error!s:.80})"
            ) from error

    def _step(self, name, argument):
        """Runs one instruction."""
        if name in ("PROTO", "FRAME", "STOP"):
            return
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _SMALL_TUPLES:
            count = _SMALL_TUPLES[name]
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name in _PUSHED:
            self.stack.append(argument)
        elif name in _STEPS:
            _STEPS[name](self, argument)
        else:
            raise BrokenTorchFileError(
                f"holds the instruction {name} {argument!a:.80}, which "
                "tensors do not need"
            )

    def _above_mark(self):
        """Takes what lies above the topmost mark, and the mark."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _remember(self, index):
        self.memo[index] = self.stack[-1]

    def _set_items(self, items):
        keys, values = items[::2], items[1::2]
        target = self.stack[-1]
        if type(target) is not dict or len(keys) != len(values):
            raise TypeError("entries without a dictionary")
        if not all(type(key) is str for key in keys):
            raise TypeError("a key that is no string")
        target.update(zip(keys, values))

    def _append(self, values):
        if type(self.stack[-1]) is not list:
            raise TypeError("entries without a list")
        self.stack[-1].extend(values)

    def _ask_for(self, name):
        """Pushes a name, if tensors need it."""
        if name not in _NAMES:
            raise BrokenTorchFileError(
                f"asks for {name!a:.80}, which tensors do not need and which "
                "was not called"
            )
        self.stack.append(_Name(name))

    def _call(self):
        """Replaces a name and its arguments by what it stands for."""
        arguments, name = self.stack.pop(), self.stack.pop()
        if name == _Name(_DICTIONARY) and arguments == ():
            self.stack.append({})
        elif name == _Name(_TENSOR) and type(arguments) is tuple:
            self.stack.append(_note_tensor(arguments))
        else:
            raise TypeError("a call of what can not be called so")

    def _drop_state(self):
        """Drops what torch keeps beside a dictionary: versions of layers."""
        self.stack.pop()
        if type(self.stack[-1]) is not dict:
            raise TypeError("a state without a dictionary")

    def _note_storage(self):
        """Replaces what identifies a storage by its `_Storage`."""
        kind, name, key, _, size, view = self.stack.pop()
        if not (
            kind == "storage"
            and isinstance(name, _Name)
            and name.name in _DTYPES
            and type(key) is str
            and _are_counts([size])
            and view is None
        ):
            raise BrokenTorchFileError("names a storage that can not be")
        storage = _Storage(key, _DTYPES[name.name], size)
        if self.storages.setdefault(key, storage) != storage:
            raise BrokenTorchFileError(f"has two storages {key!a:.40}")
        self.stack.append(storage)


_PUSHED = (
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINUNICODE",
    "SHORT_BINUNICODE",
)


def _push(make):
    return lambda machine, _: machine.stack.append(make(machine))


def _stack_global(machine, _):
    name, module = machine.stack.pop(), machine.stack.pop()
    if not type(module) is type(name) is str:
        raise TypeError("a name that is no string")
    machine._ask_for(f"{module}.{name}")


_STEPS = {
    "EMPTY_DICT": _push(lambda machine: {}),
    "EMPTY_LIST": _push(lambda machine: []),
    "MARK": _push(lambda machine: _MARK),
    "TUPLE": _push(lambda machine: tuple(machine._above_mark())),
    "BINPUT": _Machine._remember,
    "LONG_BINPUT": _Machine._remember,
    "MEMOIZE": lambda machine, _: machine._remember(len(machine.memo)),
    "BINGET": lambda machine, index: machine.stack.append(machine.memo[index]),
    "LONG_BINGET": (
        lambda machine, index: machine.stack.append(machine.memo[index])
    ),
    "SETITEM": lambda machine, _: machine._set_items(
        [machine.stack.pop(-2), machine.stack.pop()]
    ),
    "SETITEMS": lambda machine, _: machine._set_items(machine._above_mark()),
    "APPEND": lambda machine, _: machine._append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine._append(machine._above_mark()),
    "GLOBAL": lambda machine, name: machine._ask_for(name.replace(" ", ".", 1)),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": lambda machine, _: machine._call(),
    "BUILD": lambda machine, _: machine._drop_state(),
    "BINPERSID": lambda machine, _: machine._note_storage(),
}
