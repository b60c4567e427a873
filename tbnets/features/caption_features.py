"""Extracts features of captions into a store that is keyed by text.

Captions with equal `caption_key`s share a row. The store's folder also contains
the encoder, so that an exported model can read raw captions.
"""

import os
import pathlib

import numpy as np

from tbnets.data.captions import caption_key
from tbnets.data.store.npy import ERRORS, read_npz
from tbnets.data.store.reader import check_same
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tbnets.features.caption_encoder import FORMAT, CaptionEncoder, MeanFeatures
from tbnets.features.fisher import FisherFeatures
from tbnets.features.text_presets import PresetFeatures
from tbnets.features.tfidf import TfidfFeatures
from tbnets.files import CheckedFile, require_file

ENCODERS = {
    kind.kind: kind
    for kind in (TfidfFeatures, MeanFeatures, FisherFeatures, PresetFeatures)
}
ENCODER_FILE = "encoder.npz"
CAPTIONS_PER_WRITE = 4096


def plan_of(encoder):
    """Returns a dict of an encoder's kind, parameters and training data."""
    return {
        "text_features": encoder.kind,
        **{name: getattr(encoder, name) for name in encoder.parameters},
        "fitted_on": encoder.notes_.get("fitted_on", {}),
    }


def description(encoder):
    """Returns an encoder's settings and digest, for a store's manifest."""
    return {**plan_of(encoder), "encoder_sha256": encoder.digest()}


def open_fitted(folder, encoder):
    """Returns a store's fitted encoder, or None if the store is new.

    Raises an error if the settings of the two encoders differ.
    """
    path = pathlib.Path(folder, ENCODER_FILE)
    if not path.exists():
        return None
    fitted = load_encoder(path)
    check_same(path, plan_of(fitted), plan_of(encoder))
    return fitted


def open_writer(folder, encoder, dtype="float32"):
    """Opens a store for writing and saves its encoder there."""
    writer = FeatureWriter(folder, description(encoder), encoder.dim, dtype)
    path = pathlib.Path(folder, ENCODER_FILE)
    if not path.exists():
        encoder.save(path)
    return writer


def extract_captions(captions, encoder, writer, progress=lambda count: None):
    """Adds the features of captions that are not in a store to the store.

    `progress` is called with the number of newly encoded texts.
    """
    texts = {caption_key(caption): caption for caption in captions}
    todo = [key for key in texts if key not in writer.done]
    for start in range(0, len(todo), CAPTIONS_PER_WRITE):
        keys = todo[start : start + CAPTIONS_PER_WRITE]
        rows = np.empty((len(keys), encoder.dim), np.float32)
        for part, vectors in encoder.chunks([texts[key] for key in keys]):
            rows[part] = vectors
            progress(len(vectors))
        writer.add(keys, rows)


def load_encoder(path) -> CaptionEncoder:
    """Reads a fitted encoder from a file or a store.

    No code in the file is executed.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        path = path / ENCODER_FILE
    require_file(path)
    try:
        header, arrays = read_npz(path)
        if header["format"] != FORMAT:
            raise InputError(f"its format is {header['format']!r}")
        encoder = ENCODERS[header["kind"]](**header["parameters"])
        encoder.restore(header, arrays)
    except ERRORS as error:
        raise InputError(
            f"{path}: expected a complete caption encoder ({FORMAT}); found "
            f"an invalid file ({error})."
        ) from error
    return encoder


def load_encoder_of(made_by, path):
    """Reads a store's encoder and checks that it computed the features.

    `made_by` is the store's `Features.made_by`.
    """
    encoder, expected_sha256 = load_encoder(path), made_by["encoder_sha256"]
    if encoder.digest() != expected_sha256:
        expected = f"the encoder of the features, {expected_sha256}"
        file = CheckedFile(os.path.join(path, ENCODER_FILE))
        file.refuse(expected, encoder.digest())
    return encoder
