"""What a model is asked beside `fit`, looked at as `fit` does."""

import inspect
from typing import Any

import keras

from tbnets.models import fit_arguments


class CheckedModel(keras.Model):
    """A `keras.Model` that refuses what is not finite.

    A kernel may make 0 of a NaN, and what comes out is a number.
    """

    text_encoder: keras.layers.Layer | None

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Measures the loss as `keras.Model.evaluate`, on finite numbers.

        Args:
            *args: as of `keras.Model.evaluate`; `x` may be `EpochBatches`.
            **kwargs: likewise.

        Returns:
            The loss and what else `report` tells, as Keras does.

        Raises:
            TypeError, ValueError: as `fit`.
        """
        given = self._on_finite(keras.Model.evaluate, args, kwargs)
        return super().evaluate(*given.args[1:], **given.kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what `call` does, as `keras.Model.predict`; see `evaluate`.

        Args:
            *args: as of `keras.Model.predict`; `x` may be `EpochBatches`.
            **kwargs: likewise.

        Returns:
            NumPy arrays, of a whole data set at once.
        """
        given = self._on_finite(keras.Model.predict, args, kwargs)
        return super().predict(*given.args[1:], **given.kwargs)

    def _on_finite(self, method, args, kwargs):
        """Returns what a method of Keras is given, once it was looked at."""
        given = inspect.signature(method).bind(self, *args, **kwargs)
        if not kwargs.get("_use_cached_eval_dataset"):  # As `fit` asks.
            fit_arguments.prepare_data(given.arguments, "x", self.text_encoder)
        return given
