"""What the fork server of `fresh` imports for all of its children."""

import gc

gc.disable()

import tensorflow  # noqa: E402, F401
import tensorflow_text  # noqa: E402, F401

gc.freeze()  # Nor do its children look for garbage there.
gc.enable()
