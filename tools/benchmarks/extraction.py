"""Times the extraction of features against its forward passes alone."""

import itertools
import tempfile

import numpy as np
import tensorflow as tf

from benchmarks import timing
from tbnets.data import images
from tbnets.data.photos import list_photos
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import cnn, extraction, photo_features, regions


def run(folder, name, layers, image_size, num_images, repeats):
    """Prints the table of whole photos.

    Args:
        folder: folder of photos, of which the first are taken.
        name: network of `cnn.NETWORKS`; its weights are random.
        layers: as `--layers` of the extraction tool.
        image_size: side of the network's input in pixels, or None.
        num_images: photos in a timed run.
        repeats: timed runs of each row.
    """
    photos = _photos(folder, num_images)
    network = cnn.build_cnn(name, image_size=image_size)
    features = photo_features.PhotoFeatures(network, layers)
    batches = extraction.decoded_batches([photos], features.decode)
    decoded = [batch for _, _, batch in batches]

    def floor():
        for batch in decoded:
            features.compiled_forward(batch).numpy()

    def extract():
        with tempfile.TemporaryDirectory() as store:
            writer = FeatureWriter(store, {"for": "timing"}, features.dim)
            extraction.extract_photos(photos, features, writer)
            writer.finish()

    runs = {"forward passes alone": floor, "extraction": extract}
    _print(f"{name} {','.join(layers)}, ", photos, folder, runs, repeats)


def run_regions(
    num_boxes, folder, name, layers, image_size, num_images, repeats
):
    """Prints the table of boxes averaged from maps of photos.

    Args:
        num_boxes: boxes a photo, anywhere.
        folder: as in `run`.
        name: as in `run`.
        layers: as in `run`.
        image_size: as in `run`.
        num_images: as in `run`.
        repeats: as in `run`.
    """
    photos = _photos(folder, num_images)
    network = cnn.build_cnn(name, image_size=image_size)
    features = regions.AveragedFeatures(network, layers)
    side = network.image_size
    forward = tf.function(features.network)
    decoded = [images.decode_image(p.read_bytes(), side) for _, p in photos]
    decoded = [network.preprocess(photo[None]) for photo in decoded]

    def floor():
        for photo in decoded:
            _ = [x.numpy() for x in tf.nest.flatten(forward(photo))]

    with tempfile.TemporaryDirectory() as folder_of_stores:
        proposals = _random_boxes(
            f"{folder_of_stores}/boxes", photos, num_boxes
        )

        def extract():
            with tempfile.TemporaryDirectory() as store:
                writer = FeatureWriter(
                    store, {"for": "timing"}, features.dim, "float16", "regions"
                )
                extraction.extract_regions(photos, proposals, features, writer)
                writer.finish()

        runs = {"forward passes alone": floor, "extraction": extract}
        title = f"{num_boxes} boxes, {name} {','.join(layers)} at {side}, "
        _print(title, photos, folder, runs, repeats)


def _photos(folder, count):
    """Returns (id, path) of the first photos of a folder."""
    paths = itertools.islice(list_photos(folder), count)
    return [(path.name, path) for path in paths]


def _random_boxes(path, photos, count):
    """Writes and opens a store of boxes anywhere in photos."""
    random = np.random.default_rng(0)
    writer = FeatureWriter(path, {"for": "timing"}, 0, kind="regions")
    for key, photo in photos:
        height, width = images.read_photo(photo).shape[:2]
        corners = random.uniform(0, 1, (count, 2, 2)) * [width, height]
        boxes = np.sort(corners, axis=1).reshape(count, 4)
        writer.add_shard([key], None, boxes, [count], np.zeros(count))
    writer.finish()
    return open_store(path)


def _print(title, photos, folder, runs, repeats):
    found = timing.interleaved(runs, repeats)
    timing.print_table(
        f"{title}{len(photos)} photos of {folder}, files "
        f"to store, {1e3 * len(photos) / found['extraction']:.1f} photos/s",
        found,
        "forward passes alone",
    )
