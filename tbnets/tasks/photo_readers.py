"""Opens the network that turns the photos of a run into features."""

import os

from tbnets.data.store.features import SIDE_BY_SIDE
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.photo_features import RANDOM, open_photo_features
from tbnets.features.regions import open_averaged_features
from tbnets.tasks.settings.settings import Settings

WEIGHTS_BY_NAME = ("imagenet", RANDOM)
"""Names of weights. For a file with such a name, write `./imagenet`."""


def weights_of_run(settings: Settings, sources):
    """Returns the weights of the network that reads photos.

    The weights are a file, a Keras Hub preset, or a name such as `imagenet`.
    Returns None if the run has no weights.
    """
    weights = settings.features.cnn_weights
    if settings.reads_photo_folder and hub.is_hub(
        settings.images.image_encoder
    ):
        weights = settings.images.image_encoder
    if not weights:
        return None
    if hub.is_hub(weights):
        return hub.placed(weights, *sources.starts)
    return weights if weights in WEIGHTS_BY_NAME else sources.resolve(weights)


def start_at_photo(settings: Settings, cnn_weights):
    """Returns settings for exporting a model that reads photos.

    `cnn_weights` names the weights that computed the features: `imagenet`, or a
    file, first looked up in the current folder. "" keeps the run's value.
    """
    if not cnn_weights:
        return settings
    weights = hub.placed(cnn_weights)
    # A name of weights takes precedence over a file in the current folder.
    is_word = hub.is_hub(weights) or weights in WEIGHTS_BY_NAME
    if not is_word and os.path.exists(weights):
        weights = os.path.abspath(weights)
    return settings.replace(cnn_weights=weights)


def photo_reader(made_by, weights):
    """Returns the extractor that computes features of photos or of boxes.

    The extractor is a `PhotoFeatures`, a `SeveralNetworks` for concatenated
    features, or an `AveragedFeatures` for regions. Returns None if `weights` is
    None. Raises ValueError if `made_by`, the features' description, names no
    network or different weights.
    """
    if weights is None:
        return None
    parts = made_by.get(SIDE_BY_SIDE, [made_by])
    of_regions = made_by.get("regions") == "roi_average"
    for part in parts:
        is_plain = of_regions or "regions" not in part
        if "cnn" not in part or not is_plain:
            expected = "be used with features of photos, or by roi_average"
            received = f"{part.get('regions', 'features')} of unknown networks"
            advice = "Extract the features again, or leave --cnn_weights out."
            raise InputError("--cnn_weights", expected, received, advice)
    opened = open_averaged_features if of_regions else open_photo_features
    return opened(made_by, weights)
