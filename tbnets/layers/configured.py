"""Layers that build their config from their constructor's arguments."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras

from tbnets.checks import checked_number, short_text, with_parts


def parameters_of(owner, method, base):
    """Returns the parameters of a method and of the methods that it overrides.

    `base` is the last base class to include.

    Returns:
        {name: `inspect.Parameter`} without `self`, `*args` and `**kwargs`.
    """
    parameters = {}
    for base_class in reversed(owner.__mro__):
        if issubclass(base_class, base) and method in vars(base_class):
            parameters |= inspect.signature(vars(base_class)[method]).parameters
    parameters.pop("self", None)
    variadic = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return {k: v for k, v in parameters.items() if v.kind not in variadic}


def repr_of(instance, base, **extra):
    """Returns a one-line description of an object and its arguments.

    `base` is the last base class to include. `extra` contains values to add.
    """
    parameters = parameters_of(type(instance), "__init__", base).items()
    parts = {
        name: getattr(instance, name)
        for position, (name, parameter) in enumerate(parameters)
        if hasattr(instance, name)
        and (
            position == 0
            or short_text(getattr(instance, name))
            != short_text(parameter.default)
        )
    }
    return with_parts(instance, parts | extra)


class ConfiguredLayer(keras.layers.Layer):
    """A layer that stores its constructor's arguments as attributes."""

    vocabulary_size: int = 0
    """Number of word ids of a text encoder; 0 for layers that take features."""

    def __repr__(self) -> str:
        return repr_of(self, ConfiguredLayer)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, including the base classes'."""
        names = parameters_of(type(self), "__init__", ConfiguredLayer)
        arguments = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **arguments}


class FittedLayer(ConfiguredLayer):
    """A layer with constant weights that ignores the dtype policy."""

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
        """Creates a non-trainable weight and stores it as an attribute."""
        options = {"initializer": initial, "trainable": False, "dtype": dtype}
        setattr(self, name, self.add_weight(name=name, shape=shape, **options))


def checked_units(units: Sequence[int], name: str = "units") -> tuple[int, ...]:
    """Checks layer sizes; returns them as a tuple of integers >= 1."""
    return tuple(checked_number(name, size, 1, whole=True) for size in units)


def build_steps(steps, shape):
    """Builds layers in sequence and returns the last output shape."""
    for step in steps:
        step.build(shape)
        if isinstance(step, keras.layers.Dense):
            shape = (*shape[:-1], step.units)
    return shape


def run_steps(steps, outputs, training):
    """Applies layers to `outputs` in sequence."""
    plain = (keras.layers.Dense, keras.layers.ReLU)
    for step in steps:
        options = {} if isinstance(step, plain) else {"training": training}
        outputs = step(outputs, **options)
    return outputs
