"""Times reading photos and captions from shards, compared with decoding."""

import io
import itertools
import pathlib
import tarfile
import tempfile

import numpy as np
import tensorflow as tf

from benchmarks import timing
from tbnets.data.batches import (
    ArrayRows,
    EpochBatches,
    Examples,
    FileNames,
    untuned,
)
from tbnets.data.captions import read_captions
from tbnets.data.images import decode_images
from tbnets.data.photos import list_photos

NUM_PAIRS = 100_000
SHARD_PAIRS = 5_000
BATCH_SIZE = 128
IMAGE_SIZE = 224
BATCHES = 80
"""Number of batches in a timed run."""


def run(options):
    """Prints the table, and the memory that the examples and a run need."""
    photos = list_photos(options.images)
    count = options.first_size(NUM_PAIRS)
    repeats = options.repeats or -(-count // (BATCHES * BATCH_SIZE))
    with tempfile.TemporaryDirectory() as folder:
        write_shards(pathlib.Path(folder), photos, count)
        batches, examples = timing.with_peak(lambda: open_shards(folder))
        contents = [path.read_bytes() for path in photos]
        runs = {
            "decoding alone": reader(decoding(contents)),
            "pairs from shards": reader(batches.dataset),
        }
        rows = dict.fromkeys(runs, BATCHES * BATCH_SIZE)
        title = f"{count} pairs of {len(photos)} photos, {IMAGE_SIZE} pixels"
        timing.print_table(title, runs, repeats, rows)
        _, reading = timing.with_peak(runs["pairs from shards"])
    print(f"memory: {examples:.0f} MiB for examples, {reading:.0f} for a run")


def write_shards(folder, photos, count):
    """Writes `count` pairs into tar archives; repeats photos if necessary."""
    pairs = enumerate(itertools.islice(itertools.cycle(photos), count))
    for start in range(0, count, SHARD_PAIRS):
        with tarfile.open(folder / f"{start}.tar", "w") as archive:
            for row, path in itertools.islice(pairs, SHARD_PAIRS):
                archive.add(path, f"{row}.jpg")
                caption = tarfile.TarInfo(f"{row}.txt")
                caption.size = len(text := f"caption {row}".encode())
                archive.addfile(caption, io.BytesIO(text))


def open_shards(folder):
    """Returns the `EpochBatches` of all pairs in a folder of shards."""
    records = read_captions("auto", folder, "all")
    paths = [pathlib.Path(folder, name) for name in records.names]
    texts = ArrayRows(np.zeros((records.num_captions, 1), np.int64))
    examples = Examples(records, FileNames(paths), texts)
    return EpochBatches(examples, BATCH_SIZE, 1, 0, IMAGE_SIZE)


def decoding(contents):
    """Returns endless batches of photos, decoded from memory."""

    def draw():
        for epoch in itertools.count():
            rows = np.random.default_rng(epoch).permutation(len(contents))
            yield np.array([contents[x] for x in rows[:BATCH_SIZE]], object)

    spec = tf.TensorSpec([None], tf.string)
    batches = tf.data.Dataset.from_generator(draw, output_signature=spec)
    batches = batches.map(lambda photos: decode_images(photos, IMAGE_SIZE))
    return untuned(batches.prefetch(2))


def reader(dataset):
    """Returns a function that reads more batches, over repeated epochs."""
    batches = iter(dataset.repeat())

    def read():
        for _ in range(BATCHES):
            next(batches)

    return read
