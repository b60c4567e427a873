"""What `scale` times: a step of a size, and that of its floor.

A step is made of `size`, `place`, a folder, and what its part gives besides.
"""

import csv
import itertools
import pathlib
import time

import numpy as np

from benchmarks import peers_arrays, peers_ranking

QUERIES = 100
TOP = 10
AT_ONCE = 2**15
NAMES = "images", "texts", "image_ids", "owners"
WORDS = (
    *("a dog runs over grass", "two men ride bicycles", "the girl climbs"),
    *("people wait for a train", "someone jumps into a pool"),
)


def loss_floor(given):
    """The products of the loss's three terms, forward and backward."""
    import tensorflow as tf

    from benchmarks import loss as loss_benchmark

    floor = tf.function(loss_benchmark.floor)
    return loss_benchmark.waiting(floor, _batch(given))


def loss(given):
    """`TripletLoss` and the gradients of all embeddings."""
    import tensorflow as tf

    from benchmarks import loss as loss_benchmark
    from tbnets.losses.triplet import TripletLoss

    learn = tf.function(
        loss_benchmark.loss_step(TripletLoss(gradient="sparse"))
    )
    return loss_benchmark.waiting(learn, _batch(given))


def _batch(given):
    import tensorflow as tf

    made = peers_arrays.embeddings(int(given["size"]), 2, int(given["dim"]))
    return [tf.constant(made[name]) for name in NAMES]


def product(given):
    """NumPy's product, a thousand images at a time: all would not fit."""
    made = _ranked(given)
    images, texts = made["images"], made["texts"]
    scores = np.empty((min(1000, len(images)), len(texts)), np.float32)

    def step():
        for start in range(0, len(images), 1000):
            some = images[start : start + 1000]
            np.matmul(some, texts.T, scores[: len(some)])

    return step


def evaluation(given):
    """Exact ranks in both directions."""
    return peers_ranking.exact_ranks(_ranked(given))


def _ranked(given):
    return peers_arrays.embeddings(int(given["size"]), 5, int(given["dim"]))


def forward(given):
    """The forward passes over decoded photos."""
    from tbnets.features import extraction as extracting

    photos, features = _photos(given)
    batches = extracting.decoded_batches([photos], features.decode)
    decoded = [batch for _, _, batch in batches]

    def step():
        for batch in decoded:
            features.compiled_forward(batch).numpy()

    return step


def extraction(given):
    """Photos from their files to a store of features."""
    from tbnets.data.store.writer import FeatureWriter
    from tbnets.features import extraction as extracting

    photos, features = _photos(given)
    numbers = itertools.count()

    def step():
        folder = pathlib.Path(str(given["place"]), f"store{next(numbers)}")
        writer = FeatureWriter(folder, {"for": "timing"}, features.dim)
        extracting.extract_photos(photos, features, writer)
        writer.finish()

    return step


def _photos(given):
    from tbnets.data.photos import list_photos
    from tbnets.features import cnn, photo_features

    paths = list_photos(str(given["folder"]))
    many = itertools.islice(itertools.cycle(paths), int(given["size"]))
    photos = [(f"{row}.jpg", path) for row, path in enumerate(many)]
    network = cnn.build_cnn(str(given["cnn"]), image_size=None)
    return photos, photo_features.PhotoFeatures(network, ["last"])


def scored(given):
    """The products of all queries with one tile of rows, as often as needed."""
    size, dim = int(given["size"]), int(given["dim"])
    queries, rows = _queries(dim), _block(dim)[:size]
    tiles = [min(AT_ONCE, size - at) for at in range(0, size, AT_ONCE)]

    def step():
        for tile in tiles:
            np.matmul(queries, rows[:tile].T)

    return step


def search(given):
    """An index asked; its value is the seconds that it took to build."""
    from tbnets.serving.index_writer import IndexWriter
    from tbnets.serving.search_index import open_index

    size, dim = int(given["size"]), int(given["dim"])
    queries, block = _queries(dim), _block(dim)
    folder = pathlib.Path(str(given["place"]), "index")
    start, drawing = time.perf_counter(), 0.0
    with IndexWriter(folder, {"for": "timing"}, dim) as writer:
        for at in range(0, size, AT_ONCE):
            began = time.perf_counter()
            rows = np.roll(block, at // AT_ONCE, axis=1)[: size - at]
            drawing += time.perf_counter() - began
            writer.put([f"{at + row}" for row in range(len(rows))], rows)
    built = time.perf_counter() - start - drawing
    index = open_index(folder)

    def step():
        index.search(queries, TOP)
        return built

    return step


def _queries(dim):
    return peers_arrays.embeddings(QUERIES, 1, dim)["texts"]


def _block(dim):
    return peers_arrays.embeddings(AT_ONCE, 0, dim)["images"]


def csv_rows(given):
    """Python's csv alone."""
    path = _table(given)

    def step():
        with open(path, encoding="utf-8", newline="") as file:
            for _ in csv.reader(file):
                pass

    return step


def captions(given):
    """The package's reader: every row checked, captions joined by image."""
    from tbnets.data import captions as reading

    path = _table(given)
    numbers = itertools.count()

    def step():
        # Otherwise it is asked for the file that it read last.
        again = path.with_name(f"{next(numbers)}.csv")
        again.hardlink_to(path)
        found = reading.read_captions("table", again, "all")
        return len(found.captions)

    return step


def _table(given):
    path = pathlib.Path(str(given["place"]), "table.csv")
    if not path.exists():
        with open(path, "w", encoding="utf-8") as file:
            file.write("image,caption\n")
            for row in range(int(given["size"])):
                text = f"{WORDS[row % len(WORDS)]} {WORDS[row // 7 % 5]}"
                file.write(f"{row // 5:08}.jpg,{text} {row}\n")
    return path
