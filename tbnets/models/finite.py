"""Numbers that are not finite: refused before `fit`, or told by its epochs.

A NaN in one row makes every weight NaN within a step. Arrays are looked at
before the first step. What comes batch by batch is not, for that would cost
each step: the means of an epoch tell it at the end of the first one.
"""

from collections.abc import Mapping

import keras
import numpy as np

from tbnets.checked_numbers import check_finite
from tbnets.errors import InputError

TOLD = ("loss", "gradient_norm")


def check_finite_arrays(name, arrays):
    """Refuses NaN and infinity in arrays that are in memory.

    Args:
        name: what the arrays are called together.
        arrays: dict of arrays, or anything else, which is let through.

    Raises:
        ValueError: names the array and the row.
    """
    if not isinstance(arrays, Mapping):
        return
    for key, array in arrays.items():
        if isinstance(array, np.ndarray):
            check_finite(f"{name}[{key!r}]", array)


class FiniteSteps(keras.callbacks.Callback):
    """Ends a `fit` after the first epoch that left the finite numbers."""

    def on_epoch_end(self, epoch, logs=None):
        """Raises ValueError where the loss or its gradient did.

        The gradient tells where the loss does not: a kernel that multiplies
        and cuts off at once may make 0 of a NaN on the way to the loss.
        """
        told = {key: float((logs or {}).get(key, 0.0)) for key in TOLD}
        if np.isfinite(list(told.values())).all():
            return
        found = ", ".join(f"{key}={value}" for key, value in told.items())
        raise InputError(
            "`x` must hold finite numbers, and the steps stay finite. Received:"
            f" {found} after epoch {epoch + 1}; the weights are lost. Look for "
            "NaN in images and captions, for more positives than the loss's "
            "`max_positives`; lower the rate, or set `gradient_clip_norm`."
        )
