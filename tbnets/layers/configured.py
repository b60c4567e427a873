"""Layers that are built again from what their constructors were given."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras

from tbnets.checks import checked_number, short_text, with_parts
from tbnets.errors import InputError


def parameters_of(kind, method, base):
    """Returns what a method takes: name -> `inspect.Parameter`.

    Args:
        kind: a class.
        method: name of its method.
        base: the class up to which those above it count, itself included.
    """
    found = {}
    for one in reversed(kind.__mro__):
        if issubclass(one, base) and method in vars(one):
            found |= inspect.signature(vars(one)[method]).parameters
    found.pop("self", None)
    rest = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return {name: one for name, one in found.items() if one.kind not in rest}


def repr_of(thing, base, **more):
    """Returns a line on what was constructed, and more that is told of it.

    Of the constructor's arguments come the first, and those that are not as
    they are by default.

    Args:
        thing: what keeps them under their own names.
        base: as of `parameters_of`.
        **more: name -> value.
    """
    given = parameters_of(type(thing), "__init__", base).items()
    parts = {
        name: getattr(thing, name)
        for place, (name, one) in enumerate(given)
        if hasattr(thing, name)
        and (
            place == 0
            or short_text(getattr(thing, name)) != short_text(one.default)
        )
    }
    return with_parts(thing, parts | more)


class ConfiguredLayer(keras.layers.Layer):
    """A layer that keeps its constructor's arguments under their own names.

    So its config needs no list of them: it holds whatever arguments the
    constructors of its class and of those above it, up to here, name.
    """

    vocabulary_size: int = 0
    """How many ids of words it reads; 0 where it reads features."""

    def __repr__(self) -> str:
        return repr_of(self, ConfiguredLayer)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructors' arguments."""
        names = parameters_of(type(self), "__init__", ConfiguredLayer)
        own = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **own}


class FittedLayer(ConfiguredLayer):
    """A layer of constants: float32 under every policy, never trained."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**{**kwargs, "trainable": False})

    def constant(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: str = "zeros",
        dtype: str = "float32",
    ) -> None:
        """Makes a weight that holds a fitted constant, an attribute."""
        options = {"initializer": initial, "trainable": False, "dtype": dtype}
        setattr(self, name, self.add_weight(name=name, shape=shape, **options))


def checked_units(units: Sequence[int], name: str = "units") -> tuple[int, ...]:
    """Returns the sizes of layers as a tuple of whole numbers from 1."""
    if not hasattr(units, "__iter__") or isinstance(units, str):
        raise InputError(
            name,
            "be a size for each layer",
            f"{name}={units!r}",
            "Write a tuple, such as (512,).",
        )
    return tuple(checked_number(name, one, 1, whole=True) for one in units)


def build_steps(steps, shape):
    """Builds layers one after the other; returns the shape behind them."""
    for step in steps:
        step.build(shape)
        if isinstance(step, keras.layers.Dense):
            shape = (*shape[:-1], step.units)
    return shape


def run_steps(steps, outputs, training):
    """Returns what layers make of something, one after the other."""
    plain = (keras.layers.Dense, keras.layers.ReLU)
    for step in steps:
        told = {} if isinstance(step, plain) else {"training": training}
        outputs = step(outputs, **told)
    return outputs
