"""Adds a LiteRT model to a model of the zoo, and measures it."""

from tbnets import lite
from tbnets.data.captions import read_captions
from tbnets.evaluation.retrieval import evaluate_retrieval
from tbnets.files import write_json
from tbnets.serving.checksums import FOLDER, MODEL
from tbnets.serving.doubt import embed_split
from tbnets.serving.litert import write_litert
from tbnets.tasks.trained import rebuild

CALIBRATION = 100
"""Number of training photos that calibrate an int8 model."""


def add_litert(folder, kind, images, captions):
    """Writes `folder/litert/KIND` and returns its metrics on the test split.

    `kind` is a value in `checksums.KINDS`. `images` is the folder of the
    photos, and `captions` is a file with the splits `train` and `test`.
    """
    photos = calibration_photos(images, captions)
    network, endpoints = rebuild(str(folder))
    path, _ = write_litert(
        network, endpoints, folder / FOLDER / kind, kind, photos
    )
    model = lite.load(path)
    metrics, _ = measure(model, images, captions)
    record = {**model.metadata, "metadata": {"recalls": metrics}}
    write_json(path / MODEL, record)
    return metrics


def calibration_photos(images, captions):
    """Returns the paths of `CALIBRATION` training photos."""
    names = read_captions(captions, "train").names
    names = names[:: max(1, len(names) // CALIBRATION)]
    return [images / name for name in names[:CALIBRATION]]


def measure(model, images, captions):
    """Returns a model's metrics and photo embeddings on the test split."""
    test = read_captions(captions, "test")
    photos, texts = embed_split(model, test, images)
    return evaluate_retrieval(photos, texts, test.caption_to_image), photos
