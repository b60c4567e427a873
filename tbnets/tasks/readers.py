"""What reads raw photos for a network on features, by --cnn_weights."""

import os

from tbnets.data.store.side_by_side import SIDE_BY_SIDE
from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.photo_features import RANDOM, open_photo_features
from tbnets.features.regions import open_averaged_features
from tbnets.tasks.settings.settings import Settings

WEIGHTS_BY_NAME = ("imagenet", RANDOM)
"""Words for weights; a file that is called so is `./imagenet`."""


def weights_of_run(settings: Settings, sources):
    """Returns the weights of the network that reads photos.

    They are a word such as `imagenet`, a file, or a preset of Keras Hub; None
    where the run names none.

    Args:
        settings: the run's settings.
        sources: the run's `Sources`, whose places files are looked for in.
    """
    is_preset = settings.reads_photo_folder and hub.is_hub(settings.images.cnn)
    weights = (
        settings.images.cnn if is_preset else settings.features.cnn_weights
    )
    if not weights:
        return None
    if hub.is_hub(weights):
        return hub.placed(weights, *sources.starts)
    return weights if weights in WEIGHTS_BY_NAME else sources.resolve(weights)


def start_at_photo(settings: Settings, cnn_weights):
    """Returns settings by which an export begins with the photo.

    Args:
        settings: those of a run.
        cnn_weights: `imagenet` or the weights file that the features were
            made with, from the current folder where it is there; empty: as
            the run's own flag says.

    Raises:
        ValueError: the run's network takes photos already.
    """
    if not cnn_weights:
        return settings
    if settings.image_encoder != "features":
        raise InputError(
            "`--cnn_weights` must come with a run on --image_features. "
            f"Received: --cnn_weights={cnn_weights} with --image_encoder="
            f"{settings.image_encoder}, which takes photos. Leave it out."
        )
    weights = hub.placed(cnn_weights)
    # A word is no file, whatever lies in the current folder.
    is_word = hub.is_hub(weights) or weights in WEIGHTS_BY_NAME
    if not is_word and os.path.exists(weights):
        weights = os.path.abspath(weights)
    return settings.replace(cnn_weights=weights)


def photo_reader(made_by, weights):
    """Returns what turns photos, or boxes in them, into features.

    Args:
        made_by: `Features.made_by` of those that were learned from.
        weights: weights of the network, as of `weights_of_run`, or None.

    Returns:
        A `PhotoFeatures`, or `SeveralNetworks` side by side, or an
        `AveragedFeatures` of regions; None without weights.

    Raises:
        ValueError: their making is unknown, or differs from that of the
            weights.
    """
    if weights is None:
        return None
    parts = made_by.get(SIDE_BY_SIDE, [made_by])
    of_regions = made_by.get("regions") == "roi_average"
    for part in parts:
        is_plain = of_regions or "regions" not in part
        if "cnn" not in part or not is_plain:
            raise InputError(
                "`--cnn_weights` must come with features that tools/"
                "extract_image_features.py made, of whole photos or of regions "
                f"by roi_average. Received: {part.get('regions', 'some')}, "
                "which do not tell what made them, or are of regions of "
                "several stores. Extract them anew, or leave --cnn_weights out."
            )
    opened = open_averaged_features if of_regions else open_photo_features
    return opened(made_by, weights)
