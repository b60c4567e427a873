"""Settings -> the data of a run: records, images, features, texts.

Each function takes the run's settings (see `flags`) and reads what they name.
"""

import os
import pathlib

import tensorflow as tf
import tqdm

from tbnets.data import captions
from tbnets.data.examples import Examples
from tbnets.data.examples import FeatureRows
from tbnets.data.examples import FileNames
from tbnets.data.examples import TokenRows
from tbnets.data.examples import equal_text_ids
from tbnets.data.splits import fill_split
from tbnets.data.splits import splits_in_path
from tbnets.scenes.dataset import ensure_scenes
from tbnets.scenes.settings import SceneSettings
from tbnets.store.manifest import MANIFEST
from tbnets.store.manifest import extraction_differences
from tbnets.store.manifest import without_retired
from tbnets.store.opening import load_features
from tbnets.store.opening import read_made_by
from tbnets.text.vocabulary import Tokenizer
from tbnets.text.vocabulary import Vocabulary

TOKENIZER_BATCH = 4096


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
        raise ValueError(
            "`--captions` must name the captions to read. Received: "
            "--captions=. Set it, or --scenes for the embedded data set."
        )
    path = resolve(settings, settings.captions)
    return captions.read_captions(settings.captions_format, path, split)


def load_images(settings, records):
    """Returns the image side of `Examples` for some records.

    Raises:
        ValueError, FileNotFoundError: images or features are missing, not
            finite, damaged or made otherwise than those of the training
            split; the message names them.
    """
    if settings.image_encoder == "features":
        if not settings.image_features:
            raise ValueError(
                "`--image_features` must name a feature array. Received: "
                "--image_features= with --image_encoder=features. Set it, or "
                "another --image_encoder to train from --images."
            )
        paths = _feature_paths(settings, records.split)
        features, rows = load_features(paths, records.image_ids)
        check_image_features(
            settings, [settings.train_split], features.made_by, features.path
        )
        return FeatureRows(features, rows)
    return load_photos(settings, records)


def photo_folder(settings):
    """Returns the folder that the photos' file names start from."""
    if settings.scenes:
        return from_start(settings, settings.scenes) / "images"
    return resolve(settings, settings.images)


def load_photos(settings, records):
    """Returns the `FileNames` of the photos of some records.

    Raises:
        FileNotFoundError: photos are missing; the message names the first.
    """
    folder = photo_folder(settings)
    paths = [folder / records.file_name(i) for i in range(records.num_images)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"`--images` must hold every image of split {records.split}. "
            f"Received: --images={folder}, where {len(missing)} of "
            f"{len(paths)} are missing, first {missing[0].name}. Complete "
            "the folder or remove the images from the captions."
        )
    return FileNames(paths)


def _feature_paths(settings, split):
    """Returns the paths that `--image_features` names for a split."""
    return [
        os.fspath(resolve(settings, pattern.strip(), split))
        for pattern in settings.image_features.split(",")
    ]


def check_image_features(settings, splits, made_by, where):
    """Refuses image features that were made otherwise than others.

    Args:
        settings: the run's settings.
        splits: names of the splits to check; those whose features are not
            there are left out.
        made_by: `Features.made_by` that theirs must agree with.
        where: the path of those features, or of the checkpoint that
            remembers them.

    Raises:
        ValueError: listing what differs.
    """
    for split in splits:
        try:
            paths = _feature_paths(settings, split)
        except ValueError:
            continue  # There are no features of this split.
        if not all(map(os.path.exists, paths)):
            continue
        lines = extraction_differences(
            without_retired(made_by),
            read_made_by(*paths),
            where,
            ", ".join(paths),
        )
        if lines:
            raise ValueError(
                "`--image_features` must name features that were all "
                "extracted the same way. Received: --image_features="
                f"{', '.join(paths)}, which differ from those of {where}: "
                f"{'; '.join(lines)}. Extract them again with the same "
                "settings."
            )


def build_vocabulary(settings, records):
    """Returns the `Vocabulary` of the training captions."""
    return Vocabulary.build(
        records.captions,
        min_count=settings.min_count,
        max_words=settings.max_words or None,
    )


def build_tokenizer(settings, vocabulary):
    """Returns the `Tokenizer` that training and serving share."""
    return Tokenizer(vocabulary, settings.max_tokens or None)


def load_text_features(settings, records):
    """Returns the `FeatureRows` of the captions of some records."""
    path = resolve(settings, settings.text_features, records.split)
    features, rows = load_features([path])
    if len(rows) != records.num_captions:
        raise ValueError(
            "`--text_features` must hold a row for each caption. "
            f"Received: {len(rows)} rows in {path}, {records.num_captions} "
            f"captions in {records.path}. Extract them again."
        )
    return FeatureRows(features, rows)


def tokenize(tokenizer, captions):
    """Returns the `TokenRows` of captions, a few thousand at a time."""
    parts = [
        tokenizer.ragged(list(captions[start : start + TOKENIZER_BATCH]))
        for start in range(0, len(captions), TOKENIZER_BATCH)
    ]
    if not parts:
        return TokenRows([], [])
    ids = tf.concat(parts, axis=0)
    return TokenRows(ids.values.numpy(), ids.row_lengths().numpy())


def load_examples(settings, records, vocabulary):
    """Returns the `Examples` of some records.

    Args:
        settings: the run's settings.
        records: `CaptionedImages` of a split.
        vocabulary: `Vocabulary`, or None with text features.

    Raises:
        ValueError, FileNotFoundError: something is missing or broken; the
            message names it.
    """
    if settings.text_encoder == "features":
        texts = load_text_features(settings, records)
    else:
        tokenizer = build_tokenizer(settings, vocabulary)
        texts = tokenize(tokenizer, records.captions)
    text_ids = None
    if settings.equal_texts_match:
        text_ids = equal_text_ids(records.captions)
    return Examples(
        records=records,
        images=load_images(settings, records),
        texts=texts,
        text_ids=text_ids,
    )
