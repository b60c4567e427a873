"""Assembles zoo models from their SavedModels and pretrained networks.

Image networks and sentence encoders are large. Some zoo folders therefore
contain only a SavedModel that takes their outputs, and `answers.json`, which
lists the expected embeddings of a few inputs. On first use, `assembled` adds
the image networks from the `photos` extra, and the sentence encoder from its
pip package, checks the embeddings, and caches the complete model and its
checksums in `CACHE/zoo/DIGEST/NAME/1`.

`CACHE` is `$TBNETS_CACHE` if it is set, or else `tbnets` in the user's cache
folder. `DIGEST` depends on the zoo files, the version of TensorFlow, and the
code of tbnets that builds the graph.
"""

import hashlib
import os
import pathlib
import shutil
import threading
import time

import numpy as np
import tensorflow as tf

from tbnets.data import images
from tbnets.data.pictures import MAX_PIXELS
from tbnets.data.store.reader import file_sha256
from tbnets.errors import InputError, UserError
from tbnets.features import (
    caption_encoder,
    cnn,
    efficientnet_lite,
    photo_features,
    text_presets,
)
from tbnets.features.cache import written_alone
from tbnets.files import CheckedFile, new_folder, write_text
from tbnets.layers import sentence_encoder
from tbnets.progress import say
from tbnets.serving import endpoints, export, inputs
from tbnets.serving.checksums import (
    ANSWERS,
    CHECKSUMS,
    IDENTITY,
    check_files,
    hash_files,
    write_checksums,
)
from tbnets.serving.served import load_saved_model
from tbnets.text import word_pieces
from tbnets.text.vocabulary import Tokenizer

ENCODER = text_presets.MINILM
"""Name of the sentence encoder that is added."""
TOLERANCE = 1e-3
"""Maximum absolute difference between a computed and an expected number."""
_NUMBERS = 32
"""Number of leading values of each embedding that are compared."""
_SIZES = ((500, 375), (320, 480), (90, 60))
_CAPTIONS = ("a dog runs through the snow", "two children on a beach")
_GRAPH_MODULES = (
    caption_encoder,
    images,
    cnn,
    efficientnet_lite,
    photo_features,
    endpoints,
    export,
    inputs,
    sentence_encoder,
    text_presets,
    word_pieces,
)
"""Modules whose code determines the graph of an assembled model."""
_making = threading.Lock()


def add_networks(source, path):
    """Copies a SavedModel, and makes the copy take photos and captions.

    The metadata of `source` describe the pretrained networks whose outputs it
    takes. Raises ValueError if these networks are missing or have unexpected
    weights.
    """

    def add(served):
        made_by = served.metadata.get("metadata", {})
        features = photo_features.open_photo_features(
            made_by.get("image_features_made_by", {}), "imagenet"
        )
        reader = _caption_reader(served, made_by)
        served.root.reader = reader  # A SavedModel must track lookup tables.
        return endpoints.begin_with_photos(served, features, reader)

    return export.reexport(
        source, path, add=add, metadata={"max_pixels": MAX_PIXELS}
    )


def _caption_reader(served, made_by):
    """Returns the reader of a model's captions, or None if it reads them."""
    if served.takes_captions:
        return None
    encoder = text_presets.PresetFeatures.made(
        made_by["text_features_made_by"], ENCODER
    )
    words = Tokenizer(served.vocabulary, served.metadata["max_tokens"])
    features = caption_encoder.CaptionReader(encoder, words.max_tokens)
    return inputs.FeaturesAndWordsReader(features, words)


def answers_of(model):
    """Returns a model's embeddings of fixed inputs, for `answers.json`."""
    embeddings = {
        "photos": model.embed_images([_mosaic(*size) for size in _SIZES]),
        "texts": model.embed_text(_CAPTIONS),
    }
    return {
        name: np.round(rows[:, :_NUMBERS].astype(float), 6).tolist()
        for name, rows in embeddings.items()
    }


def _mosaic(width, height):
    """Returns a uint8 `[height, width, 3]` image, identical on all machines."""
    x, y = np.arange(width) // 40, np.arange(height)[:, None] // 30
    colours = [
        x * a * (y + b) + y * b for a, b in ((97, 31), (57, 83), (19, 7))
    ]
    return (np.stack(colours, axis=2) % 256).astype(np.uint8)


def check_answers(model, expected_file):
    """Raises ValueError if a model's embeddings differ from `answers.json`."""
    expected = CheckedFile(expected_file).json()
    for name, rows in answers_of(model).items():
        try:
            worst = np.abs(np.subtract(rows, expected[name])).max()
        except (LookupError, TypeError, ValueError):
            worst = np.inf
        if not worst <= TOLERANCE:
            raise InputError(
                f"The model must reproduce {expected_file} within "
                f"{TOLERANCE:g}. Received: {name} that differ by {worst:g}. "
                'Reinstall the networks: `pip install "tbnets[photos]"`.'
            )


def cache_folder():
    """Returns the cache folder of assembled models, without creating it."""
    folder = os.environ.get("TBNETS_CACHE")
    if folder:
        return pathlib.Path(folder)
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(os.path.expanduser(caches), "tbnets")


def assembled(folder):
    """Returns a complete model's folder, assembling the model on first use.

    `folder` contains the zoo model. Its checksums must have been verified.
    """
    folder = folder.absolute()
    content = (folder / CHECKSUMS).read_bytes(), *graph_makers()
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:12]
    path = cache_folder() / "zoo" / digest / folder.name
    if _is_whole(path):
        return path
    with _making, written_alone(path):
        if not _is_whole(path):  # Another process may have made it.
            _make(folder, path)
    return path


def _is_whole(path):
    try:
        check_files(path)
    except (UserError, OSError):
        return False
    return True


def graph_makers(*modules):
    """Returns TensorFlow's version, and digests of the code that builds graphs.

    The code is in `_GRAPH_MODULES` and `modules`. A model that was made by
    other code is not loaded from the cache.
    """
    paths = [module.__file__ for module in (*_GRAPH_MODULES, *modules)]
    return tf.__version__, *map(file_sha256, paths)


def _identity(folder):
    content = repr((hash_files(folder / "1"), *graph_makers()))
    return hashlib.sha256(content.encode()).hexdigest()


def _make(folder, path):
    say(f"assembling {folder.name}, only once, in {path}")
    start = time.monotonic()
    shutil.rmtree(path, ignore_errors=True)  # Removes a damaged folder.
    with new_folder(path) as partial:
        add_networks(folder, partial / "1")
        write_text(partial / IDENTITY, f"{_identity(folder)}\n")
        write_checksums(partial)
        check_answers(load_saved_model(partial), folder / ANSWERS)
    say(f"assembled in {time.monotonic() - start:.0f} s")
