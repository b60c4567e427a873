"""Settings -> the data of phrase localization: phrases, regions, features.

Each function takes the run's settings (see `flags`) and reads what they name.
"""

import numpy as np

from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tbnets.features.regions import open_averaged_features
from tbnets.identity import rows_of
from tbnets.localization import hard_negatives
from tbnets.localization.examples import PhraseExamples
from tbnets.localization.sampler import Sampling
from tbnets.store.opening import load_features, open_features
from tbnets.tasks import inputs, text_inputs


def load_phrases(settings, records, sizes):
    """Returns the `PhraseRegions` of a split, in pixels of its photos.

    Args:
        settings: the run's settings.
        records: `CaptionedImages` of the split.
        sizes: int `[num_images, 2]`, width and height of the photos.

    Returns:
        (phrases, problems): without the photos that can not be read; and the
        list of `Problem`s that were left out, empty unless `skip_bad_rows`.

    Raises:
        FileNotFoundError, ValueError: there are no phrases, or something is
            wrong with them; names file and line.
    """
    if settings.phrases:
        path = inputs.resolve(settings, settings.phrases)
        if not path.exists():
            raise inputs.nowhere(settings, "phrases", path)
    elif settings.scenes:
        path = inputs.from_start(settings, settings.scenes)
    else:
        raise InputError(
            "`--phrases` must name phrases and their boxes. Received: "
            "--phrases= with --task=localization. Set it, or --scenes for "
            "the embedded data set."
        )
    problems = [] if settings.skip_bad_rows else None
    phrases = read_phrases(path, records, problems)
    rows = rows_of(phrases.images.image_ids, records.image_ids)
    return phrases.in_photos(sizes[rows], problems), problems or []


def open_regions(settings, records, checked=True):
    """Returns the region features of a split's photos.

    Args:
        settings: the run's settings.
        records: `CaptionedImages` of the split.
        checked: whether all numbers and checksums are read too, once a
            process.

    Returns:
        (store, rows): a `store.shards.FeatureStore` of regions, and int64
        `[num_images]`, the row of each photo.

    Raises:
        FileNotFoundError, ValueError: there is no such store, it is damaged,
            photos are missing in it, or it does not tell what is needed.
    """
    if not settings.regions:
        raise InputError(
            "`--regions` must name features of regions. Received: --regions= "
            f"with --task={settings.task} and --model={settings.model}. Make "
            "them by tools/propose_regions.py and "
            "tools/extract_image_features.py --regions."
        )
    path = inputs.resolve(settings, settings.regions, records.split)
    if not path.exists():
        raise inputs.nowhere(settings, "regions", path)
    if checked:
        store, rows = load_features([path], records.image_ids)
    else:
        store = open_features(path)
        rows = store.rows(records.image_ids)
    sizes = getattr(store, "sizes", None)
    if getattr(store, "kind", "") != "regions" or not store.dim:
        found = "no features of regions"
    elif sizes is None:
        found = "no sizes of photos"
    else:
        return store, np.asarray(rows)
    raise InputError(
        "`--regions` must name a store of region features with the sizes of "
        f"the photos. Received: --regions={settings.regions}, which holds "
        f"{found}. Make it by tools/extract_image_features.py --regions."
    )


def check_regions(settings, splits, made_by, where):
    """Refuses features of regions that were made otherwise than before.

    Args:
        settings: the run's settings.
        splits: names of the splits to check.
        made_by: how those were made that the run was started with.
        where: who remembers it, for the message.

    Raises:
        ValueError: listing what differs.
    """
    inputs.check_features(settings, splits, made_by, where, "regions")


def load_examples(settings, phrases, store, rows, vocabulary):
    """Returns the `PhraseExamples` of a split.

    Args:
        settings: the run's settings.
        phrases: what `load_phrases` returned.
        store: what `open_regions` returned, with
        rows: the row of each photo.
        vocabulary: `Vocabulary`, or None with text features.
    """
    if settings.text_encoder == "features":
        texts = inputs.load_text_features(settings, phrases.as_captions())
    else:
        texts = text_inputs.load_words(settings, phrases.phrases, vocabulary)
    return PhraseExamples(
        phrases,
        texts,
        store,
        rows,
        phrases.phrase_to_text if settings.equal_texts_match else None,
        {
            "positives": settings.positives,
            "positive_iou": settings.positive_iou,
            "negative_iou": settings.negative_iou,
        },
    )


def build_region_reader(settings, fitted):
    """Returns what turns a photo and boxes into the network's input.

    Args:
        settings: the run's settings.
        fitted: dict with `image_features_made_by`.

    Returns:
        A `features.averaged_regions.AveragedFeatures`; None where
        `cnn_weights` names no network for it.

    Raises:
        ValueError: the features were made in another way, or by other
            weights.
    """
    if not settings.cnn_weights:
        return None
    made_by = fitted["image_features_made_by"]
    if made_by.get("regions") != "roi_average":
        raise InputError(
            "`--cnn_weights` must come with regions averaged from maps. "
            f"Received: --regions={settings.regions}, made with regions="
            f"{made_by.get('regions')!r}. Extract them with "
            "--region_features=roi_average, or leave --cnn_weights out."
        )
    weights = inputs.cnn_weights(settings)
    return open_averaged_features(made_by, weights)


def build_sampling(settings):
    """Returns the `Sampling` of the settings."""
    names = Sampling._fields
    return Sampling(**{name: getattr(settings, name) for name in names})


def first_hard_epoch(settings):
    """Returns the epoch (from 0) of the first hard negatives, or None.

    Raises:
        ValueError: no epoch would come before it.
    """
    if settings.task != "localization":
        return None
    return hard_negatives.first_epoch(
        settings.epochs, settings.hard_negative_epochs
    )
