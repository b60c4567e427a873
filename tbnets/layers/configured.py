"""Layers that are built again from what their constructors were given."""

import inspect

import keras


class ConfiguredLayer(keras.layers.Layer):
    """A layer that keeps its constructor's arguments under their own names.

    So its config needs no list of them: it holds whatever arguments the
    constructors of its class and of those above it, up to here, name.
    """

    def get_config(self):
        """Returns the constructors' arguments."""
        constructors = [
            inspect.signature(kind.__init__)
            for kind in reversed(type(self).__mro__)
            if issubclass(kind, ConfiguredLayer) and "__init__" in vars(kind)
        ]
        own = {
            name: getattr(self, name)
            for constructor in constructors
            for name, given in constructor.parameters.items()
            if name != "self" and given.kind is not given.VAR_KEYWORD
        }
        return {**super().get_config(), **own}


class FittedLayer(ConfiguredLayer):
    """A layer of constants: float32 under every policy, never trained."""

    def __init__(self, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**{**kwargs, "trainable": False})

    def constant(self, name, shape, initial="zeros", dtype="float32"):
        """Returns a weight that holds a fitted constant."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initial,
            trainable=False,
            dtype=dtype,
        )
