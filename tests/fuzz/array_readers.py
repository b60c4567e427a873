"""Readers of arrays: features, stores, embeddings, weights, photos."""

import functools
from unittest import mock

import numpy as np
import PIL.Image

from tbnets.cli import evaluate
from tbnets.data import pictures
from tbnets.data.images import fault_of, read_photo, read_photo_sizes
from tbnets.data.store.reader import load_features, open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.evaluation import retrieval
from tbnets.features import caption_features
from tbnets.features.caption_encoder import MeanFeatures
from tbnets.features.cnn_weights import load_weights, read_tensors
from tbnets.text.word_vectors import WordVectors
from tests.features import tiny_cnn, torch_checkpoints
from tests.features.test_cnn import write_old_layout
from tests.fuzz.damage import npy
from tests.fuzz.reader import Reader, reader_of
from tests.photo_files import encode

IDS = ("0.jpg", "caf\u00e9.jpg", "2.jpg")
ROWS = np.array([0, 0, 1, 2])
EYE = np.eye(3, dtype=np.float32)
EMBEDDINGS = {
    "images.npy": npy(EYE),
    "texts.npy": npy(EYE[ROWS]),
    "rows.npy": npy(ROWS),
}
FLAGS = ("image_embeddings", "text_embeddings", "caption_to_image")
"""What the user named the files of embeddings by."""
BOXES = np.array([[0, 0, 5, 5], [1, 2, 30, 40], [3, 3, 9, 9]])
TORCH = {"a.weight": np.ones((2, 3)), "a.num_batches_tracked": [4]}


def _read_array(folder):
    path = folder / "x_ims.npy"
    features = open_features(path)
    read = [array for _, array in features.chunks()]
    load_features(path)
    return features.ids, read, features.take(range(len(features)))


def _write_store(folder):
    writer = FeatureWriter(folder / "store", {"made": "up"}, 4, "float16")
    writer.add(IDS[:2], np.arange(8).reshape(2, 4))
    failed = {"3.jpg": "does not decode"}
    writer.add(IDS[2:], np.ones((1, 4)), failed=failed)
    writer.finish()


def _write_regions(folder):
    features = np.arange(12).reshape(3, 4)
    sizes, counts = np.full((3, 2), 60), [2, 0, 1]
    path, made_by = folder / "store", {"made": "up"}
    writer = FeatureWriter(path, made_by, 4, "float16", "regions")
    writer.add(IDS, features, BOXES, counts, [3, 2, 1], sizes)
    writer.finish()


def _read_store(folder):
    store = open_features(folder / "store")
    rows = [array for _, array in store.chunks()]
    regions = []
    if store.kind == "regions" and store.dim:
        regions = [store.regions(row) for row in range(len(store))]
    if store.kind == "regions":
        regions += [store.boxes(row) for row in range(len(store))]
    load_features(folder / "store")
    told = store.made_by, store.failed, store.sizes
    return store.ids, rows, regions, *told


def _store(write):
    """Returns the reader of a store, whose manifest has the arrays' sums."""
    arrays = ("store/*.npy", "store/ids.txt")
    return Reader(write, ("store/manifest.json",), _read_store, arrays)


def _evaluate(folder):
    names = "images", "texts", "rows"
    arrays = (evaluate.read_array(folder / f"{name}.npy") for name in names)
    return retrieval.evaluate_protocol("full", *arrays)


def _write_encoder(folder):
    vectors = WordVectors(("a", "dog"), np.eye(2, 3, dtype=np.float32))
    encoder = MeanFeatures().fit(["a dog", "a cat"], vectors)
    encoder.save(folder / "encoder.npz")


def _read_encoder(folder):
    encoder = caption_features.load_encoder(folder / "encoder.npz")
    rows = [rows for _, rows in encoder.chunks(["a dog", "a cat", ""])]
    return encoder.digest(), rows


@functools.cache
def _network():
    return tiny_cnn.tiny_cnn().network


def _weights(name, write):
    def read(folder):
        load_weights(_network(), folder / name)
        return _network().get_weights()

    return Reader(lambda folder: write(folder / name), (name,), read)


def _photo(kind, cost=1, **options):
    name = f"a.{kind}"
    content = encode(format=kind.upper(), size=(24, 16), **options)

    def read(folder):
        read_photo(SMALL_PHOTO)  # The graph has the true limit of pixels.
        with mock.patch.object(pictures, "MAX_PIXELS", 2**20):
            fault_of((folder / name).read_bytes())
            return read_photo_sizes([folder / name]), read_photo(folder / name)

    return reader_of({name: content}, read, cost=cost)


SMALL_PHOTO = encode(size=(4, 3))


def _orientation():
    """Returns the notes of a JPEG file that is to be turned."""
    notes = PIL.Image.Exif()
    notes[0x0112] = 6
    return notes.tobytes()


READERS = {
    "array": reader_of(
        {
            "x_ims.npy": npy(np.arange(12, dtype=np.float32).reshape(3, 4)),
            "x_ids.txt": "\n".join(IDS) + "\n",
        },
        _read_array,
    ),
    "store": _store(_write_store),
    "regions": _store(_write_regions),
    "evaluate": reader_of(EMBEDDINGS, _evaluate, names=FLAGS),
    "caption_encoder": Reader(_write_encoder, ("encoder.npz",), _read_encoder),
    "torch_file": reader_of(
        {"net.pth": torch_checkpoints.checkpoint(TORCH)},
        lambda folder: read_tensors(folder / "net.pth"),
    ),
    "cnn_weights_old": _weights(
        "net.h5", lambda path: write_old_layout(path, _network())
    ),
    "cnn_weights": _weights(
        "net.weights.h5", lambda path: _network().save_weights(path)
    ),
    "photo_jpeg": _photo("jpeg", exif=_orientation()),
    "photo_png": _photo("png", exif=_orientation()),
    **{
        f"photo_{kind}": _photo(kind, cost=5)
        for kind in ("webp", "gif", "bmp", "tiff", "avif")
    },
}
