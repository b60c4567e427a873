"""Whole models as Keras saves them: one `.keras` file."""

import keras

# Keras finds the classes that a file names once they are registered, and they
# are when their modules are imported.
from tbnets.layers import (
    branch,  # noqa: F401
    canonical_projection,  # noqa: F401
    dropout,  # noqa: F401
    feature_transform,  # noqa: F401
    fisher_vectors,  # noqa: F401
    image_encoders,  # noqa: F401
    pair_head,  # noqa: F401
    text_encoders,  # noqa: F401
    tree_encoder,  # noqa: F401
    word_table,  # noqa: F401
)
from tbnets.losses import triplet  # noqa: F401
from tbnets.models import (
    cca,  # noqa: F401
    embedding_network,  # noqa: F401
    hm_lstm,  # noqa: F401
    similarity_network,  # noqa: F401
)
from tbnets.training import fused_optimizers  # noqa: F401


def load_model(path, **options):
    """Loads a model that `model.save("name.keras")` wrote, ready for `fit`.

    Weights, loss, optimizer and its state are as they were saved: training
    goes on as if it had not stopped. `keras.models.load_model` does the same
    where the classes of tbnets have been imported; in a fresh process Keras 3
    does not find them.

    Args:
        path: a `.keras` file.
        **options: as of `keras.models.load_model`, for example `compile=False`
            for a model that is only asked, or `custom_objects` for layers of
            your own that are not registered with Keras.

    Returns:
        The model.

    Example:
        network.save("network.keras")
        network = tbnets.load_model("network.keras")
    """
    return keras.models.load_model(path, **options)
