"""Readers of arrays: features, stores, proposals, maps, weights, photos."""

import functools
import io
import zipfile

import numpy as np
import PIL.Image

from tbnets.cli import zero_shot
from tbnets.data.images import fault_of, read_photo, read_photo_sizes
from tbnets.data.store.opening import load_features, open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.evaluation import retrieval
from tbnets.features import caption_features
from tbnets.features.caption_encoder import MeanFeatures
from tbnets.features.cnn_weights import load_weights, read_tensors
from tbnets.features.proposals import Proposer, proposer_of
from tbnets.text.word_vectors import WordVectors
from tests.features import tiny_cnn, torch_checkpoints
from tests.features.test_cnn import write_old_layout
from tests.fuzz.reader import Reader
from tests.photo_files import encode

IDS = ("0.jpg", "caf\u00e9.jpg", "2.jpg")


def npz_member(content, name):
    """Returns an array of an `.npz` as the archive holds it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(name)


def with_npz_member(content, new, name):
    """Returns an `.npz` with another array, whose checksum is right."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        with zipfile.ZipFile(made, "w") as other:
            for entry in archive.infolist():
                kept = archive.read(entry)
                other.writestr(entry, new if entry.filename == name else kept)
    return made.getvalue()


def header_of(content):
    """Returns the JSON text in the array `header` of an `.npz`."""
    array = io.BytesIO(npz_member(content, "header.npy"))
    return np.load(array).tobytes()


def with_header(content, text):
    """Returns an `.npz` with another JSON text in its array `header`."""
    array = io.BytesIO()
    np.save(array, np.frombuffer(text, np.uint8))
    return with_npz_member(content, array.getvalue(), "header.npy")


def _write_array(folder):
    np.save(folder / "x_ims.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    (folder / "x_ids.txt").write_text("\n".join(IDS) + "\n", "utf-8")


def _read_array(folder):
    path = folder / "x_ims.npy"
    features = open_features(path)
    read = [array for _, array in features.chunks()]
    load_features([path], features.ids)
    return features.ids, read, features.take(range(len(features)))


def _write_store(folder):
    writer = FeatureWriter(folder / "store", {"made": "up"}, 4, "float16")
    writer.add_shard(IDS[:2], np.arange(8).reshape(2, 4))
    writer.add_shard(
        IDS[2:], np.ones((1, 4)), failed={"3.jpg": "does not decode"}
    )
    writer.finish()


def _write_regions(folder):
    writer = FeatureWriter(
        folder / "store", {"made": "up"}, 4, "float16", "regions"
    )
    boxes = np.array([[0, 0, 5, 5], [1, 2, 30, 40], [3, 3, 9, 9]])
    writer.add_shard(
        IDS,
        np.arange(12).reshape(3, 4),
        boxes,
        [2, 0, 1],
        sizes=np.full((3, 2), 60),
    )
    writer.finish()


def _write_proposals(folder):
    description = Proposer(limit=10).description()
    writer = FeatureWriter(folder / "store", description, 0, kind="regions")
    boxes = np.array([[0, 0, 5, 5], [1, 2, 30, 40], [3, 3, 9, 9]])
    writer.add_shard(
        IDS,
        None,
        boxes,
        [2, 0, 1],
        scores=np.array([3.0, 2, 1]),
        sizes=np.full((3, 2), 60),
    )
    writer.finish()


def _read_store(folder):
    store = open_features(folder / "store")
    rows = [array for _, array in store.chunks()]
    regions = []
    if store.kind == "regions" and store.dim:
        regions = [store.regions(row) for row in range(len(store))]
    if store.kind == "regions":
        regions += [store.boxes(row) for row in range(len(store))]
    load_features([folder / "store"])
    told = store.made_by, store.failed, store.sizes
    return store.ids, rows, regions, *told


def _read_proposals(folder):
    read = _read_store(folder)
    store = open_features(folder / "store")
    return read, vars(proposer_of(store.extraction))


def _store(write, file, read=_read_store, **more):
    return Reader(write, f"store/{file}", read, **more)


def _write_embeddings(folder):
    np.save(folder / "images.npy", np.eye(3, dtype=np.float32))
    rows = np.array([0, 0, 1, 2])
    np.save(folder / "texts.npy", np.eye(3, dtype=np.float32)[rows])
    np.save(folder / "rows.npy", rows)
    (folder / "rows.txt").write_text("0\n0\n1\n2\n")


def _evaluate(folder, rows="rows.npy"):
    return retrieval.evaluate_protocol(
        "full",
        zero_shot.read_array(folder / "images.npy"),
        zero_shot.read_array(folder / "texts.npy"),
        zero_shot.read_caption_to_image(folder / rows),
    )


_evaluate_text = functools.partial(_evaluate, rows="rows.txt")
FLAGS = ("image_embeddings", "text_embeddings", "caption_to_image")
"""What the user named the file by."""


def _write_encoder(folder):
    vectors = WordVectors(("a", "dog"), np.eye(2, 3, dtype=np.float32))
    encoder = MeanFeatures().fit(["a dog", "a cat"], vectors)
    encoder.save(folder / "encoder.npz")


def _read_encoder(folder):
    encoder = caption_features.load_encoder(folder / "encoder.npz")
    rows = [rows for _, rows in encoder.chunks(["a dog", "a cat", ""])]
    return encoder.digest(), rows


def _write_torch(folder):
    tensors = {"a.weight": np.ones((2, 3)), "a.num_batches_tracked": [4]}
    content = torch_checkpoints.checkpoint(tensors)
    (folder / "net.pth").write_bytes(content)


def _read_torch(folder):
    return read_tensors(folder / "net.pth")


@functools.cache
def _network():
    return tiny_cnn.tiny_cnn().network


def _write_old_weights(folder):
    write_old_layout(folder / "net.h5", _network())


def _write_weights(folder):
    _network().save_weights(folder / "net.weights.h5")


def _read_weights(folder, name):
    load_weights(_network(), folder / name)
    return _network().get_weights()


def _write_photo(folder, name, content):
    (folder / name).write_bytes(content)


def _read_photo(folder, name):
    path = folder / name
    fault_of(path.read_bytes())
    return read_photo_sizes([path]), read_photo(path)


def _photo(name, content, in_suite=40):
    return Reader(
        functools.partial(_write_photo, name=name, content=content),
        name,
        functools.partial(_read_photo, name=name),
        in_suite=in_suite,
    )


def _orientation():
    """Returns the notes of a JPEG file that is to be turned."""
    notes = PIL.Image.Exif()
    notes[0x0112] = 6
    return notes.tobytes()


READERS = {
    "array": Reader(_write_array, "x_ims.npy", _read_array),
    "array_ids": Reader(_write_array, "x_ids.txt", _read_array),
    "store_manifest": _store(_write_store, "manifest.json"),
    "store_ids": _store(_write_store, "00000.ids.txt"),
    "store_array": _store(_write_store, "00000.npy"),
    "regions_manifest": _store(_write_regions, "manifest.json"),
    "regions_array": _store(_write_regions, "00000.npy"),
    "regions_boxes": _store(_write_regions, "00000.boxes.npy"),
    "regions_counts": _store(_write_regions, "00000.counts.npy"),
    "regions_sizes": _store(_write_regions, "00000.sizes.npy"),
    "proposals_manifest": _store(
        _write_proposals,
        "manifest.json",
        _read_proposals,
        names=("`description`",),
    ),
    "proposals_scores": _store(
        _write_proposals, "00000.scores.npy", _read_proposals
    ),
    "evaluate_images": Reader(
        _write_embeddings, "images.npy", _evaluate, names=FLAGS
    ),
    "evaluate_rows": Reader(
        _write_embeddings, "rows.npy", _evaluate, names=FLAGS
    ),
    "evaluate_rows_text": Reader(
        _write_embeddings, "rows.txt", _evaluate_text, names=FLAGS
    ),
    "caption_encoder": Reader(_write_encoder, "encoder.npz", _read_encoder),
    "caption_encoder_header": Reader(
        _write_encoder,
        "encoder.npz",
        _read_encoder,
        part=header_of,
        whole=with_header,
    ),
    "torch_file": Reader(_write_torch, "net.pth", _read_torch),
    "cnn_weights_old": Reader(
        _write_old_weights,
        "net.h5",
        functools.partial(_read_weights, name="net.h5"),
    ),
    "cnn_weights": Reader(
        _write_weights,
        "net.weights.h5",
        functools.partial(_read_weights, name="net.weights.h5"),
    ),
    "photo_jpeg": _photo("a.jpg", encode(size=(24, 16), exif=_orientation())),
    "photo_png": _photo("a.png", encode(format="PNG", size=(24, 16))),
    **{
        f"photo_{kind}": _photo(
            f"a.{kind}", encode(format=kind.upper(), size=(24, 16)), 8
        )
        for kind in ("webp", "gif", "bmp", "tiff", "avif")
    },
}
