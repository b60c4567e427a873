"""Times the search of a folder: the first answer, and each one after it."""

import itertools
import pathlib
import tempfile

import numpy as np

from benchmarks import timing
from tbnets.data import images
from tbnets.data.photos import list_photos, sort_files
from tbnets.features import cnn, photo_features
from tbnets.serving import photo_index, search, zoo
from tbnets.visualization import montage

MODEL = "flickr8k_photos"
QUERIES = ["a dog in the snow"]


def run(folder, num_photos, num_known, repeats):
    """Prints a table of embedding photos, and one of answering once they are.

    Args:
        folder: folder of photos, which are taken again where it has too few.
        num_photos: photos that are embedded in a timed run.
        num_known: photos of a folder whose embeddings are kept, random ones.
        repeats: timed runs of each row.
    """
    model = zoo.open_model(MODEL)
    with tempfile.TemporaryDirectory() as place:
        some = _links(folder, pathlib.Path(place, "new"), num_photos)
        _time_embedding(model, some, num_photos, repeats)
        some = _links(folder, pathlib.Path(place, "known"), num_known)
        _time_answers(model, some, num_known, repeats)


def _links(folder, place, count):
    """Makes a folder of so many photos, links to those of another."""
    paths = itertools.cycle(list_photos(pathlib.Path(folder).resolve()))
    place.mkdir()
    for number, path in enumerate(itertools.islice(paths, count)):
        (place / f"{number}{path.suffix}").symlink_to(path)
    return place


def _time_embedding(model, folder, count, repeats):
    """Prints the table of a folder that is searched for the first time."""
    made_by = model.metadata["metadata"]["image_features_made_by"]
    network = cnn.build_cnn(made_by["cnn"], image_size=made_by["image_size"])
    features = photo_features.PhotoFeatures(network, made_by["layers"])
    paths, size = list_photos(folder), search.PHOTO_BATCH_SIZE
    decoded = [
        images.decode_images(paths[at : at + size], features.photo_size)
        for at in range(0, count, size)
    ]

    def floor():
        for photos in decoded:
            model.embed_features(features.compiled_forward(photos).numpy())

    def embed():
        with tempfile.TemporaryDirectory() as place:
            photo_index.embed_folder(model, folder, place)

    runs = {"forward passes alone": floor, "photos embedded and kept": embed}
    found = timing.interleaved(runs, repeats)
    speed = 1e3 * count / found["photos embedded and kept"]
    title = f"{count} photos that are new, {MODEL}, {speed:.1f} photos/s"
    timing.print_table(title, found, "forward passes alone")


def _time_answers(model, folder, count, repeats):
    """Prints the table of a folder that was searched before."""
    rows = np.random.default_rng(0).normal(size=(count, model.embedding_dim))
    rows = np.float32(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    place = folder.with_name("kept")
    kept = photo_index.Index(place, model, folder)
    paths, _ = sort_files(folder)
    for (name, path), row in zip(paths.items(), rows):
        kept.add({name: photo_index.Entry(photo_index.stamp_of(path), row)})
    kept.save()

    def look():
        return list(map(photo_index.stamp_of, sort_files(folder)[0].values()))

    def rank():
        return search.rank(model, QUERIES, (), rows, 5)

    def draw():
        montage.draw_montage(QUERIES, list(paths), *rank(), folder)

    whole = "all of them found again"
    runs = {
        "files and their stamps": look,
        "what is kept of them read": lambda: photo_index.Index(
            place, model, folder
        ),
        whole: lambda: photo_index.embed_folder(model, folder, place),
        "sentence embedded and ranked": rank,
        "the same, and drawn": draw,
    }
    found = timing.interleaved(runs, repeats)
    timing.print_table(f"{count} photos that are known", found, whole)
