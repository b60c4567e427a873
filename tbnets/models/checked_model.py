"""What a model is asked beside `fit`, looked at as `fit` does."""

import inspect
from typing import Any, NoReturn

import keras

from tbnets.errors import InputTypeError
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

    def export(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error that names `tbnets.export_saved_model`.

        Keras exports a model of tensors. A served network also takes captions
        and photos, so it needs a vocabulary.

        Args:
            *args: as of `keras.Model.export`.
            **kwargs: likewise.

        Raises:
            TypeError: always.
        """
        raise InputTypeError(
            "`export` must be `tbnets.export_saved_model`. Received: "
            f"{type(self).__name__}.export. Call tbnets.export_saved_model("
            "network, vocabulary, path, image_shape=...)."
        )

    def _on_finite(self, method, args, kwargs):
        """Returns what a method of Keras is given, once it was looked at."""
        given = inspect.signature(method).bind(self, *args, **kwargs)
        if not kwargs.get("_use_cached_eval_dataset"):  # As `fit` asks.
            fit_arguments.prepare_data(given.arguments, "x", self.text_encoder)
        return given
