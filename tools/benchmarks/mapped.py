"""Measures the time and memory of evaluation on memory-mapped files.

Each caption's embedding is the embedding of its image plus noise.
"""

import pathlib
import tempfile
import threading
import time

import numpy as np

from benchmarks import arrays, timing
from tbnets.evaluation import retrieval

AT_ONCE = 4096
CAPTIONS_PER_IMAGE = 5
NOISE = 7.5
WATCH_SECONDS = 0.05


def run(options):
    """Prints the time and memory of the evaluation."""
    num_images, dim = options.first_size(20_000), options.embedding_dim
    owners = np.repeat(np.arange(num_images), CAPTIONS_PER_IMAGE)

    def drawn(rows):
        return arrays.unit_rows(len(rows), dim, seed=rows)

    def caption(rows):
        near = images[owners[rows]] + np.float32(NOISE) * drawn(rows)
        return arrays.unit(near)

    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        images = _write(place / "images.npy", num_images, dim, drawn)
        texts = _write(place / "texts.npy", len(owners), dim, caption)
        most, ended = [timing.mebibytes("RssAnon")], threading.Event()
        watcher = threading.Thread(target=_watch, args=(most, ended))
        watcher.start()
        start = time.perf_counter()
        metrics = retrieval.evaluate_retrieval(
            images, texts, owners, text_to_text=False
        )
        seconds = time.perf_counter() - start
        ended.set()
        watcher.join()
    size = (images.nbytes + texts.nbytes) / 2**20
    print(
        f"{num_images} images x {len(owners)} captions x {dim} in files of "
        f"{size:.0f} MiB: {seconds:.1f} s, {max(most):.0f} MiB of memory, "
        f"{most[0]:.0f} before; recall sum {metrics['recall_sum']:.1f}"
    )


def _write(path, num_rows, dim, make):
    file = np.lib.format.open_memmap(path, "w+", np.float32, (num_rows, dim))
    for start in range(0, num_rows, AT_ONCE):
        rows = range(start, min(start + AT_ONCE, num_rows))
        file[start : rows.stop] = make(rows)
    file.flush()
    return np.load(path, mmap_mode="r")


def _watch(most, ended):
    while not ended.wait(WATCH_SECONDS):
        most.append(timing.mebibytes("RssAnon"))
