"""Compares the times of feature extraction and of its forward passes."""

import itertools
import tempfile

from benchmarks import timing
from tbnets.data.photos import list_photos
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import cnn, extraction, photo_features


def run(options):
    """Prints the table."""
    folder, name = options.images, options.cnn
    photos, features = photos_and_features(folder, options.num_photos, name)
    runs = {
        "forward passes alone": forward(photos, features),
        "extraction": extract(photos, features),
    }
    timing.print_table(
        f"{name}, {len(photos)} photos of {folder}, files to store",
        runs,
        options.repeats or 15,
        dict.fromkeys(runs, len(photos)),
    )


def photos_and_features(folder, count, name):
    """Returns the (id, path) pairs of `count` photos, and a network."""
    paths = itertools.cycle(list_photos(folder))
    photos = enumerate(itertools.islice(paths, count))
    network = cnn.build_cnn(name, image_size=None)
    features = photo_features.PhotoFeatures(network, ["last"])
    return [(f"{row}.jpg", path) for row, path in photos], features


def forward(photos, features, then=lambda rows: rows):
    """Returns a function that runs the forward passes over decoded photos.

    `then` receives the features of each batch.
    """
    batches = extraction.decoded_batches(photos, features.decode)
    decoded = [batch for _, batch in batches]

    def run_all():
        for batch in decoded:
            then(features.compiled_forward(batch).numpy())

    return run_all


def extract(photos, features):
    """Returns a function that writes features of photo files to a store."""

    def run_all():
        with tempfile.TemporaryDirectory() as store:
            writer = FeatureWriter(store, {"for": "timing"}, features.dim)
            extraction.extract_photos(photos, features, writer)
            writer.finish()

    return run_all
