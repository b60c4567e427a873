"""Saves and restores checkpoints, from which a run resumes exactly.

A checkpoint is an `.npz` file that contains variables, arrays of the run's
task, and the rest of the state as JSON. Reading does not use pickle, so an
untrusted checkpoint cannot execute code.
"""

import dataclasses
import pathlib
import re
from typing import NamedTuple

import keras
import numpy as np

from tbnets.data.store.npy import ERRORS, read_npz, write_npz
from tbnets.errors import InputError
from tbnets.files import is_kind, shown
from tbnets.training.optimizers import optimizer_variables

FORMAT = "tbnets-checkpoint-2"
SAVED_MODEL = "saved_model"
"""Name of the folder in a run that contains the exported network."""


def checkpoint_path(run_dir, name):
    """Returns the path of the `best` or `last` checkpoint of a run."""
    return pathlib.Path(run_dir) / "checkpoints" / f"{name}.npz"


@dataclasses.dataclass
class RunState:
    """The state of a run, except for its weights.

    Args:
        epoch: number of finished epochs.
        best_metric: best value so far of the task's dev metric, or None.
        best_epoch: the 1-based epoch of `best_metric`; 0 for the model of
            --from before training.
        before: dict of the scalars of epoch 0, before training; {} without
            --from.
        history: list with one dict of logged scalars per finished epoch.
        settings: dict from flag to value.
        fitted: dict of the JSON values or arrays that `Task.fit` computed.
        held: dict of the values that `Task.start_epoch` keeps between
            epochs.
        devices: description of the last epoch's devices; "" for a single
            device.
    """

    epoch: int = 0
    best_metric: float | None = None
    best_epoch: int = 0
    before: dict[str, float] = dataclasses.field(default_factory=dict)
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    settings: dict = dataclasses.field(default_factory=dict)
    fitted: dict = dataclasses.field(default_factory=dict)
    held: dict = dataclasses.field(default_factory=dict)
    devices: str = ""

    @property
    def dev(self):
        """The metrics of the dev split after the last finished epoch."""
        row, group = [self.before, *self.history][-1], "dev/"
        keys = [key for key in row if key.startswith(group)]
        return {key.removeprefix(group): row[key] for key in keys}


# Keras numbers the layers of a class within a process, so the first branch of
# the third network may be called `branch_2`. In a checkpoint, it is `branch`.


def weight_names(network):
    """Returns the names of a network's weights, in the order of the weights.

    A name consists of the names of layers and of the weight, such as
    `branch/fc1/kernel`.
    """
    paths = _paths(network)
    paths = [paths[id(weight)] for weight in network.weights]
    names = renumbered(paths)
    return ["/".join(names[path]) for path in paths]


def _paths(layer):
    """Returns a dict from each weight's id to its path, a tuple of names."""
    # In Keras 2, weights have no `path`.
    paths = {}
    inner = [*vars(layer).values(), *getattr(layer, "layers", ())]
    for each in inner:
        for child in each if isinstance(each, list | tuple) else [each]:
            if isinstance(child, keras.layers.Layer):
                for key, path in _paths(child).items():
                    paths[key] = (child.name, *path)
    for weight in layer.weights:
        name = weight.name.rpartition("/")[2].partition(":")[0]
        paths.setdefault(id(weight), (name,))
    return paths


def uncounted(name):
    """Splits a name into its base and the number that Keras appends."""
    base, number = re.fullmatch(r"(.*?)(?:_(\d+))?", name).groups()
    return base, int(number or 0)


def renumbered(paths):
    """Maps each path to a path with layers numbered within their parent."""
    beside = {}
    for path in paths:
        for depth, part in enumerate(path):
            beside.setdefault(path[:depth], set()).add(uncounted(part))

    def name(above, part):
        base, number = uncounted(part)
        before = [n for b, n in beside[above] if b == base and n < number]
        return f"{base}_{len(before)}" if before else base

    return {
        path: tuple(name(path[:i], part) for i, part in enumerate(path))
        for path in paths
    }


def _variables(model, optimizer):
    sections = {"model": list(zip(weight_names(model), model.weights))}
    if optimizer is not None:
        variables = optimizer_variables(optimizer)
        sections["optimizer"] = [(v.name, v) for v in variables]
    return sections


def _to_numpy(variable):
    value = np.asarray(variable.numpy())
    # npz does not support bfloat16; float32 holds its values exactly.
    return value.astype(np.float32) if value.dtype.kind == "V" else value


def save_checkpoint(path, model, optimizer, state):
    """Saves a model, its optimizer and the run state in one file, atomically.

    `path` is None on workers other than the chief: they must read the
    variables, but write no file. `optimizer` may be None.
    """
    arrays, names, values = {}, {}, vars(state).copy()
    for section, variables in _variables(model, optimizer).items():
        for i, (name, variable) in enumerate(variables):
            key = f"{section}/{i:04d}"
            arrays[key], names[key] = _to_numpy(variable), name
    for section in ("fitted", "held"):
        values[section] = dict(values[section])
        for name, value in vars(state)[section].items():
            if isinstance(value, np.ndarray):
                arrays[f"{section}/{name}"] = values[section].pop(name)
    header = {"format": FORMAT, "names": names, "state": values}
    if path is not None:
        write_npz(path, header, arrays)


class Checkpoint(NamedTuple):
    """The arrays of a checkpoint, the arrays' names, and the `RunState`."""

    arrays: dict
    names: dict
    state: RunState


def read_progress(path):
    """Returns a checkpoint's `RunState` without reading the arrays."""
    return read_checkpoint(path, "header").state


def read_checkpoint(path, only=None):
    """Reads a `Checkpoint` that `save_checkpoint` wrote.

    `only="header"` skips the arrays. A damaged file raises a ValueError.
    """
    path = pathlib.Path(path)
    try:
        header, arrays = read_npz(path, only)
        if header["format"] != FORMAT:
            raise InputError(f"its format is {shown(header['format'])}")
        values, names = header["state"], header["names"]
        state = _checked(RunState(**values))
        for section in ("fitted", "held"):
            for key in [key for key in arrays if key.startswith(section + "/")]:
                vars(state)[section][key.partition("/")[2]] = arrays.pop(key)
        if not (isinstance(names, dict) and set(arrays) <= set(names)):
            raise InputError("it does not name its arrays")
        return Checkpoint(arrays, names, state)
    except ERRORS as error:
        raise InputError(
            f"{path} must be a complete tbnets checkpoint ({FORMAT}). "
            f"Received: {path.stat().st_size} bytes ({error})."
        ) from error


def _checked(state):
    for name, kind in RunState.__annotations__.items():
        if not is_kind(getattr(state, name), kind):
            raise InputError(f"`{name}` is {shown(getattr(state, name))}")
    return state


def _assign(path, section, variables, checkpoint):
    arrays, names, _ = checkpoint
    stored = sorted(key for key in arrays if key.startswith(section + "/"))
    if len(stored) != len(variables):
        raise InputError(
            f"{path} must hold {len(variables)} variables of the {section}. "
            f"Received: {len(stored)}."
        )
    for key, (_, variable) in zip(stored, variables):
        if tuple(variable.shape) != arrays[key].shape:
            raise InputError(
                f"{names[key]} in {path} must have the shape "
                f"{tuple(variable.shape)}. Received: {arrays[key].shape}."
            )
    for key, (_, variable) in zip(stored, variables):
        variable.assign(arrays[key])


def put_into(checkpoint, path, model, optimizer=None):
    """Assigns the values of a `Checkpoint` to a built model and its optimizer.

    For inference, `optimizer` may be None. `path` is used only in error
    messages.
    """
    for section, variables in _variables(model, optimizer).items():
        _assign(path, section, variables, checkpoint)
