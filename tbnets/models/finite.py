"""Numbers that are not finite, told by the epochs of `fit`.

A NaN in one row makes every weight NaN within a step. Arrays are looked at
before the first step (`fit_arguments`). What comes batch by batch is not, for
that would cost each step: the means of an epoch tell it at the end of the
first one.
"""

import keras
import numpy as np

from tbnets.errors import InputError

TOLD = ("loss", "gradient_norm")


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
            "NaN in images and captions, lower the rate, or set "
            "`gradient_clip_norm`."
        )
