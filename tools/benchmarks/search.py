"""Times the first search of a folder of photos, and later searches."""

import itertools
import os
import pathlib
import tempfile

from benchmarks import arrays, extraction, timing
from tbnets.data.photos import list_photos
from tbnets.features import cache, cnn, photo_features
from tbnets.serving import embedding_cache, search, zoo
from tbnets.serving.checksums import identity_of

MODEL = "flickr8k_photos"
QUERIES = ["a dog in the snow"]


def run(options):
    """Prints a table for new photos and one for embedded photos.

    Photos are repeated if --images contains too few.
    """
    model, repeats = zoo.open_model(MODEL), options.repeats or 3
    with tempfile.TemporaryDirectory() as place:
        folder, count = pathlib.Path(place, "new"), options.num_photos
        _links(options.images, folder, count)
        _time_embedding(model, folder, count, repeats)
        folder, count = pathlib.Path(place, "known"), options.first_size(20_000)
        _time_answers(model, folder, count, repeats)


def _links(folder, place, count):
    paths = itertools.cycle(list_photos(pathlib.Path(folder).resolve()))
    place.mkdir()
    for number, path in enumerate(itertools.islice(paths, count)):
        (place / f"{number}{path.suffix}").symlink_to(path)


def _time_embedding(model, folder, count, repeats):
    made_by = model.metadata["metadata"]["image_features_made_by"]
    network = cnn.build_cnn(made_by["cnn"], image_size=made_by["image_size"])
    features = photo_features.PhotoFeatures(network, made_by["layers"])
    photos = list(enumerate(list_photos(folder)))
    floor = extraction.forward(photos, features, model.embed_features)

    def embed():
        with tempfile.TemporaryDirectory() as place:
            embedding_cache.embed_folder(model, folder, place)

    runs = {"forward passes alone": floor, "photos embedded and kept": embed}
    title = f"{count} photos that are new, {MODEL}"
    timing.print_table(title, runs, repeats, dict.fromkeys(runs, count))


def _time_answers(model, folder, count, repeats):
    rows = arrays.unit_rows(count, model.embedding_dim)
    place, made_by = folder.with_name("kept"), identity_of(model)
    folder.mkdir()
    paths = {f"{n}.jpg": folder / f"{n}.jpg" for n in range(count)}
    for name, path in paths.items():
        path.write_text(name)
        os.utime(path, (0, 0))  # The cache reads new files again.

    def add(photos, writer, **_):
        writer.add([key for key, _ in photos], rows)

    vectors = cache.VectorCache(place, "embeddings", made_by)
    vectors.complete(paths, "embedding", lambda: (model.embedding_dim, add))
    runs = {
        "all of them found again": lambda: embedding_cache.embed_folder(
            model, folder, place
        ),
        "sentence embedded and ranked": lambda: search.rank(
            model, QUERIES, (), rows, 5
        ),
    }
    timing.print_table(f"{count} embedded photos", runs, repeats)
