"""Times the first search of a folder of photos, and later searches."""

import itertools
import os
import pathlib
import tempfile

from benchmarks import arrays, extraction, timing
from tbnets import files
from tbnets.data import archives
from tbnets.data.photos import list_photos, sort_files
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import cache, cnn, photo_features
from tbnets.serving import embedding_cache, search, zoo
from tbnets.serving.checksums import identity_of
from tbnets.visualization import montage

MODEL = "flickr8k_photos"
QUERIES = ["a dog in the snow"]


def run(options):
    """Prints a table for new photos and one for embedded photos.

    Photos are repeated if --images contains too few.
    """
    model, repeats = zoo.open_model(MODEL), options.repeats or 3
    with tempfile.TemporaryDirectory() as place:
        for name, count, time_it in (
            ("new", options.num_photos, _time_embedding),
            ("known", options.first_size(20_000), _time_answers),
        ):
            folder = pathlib.Path(place, name)
            _links(options.images, folder, count)
            time_it(model, folder, count, repeats)


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
    place = folder.with_name("kept")
    made_by, (paths, _) = identity_of(model), sort_files(folder)
    keys = [f"{number:064x}" for number in range(count)]
    store = cache.store_folder(place, "embeddings", made_by)
    with FeatureWriter(store, made_by, model.embedding_dim) as writer:
        writer.add(keys, rows)
        writer.finish()
    entries = {
        os.fspath(path): "{} {} {}".format(*archives.stamp(path), key)
        for path, key in zip(paths.values(), keys)
    }
    files.write_json(place / cache.FILES, entries)

    def rank():
        return search.rank(model, QUERIES, (), rows, 5)

    runs = {
        "all of them found again": lambda: embedding_cache.embed_folder(
            model, folder, place
        ),
        "sentence embedded and ranked": rank,
        "the same, and drawn": lambda: montage.draw_montage(
            QUERIES, list(paths), rank(), folder
        ),
    }
    timing.print_table(f"{count} embedded photos", runs, repeats)
