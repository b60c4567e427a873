"""Two-branch networks for image-text matching in Keras.

The package reads in the order that data flows: `data` and `text` turn files
into records and token ids, `layers` and `models` embed them, `miners` and
`losses` train them, `evaluation` measures and `serving` exports them.

Importing this module is cheap: TensorFlow is imported by the rooms that need
it. It only asks TensorFlow to keep its start-up messages to itself, unless
the caller's environment already says how much it wants to hear.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"
