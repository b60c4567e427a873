"""Benchmark rows of `scale`, and the ranking rows of `peers`."""

import csv
import itertools
import pathlib
import time

import numpy as np

from benchmarks import arrays

QUERIES = 100
TOP = 10
AT_ONCE = 2**15
WORDS = (
    *("a dog runs over grass", "two men ride bicycles", "the girl climbs"),
    *("people wait for a train", "someone jumps into a pool"),
)


def product(inputs):
    """Measures the lower bound, the matrix product in NumPy."""
    images, texts = inputs["images"], inputs["texts"]
    scores = np.empty((len(images), len(texts)), np.float32)
    return lambda: np.matmul(images, texts.T, scores)


def exact_ranks(inputs):
    """Times exact ranks in both directions, computed by tbnets."""
    from tbnets.evaluation.retrieval import evaluate_retrieval

    rows = [inputs[name] for name in ("images", "texts", "owners")]
    return lambda: evaluate_retrieval(*rows, text_to_text=False)["recall_sum"]


def flat_index(inputs):
    """Times the top-10 search in both directions with faiss.IndexFlatIP."""
    import faiss

    def best(queries, rows):
        index = faiss.IndexFlatIP(rows.shape[1])
        index.add(rows)
        return index.search(queries, 10)[1]

    images, texts, owners = (inputs[x] for x in ("images", "texts", "owners"))
    return lambda: arrays.recall_sum(
        owners, best(images, texts), best(texts, images)
    )


def _embeddings(inputs, captions_per_image):
    sizes = int(inputs["size"]), captions_per_image, int(inputs["dim"])
    return arrays.embeddings(*sizes)


def tiled_product(inputs):
    """Times the product in NumPy, in tiles of 1000 images to limit memory."""
    data = _embeddings(inputs, 5)
    images, texts = data["images"], data["texts"]
    scores = np.empty((min(1000, len(images)), len(texts)), np.float32)

    def step():
        for start in range(0, len(images), 1000):
            tile = images[start : start + 1000]
            np.matmul(tile, texts.T, scores[: len(tile)])

    return step


def evaluation(inputs):
    """Times exact ranks in both directions."""
    return exact_ranks(_embeddings(inputs, 5))


def loss_floor(inputs):
    """Times the matrix products of the loss and of its gradient."""
    from benchmarks.products import dense_loss, graph

    return graph(dense_loss, *_embeddings(inputs, 2).values())


def loss(inputs):
    """Times `TripletLoss` and the gradients of the embeddings."""
    from benchmarks.products import graph, learning
    from tbnets.losses.triplet import TripletLoss

    step = learning(TripletLoss(gradient="sparse"))
    return graph(step, *_embeddings(inputs, 2).values())


def forward(inputs):
    """Times the forward passes over decoded photos."""
    from benchmarks import extraction

    return extraction.forward(*_photos(inputs))


def extract(inputs):
    """Times the extraction of photo files into a feature store."""
    from benchmarks import extraction

    return extraction.extract(*_photos(inputs))


def _photos(inputs):
    from benchmarks.extraction import photos_and_features

    folder, cnn = str(inputs["images"]), str(inputs["cnn"])
    return photos_and_features(folder, int(inputs["size"]), cnn)


def scored(inputs):
    """Times the products of queries and all rows, computed tile by tile."""
    size, dim = int(inputs["size"]), int(inputs["dim"])
    queries = arrays.unit_rows(QUERIES, dim, seed=1)
    rows = arrays.unit_rows(AT_ONCE, dim)[:size]
    tiles = [min(AT_ONCE, size - at) for at in range(0, size, AT_ONCE)]

    def step():
        for tile in tiles:
            np.matmul(queries, rows[:tile].T)

    return step


def search(inputs):
    """Times the search of an index; the value is the time to write it."""
    from tbnets.serving.search_index import open_index

    size, dim = int(inputs["size"]), int(inputs["dim"])
    queries = arrays.unit_rows(QUERIES, dim, seed=1)
    block = arrays.unit_rows(AT_ONCE, dim)
    folder = pathlib.Path(str(inputs["place"]), "index")
    built = write_index(
        folder,
        (size, dim, "float32"),
        lambda at, count: np.roll(block, at // AT_ONCE, axis=1)[:count],
        {"for": "timing"},
    )
    index = open_index(folder)

    def step():
        index.search(queries, TOP)
        return built

    return step


def write_index(path, shape, make, model):
    """Writes an index of the rows `make(start, count)`; returns the seconds.

    The time that `make` takes is not counted.
    """
    from tbnets.serving.index_writer import IndexWriter

    count, *row = shape
    start, drawing = time.perf_counter(), 0.0
    with IndexWriter(path, model, *row) as writer:
        for at in range(0, count, AT_ONCE):
            began = time.perf_counter()
            rows = make(at, min(AT_ONCE, count - at))
            drawing += time.perf_counter() - began
            writer.put([str(at + place) for place in range(len(rows))], rows)
    return time.perf_counter() - start - drawing


def csv_rows(inputs):
    """Times only Python's csv module."""
    path = _table(inputs)

    def step():
        with open(path, encoding="utf-8", newline="") as file:
            for _ in csv.reader(file):
                pass

    return step


def captions(inputs):
    """Times the tbnets reader, which checks rows and groups captions."""
    from tbnets.data import captions as reading

    path = _table(inputs)
    numbers = itertools.count()

    def step():
        # A new name each time, because the reader caches the last file.
        again = path.with_name(f"{next(numbers)}.csv")
        again.hardlink_to(path)
        data = reading.read_captions("table", again, "all")
        return len(data.captions)

    return step


def _table(inputs):
    path = pathlib.Path(str(inputs["place"]), "table.csv")
    if not path.exists():
        with open(path, "w", encoding="utf-8") as file:
            file.write("image,caption\n")
            for row in range(int(inputs["size"])):
                text = f"{WORDS[row % len(WORDS)]} {WORDS[row // 7 % 5]}"
                file.write(f"{row // 5:08}.jpg,{text} {row}\n")
    return path
