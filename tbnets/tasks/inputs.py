"""Settings -> the data of a run: records, images, features, texts.

Each function takes the run's settings (see `flags`) and reads what they name.
"""

import os
import pathlib

import tqdm

from tbnets.checked_files import shown
from tbnets.data import captions
from tbnets.data.examples import FeatureRows, FileNames
from tbnets.data.photo_lists import read_listed
from tbnets.data.splits import (
    SPLIT_FIELD,
    NoSuchSplit,
    fill_split,
    splits_in_path,
)
from tbnets.errors import InputError, MissingFileError
from tbnets.features.caption_features import caption_key
from tbnets.features.photo_features import RANDOM, open_photo_features
from tbnets.images import decode_images
from tbnets.scenes.dataset import ensure_scenes
from tbnets.scenes.settings import SceneSettings
from tbnets.store.manifest import MANIFEST, extraction_differences
from tbnets.store.opening import load_features, open_features, read_made_by
from tbnets.text.vocabulary import Tokenizer, Vocabulary, count_words

WEIGHTS_BY_NAME = ("imagenet", RANDOM)
"""Words for weights; a file that is called so is `./imagenet`."""


def from_start(settings, path):
    """Returns a relative path from the folder that the run was started in."""
    return pathlib.Path(settings.started_in) / path


def resolve(settings, path, split=None):
    """Returns `path` below the data root, with `{split}` filled in.

    A feature store or a file that is not there is looked for in the folder of
    the start too, where the tools write what they make.
    """
    below = from_start(settings, settings.data_root) / path
    here = from_start(settings, path)
    if split is not None:
        below, here = _filled(below, split), _filled(here, split)
    made_here = here.is_file() or (here / MANIFEST).is_file()
    if made_here and not below.exists():
        return here
    if split is None or below.exists():
        return below
    # It is nowhere: the error is about the place that has other splits.
    pattern = max(below, here, key=lambda place: len(splits_in_path(place)))
    return pathlib.Path(fill_split(pattern, split))


def _filled(pattern, split):
    """Returns a pattern filled in; as it is where no file has that split."""
    try:
        return pathlib.Path(fill_split(pattern, split))
    except ValueError:
        return pattern


def _ensure_scenes(settings):
    """Renders the embedded data set where it is not there yet."""
    scenes = SceneSettings(*settings.num_scenes)
    with tqdm.tqdm(
        total=scenes.num_scenes,
        desc="rendering scenes",
        unit="scene",
        leave=False,
        delay=1,
        disable=None,
    ) as bar:
        ensure_scenes(
            from_start(settings, settings.scenes),
            scenes,
            lambda done, _: bar.update(done - bar.n),
        )


def load_records(settings, split):
    """Returns the `CaptionedImages` of a split."""
    if settings.scenes:
        _ensure_scenes(settings)
        path = from_start(settings, settings.scenes) / "dataset.json"
        return captions.read_captions("karpathy", path, split)
    if not settings.captions:
        raise InputError(
            "`--captions` must name the captions to read. Received: "
            "--captions=. Set it, or --scenes for the embedded data set."
        )
    path = resolve(settings, settings.captions)
    if SPLIT_FIELD not in os.fspath(path) and not path.exists():
        raise nowhere(settings, "captions", path)
    form, lists = settings.captions_format, settings.split_lists
    try:
        if lists:
            return read_listed(form, path, resolve(settings, lists), split)
        return captions.read_captions(form, path, split)
    except NoSuchSplit as error:
        if error.names:
            raise
        raise nowhere(settings, "captions", path) from error


def nowhere(settings, flag, path):
    """Returns the error of a path that is not there: where data are sought."""
    return MissingFileError(
        f"`--{flag}` must name what is there. Received: --{flag}="
        f"{getattr(settings, flag)}, looked for as {path}. Data paths start "
        f"from --data_root={settings.data_root}: set it, or the environment "
        "variable TBNETS_DATA, to the folder of your data; "
        "docs/data_formats.md says what to put there."
    )


def load_images(settings, records):
    """Returns the image side of `Examples` for some records.

    Raises:
        ValueError, FileNotFoundError: images or features are missing, not
            finite, damaged or made otherwise than those of the training
            split; the message names them.
    """
    if settings.image_encoder == "features":
        if not settings.image_features:
            raise InputError(
                "`--image_features` must name a feature array. Received: "
                "--image_features= with --image_encoder=features. Set it, or "
                "--images=FOLDER, of whose photos features are extracted."
            )
        paths = _existing_features(settings, "image_features", records.split)
        features, rows = load_features(paths, records.image_ids)
        check_features(
            settings, [settings.train_split], features.made_by, features.path
        )
        return FeatureRows(features, rows)
    return load_photos(settings, records)


def photo_folder(settings):
    """Returns the folder that the photos' file names start from.

    One that is not below the data root is looked for in the folder of the
    start.
    """
    if settings.scenes:
        return from_start(settings, settings.scenes) / "images"
    here = from_start(settings, settings.images)
    below = resolve(settings, settings.images)
    return here if here.is_dir() and not below.exists() else below


def load_photos(settings, records):
    """Returns the `FileNames` of the photos of some records.

    Raises:
        ValueError: no folder of photos is named.
        FileNotFoundError: photos are missing; the message names the first.
    """
    if not settings.scenes and not settings.images:
        raise InputError(
            "`--images` must name the folder of the photos. Received: "
            "--images=. Set it, or --scenes for the embedded data set."
        )
    folder = photo_folder(settings)
    if not folder.is_dir():
        raise nowhere(settings, "images", folder)
    paths = [folder / records.file_name(i) for i in range(records.num_images)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise MissingFileError(
            f"`--images` must hold every image of split {records.split}. "
            f"Received: --images={folder}, where {len(missing)} of "
            f"{len(paths)} are missing, first {missing[0].name}. Complete "
            "the folder or remove the images from the captions."
        )
    return FileNames(paths)


def feature_paths(settings, split, flag="image_features"):
    """Returns the paths that a flag names for the features of a split."""
    return [
        os.fspath(resolve(settings, pattern.strip(), split))
        for pattern in getattr(settings, flag).split(",")
    ]


def _existing_features(settings, flag, split):
    """Returns the same paths, which must be there."""
    try:
        paths = feature_paths(settings, split, flag)
    except NoSuchSplit as error:
        if not error.names:
            raise nowhere(settings, flag, error.path) from error
        raise InputError(
            f"`--{flag}` must name features of every split. Received: "
            f"--{flag}={getattr(settings, flag)}, and of split {split} there "
            f"are none: {error.path} is there for {', '.join(error.names)}. "
            "Extract them, or choose another split."
        ) from error
    for path in paths:
        if not os.path.exists(path):
            raise nowhere(settings, flag, path)
    return paths


def check_features(settings, splits, made_by, where, flag="image_features"):
    """Refuses features that were made otherwise than others.

    Args:
        settings: the run's settings.
        splits: names of the splits to check; those whose features are not
            there are left out.
        made_by: `Features.made_by` that theirs must agree with.
        where: the path of those features, or of the checkpoint that
            remembers them.
        flag: which names the features; of texts, `text_features`.

    Raises:
        ValueError: listing what differs.
    """
    for split in splits:
        try:
            paths = feature_paths(settings, split, flag)
        except ValueError:
            continue  # There are no features of this split.
        if not all(map(os.path.exists, paths)):
            continue
        lines = extraction_differences(
            made_by,
            read_made_by(*paths),
            where,
            ", ".join(paths),
        )
        if lines:
            raise InputError(
                f"`--{flag}` must name features that were all "
                f"extracted the same way. Received: --{flag}="
                f"{', '.join(paths)}, which differ from those of {where}: "
                f"{'; '.join(lines)}. Extract them again with the same "
                "settings."
            )


def build_vocabulary(settings, records):
    """Counts the words of the training captions.

    Returns:
        (vocabulary, longest): their `Vocabulary`, and how many words the
        longest caption has.
    """
    counts, lengths = count_words(records.captions)
    vocabulary = Vocabulary.of_counts(
        counts,
        min_count=settings.min_count,
        max_words=settings.max_words or None,
    )
    return vocabulary, int(lengths.max(initial=0))


def build_tokenizer(settings, vocabulary):
    """Returns the `Tokenizer` that training and serving share."""
    return Tokenizer(vocabulary, settings.max_tokens or None)


def load_text_features(settings, records):
    """Returns the `FeatureRows` of the captions of some records.

    Where features have ids, these are the texts of captions, and rows are
    found by them; an array without ids has a row a caption, in their order.

    Raises:
        ValueError, FileNotFoundError: features are missing, not finite or
            damaged; the message names them.
    """
    if not settings.text_features:
        raise InputError(
            "`--text_features` must name a feature array. Received: "
            "--text_features= with --text_encoder=features. Set it, or "
            "another --text_encoder to learn from the words."
        )
    paths = _existing_features(settings, "text_features", records.split)
    opened = open_features(*paths)
    if opened.has_ids:
        keys = [caption_key(caption) for caption in records.captions]
        _check_every_caption(records, keys, opened)
        features, rows = load_features(paths, keys)
        check_features(
            settings,
            [settings.train_split],
            features.made_by,
            features.path,
            "text_features",
        )
        return FeatureRows(features, rows)
    features, rows = load_features(paths)
    if len(rows) != records.num_captions:
        raise InputError(
            "`--text_features` must hold a row for each caption. "
            f"Received: {len(rows)} rows in {', '.join(paths)}, "
            f"{records.num_captions} "
            f"captions in {records.path}. Extract them again."
        )
    return FeatureRows(features, rows)


def _check_every_caption(records, keys, features):
    """Refuses features that lack captions, by their texts."""
    missing = features.missing(keys)
    if missing:
        raise InputError(
            "`--text_features` must hold every caption of split "
            f"{records.split}. Received: {features.path} without "
            f"{len(missing)} of {len(keys)} captions of {records.path}, first "
            f"{shown(missing[0])}; {features.looks()}. Rows are found by "
            "text: extract the features of this split and of these captions. "
            "Of an array in the order of the captions, take its file of ids "
            "away."
        )


def build_photo_reader(settings, fitted):
    """Returns what turns encoded photos into the network's input.

    Args:
        settings: the run's settings.
        fitted: dict with `image_features_made_by`.

    Returns:
        Function string `[n]` -> float32 `[n, ...]`; None where the network
        takes features and `cnn_weights` names no network for them.

    Raises:
        ValueError: the features' making is unknown, or differs from that of
            the weights.
    """
    if settings.image_encoder != "features":
        return lambda photos: decode_images(photos, settings.image_size)
    if not settings.cnn_weights:
        return None
    made_by = fitted["image_features_made_by"]
    if "cnn" not in made_by or "ternary" in made_by:
        raise InputError(
            "`--cnn_weights` must come with features that "
            "tools/extract_image_features.py made. Received: --image_features="
            f"{settings.image_features}, which do not tell what made them, "
            "are several side by side, or were stored as ternary by an earlier "
            "version. Extract them by that tool, all layers at once, or leave "
            "--cnn_weights out."
        )
    return open_photo_features(made_by, cnn_weights(settings))


def cnn_weights(settings):
    """Returns `cnn_weights` as builders of networks take it."""
    weights = settings.cnn_weights
    by_name = weights in WEIGHTS_BY_NAME
    return weights if by_name else resolve(settings, weights)


def weights_from_here(weights):
    """Returns the same weights with a file's place in full, if it is here.

    The words for weights are none, whatever lies in the current folder.
    """
    is_file = weights not in WEIGHTS_BY_NAME and os.path.exists(weights)
    return os.path.abspath(weights) if is_file else weights


def start_at_photo(settings, cnn_weights):
    """Lets the export of a run on features begin with the photo.

    Args:
        settings: those of an opened run, which are changed.
        cnn_weights: `imagenet` or the weights file that the features were
            made with, from the current folder where it is there; empty: as
            the run's own flag says.

    Raises:
        ValueError: the run's network takes photos already.
    """
    if not cnn_weights:
        return
    if settings.image_encoder != "features":
        raise InputError(
            "`--cnn_weights` must come with a run on --image_features. "
            f"Received: --cnn_weights={cnn_weights}, and the run was trained "
            f"with --image_encoder={settings.image_encoder}, which "
            "takes photos already. Leave it out."
        )
    settings.cnn_weights = weights_from_here(cnn_weights)
