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
from tbnets.scenes.dataset import ensure_scenes
from tbnets.scenes.settings import SceneSettings
from tbnets.store.arrays import check_finite
from tbnets.store.manifest import MANIFEST
from tbnets.store.manifest import extraction_differences
from tbnets.store.shards import open_features
from tbnets.store.shards import read_made_by
from tbnets.text.vocabulary import Tokenizer
from tbnets.text.vocabulary import Vocabulary

TOKENIZER_BATCH = 4096


def resolve(settings, path, split=None):
    """Returns `path` below the data root, with `{split}` filled in.

    A feature store or a file that is not there is looked for in the current
    folder too, where the tools write what they make.
    """
    root = os.environ.get("TBNETS_DATA", settings.data_root)
    below, here = pathlib.Path(root) / path, pathlib.Path(path)
    made_here = here.is_file() or (here / MANIFEST).is_file()
    if made_here and not below.exists():
        below = here
    return below if split is None else pathlib.Path(fill_split(below, split))


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
            settings.scenes,
            scenes,
            lambda done, _: bar.update(done - bar.n),
        )


def load_records(settings, split):
    """Returns the `CaptionedImages` of a split."""
    if settings.scenes:
        _ensure_scenes(settings)
        path = pathlib.Path(settings.scenes) / "dataset.json"
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
        return _load_image_features(settings, records)
    return load_photos(settings, records)


def load_photos(settings, records):
    """Returns the `FileNames` of the photos of some records.

    Raises:
        FileNotFoundError: photos are missing; the message names the first.
    """
    if settings.scenes:
        folder = pathlib.Path(settings.scenes) / "images"
    else:
        folder = resolve(settings, settings.images)
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


def _load_image_features(settings, records):
    """Returns the `FeatureRows` of some records."""
    features = open_features(*_split_features(settings, records.split))
    for paths in feature_paths(settings, settings.train_split):
        check_made_alike(
            features.made_by,
            features.path,
            read_made_by(*paths),
            ", ".join(paths),
        )
    rows = FeatureRows(features, features.rows(records.image_ids))
    features.verify()
    check_finite(features)
    return rows


def _split_features(settings, split):
    """Returns the paths that `--image_features` names for a split."""
    return [
        os.fspath(resolve(settings, pattern.strip(), split))
        for pattern in settings.image_features.split(",")
    ]


def feature_paths(settings, *splits):
    """Returns where the image features of some splits are.

    Returns:
        A list of paths, to be put side by side, for each of those splits
        that have features; each list once.
    """
    found = []
    for split in splits:
        try:
            paths = _split_features(settings, split)
        except ValueError:
            continue  # There are no features of this split.
        if all(map(os.path.exists, paths)) and paths not in found:
            found.append(paths)
    return found


def check_made_alike(found, path, expected, where):
    """Refuses image features that were made otherwise than others.

    Args:
        found: `source` of the features at hand.
        path: where they are.
        expected: `source` of those they must agree with.
        where: where these are, or who remembers them.

    Raises:
        ValueError: listing what differs.
    """
    lines = extraction_differences(expected, found, where, path)
    if lines:
        raise ValueError(
            "`--image_features` must name features that were all extracted "
            f"the same way. Received: --image_features={path}, which differ "
            f"from those of {where}: {'; '.join(lines)}. Extract them again "
            "with the same settings."
        )


def build_vocabulary(settings, records):
    """Returns the `Vocabulary` of the training captions, None if unused."""
    if settings.text_encoder == "features":
        return None
    return Vocabulary.build(
        records.captions,
        min_count=settings.min_count,
        max_words=settings.max_words or None,
    )


def build_tokenizer(settings, vocabulary):
    """Returns the `Tokenizer` that training and serving share."""
    return Tokenizer(vocabulary, settings.max_tokens or None)


def _load_texts(settings, records, vocabulary):
    """Returns the text side of `Examples`: token or feature rows."""
    if settings.text_encoder == "features":
        path = resolve(settings, settings.text_features, records.split)
        features = open_features(path)
        check_finite(features)
        rows = len(features)
        if rows != records.num_captions:
            raise ValueError(
                "`--text_features` must hold a row for each caption. "
                f"Received: {rows} rows in {path}, {records.num_captions} "
                f"captions in {records.path}. Extract them again."
            )
        return FeatureRows(features, range(rows))
    tokenizer = build_tokenizer(settings, vocabulary)
    ids = [
        tf.RaggedTensor.from_tensor(
            tokenizer(list(records.captions[start : start + TOKENIZER_BATCH])),
            padding=0,
        )
        for start in range(0, records.num_captions, TOKENIZER_BATCH)
    ]
    return TokenRows(tf.concat(ids, axis=0).to_tensor().numpy())


def load_examples(settings, split, vocabulary, records=None):
    """Returns the `Examples` of a split.

    Args:
        settings: the run's settings.
        split: name of the split.
        vocabulary: `Vocabulary`, or None with text features.
        records: `CaptionedImages` when already read.

    Raises:
        ValueError, FileNotFoundError: something is missing or broken; the
            message names it.
    """
    records = records or load_records(settings, split)
    text_ids = None
    if settings.equal_texts_match:
        text_ids = equal_text_ids(records.captions)
    return Examples(
        records=records,
        images=load_images(settings, records),
        texts=_load_texts(settings, records, vocabulary),
        text_ids=text_ids,
    )
