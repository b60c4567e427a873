"""Times retrieval evaluation of embeddings that stay in files.

Tiles are read from the files as they are needed, and counted by: whatever the
number of rows, memory is that of the tiles and of a few numbers a row.
"""

import contextlib
import pathlib
import tempfile
import threading
import time

import numpy as np

from tbnets.evaluation import retrieval

AT_ONCE = 4096
CAPTIONS_PER_IMAGE = 5
WATCH_SECONDS = 0.05


@contextlib.contextmanager
def _watched():
    """Yields a list, whose last is the most MiB beside files (Linux).

    Of memory that is mapped to files the system takes back what it needs.
    """
    most, ended = [0.0], threading.Event()

    def watch():
        while not ended.wait(WATCH_SECONDS):
            status = pathlib.Path("/proc/self/status").read_text()
            line = next(row for row in status.splitlines() if "RssAnon" in row)
            most.append(max(most[-1], int(line.split()[1]) / 1024))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def _write(path, num_rows, dim, make):
    """Writes unit rows to a file of NumPy's; make: slice -> rows."""
    shape = (num_rows, dim)
    file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for start in range(0, num_rows, AT_ONCE):
        part = slice(start, min(start + AT_ONCE, num_rows))
        rows = make(part)
        file[part] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    file.flush()
    return np.load(path, mmap_mode="r")


def run(num_images, dim, _):
    """Evaluates embeddings that stay in files; prints time and memory.

    Captions are their image plus noise.

    Args:
        num_images: Images to rank.
        dim: Size of the embeddings.
    """
    generator = np.random.default_rng(0)
    owners = np.repeat(np.arange(num_images), CAPTIONS_PER_IMAGE)

    def drawn(part):
        size = part.stop - part.start, dim
        return generator.standard_normal(size, np.float32)

    def caption(part):
        return images[owners[part]] + drawn(part) * (7.5 / np.sqrt(dim))

    with tempfile.TemporaryDirectory() as folder:
        given = pathlib.Path(folder, "images.npy"), num_images, dim
        images = _write(*given, drawn)
        given = pathlib.Path(folder, "texts.npy"), len(owners), dim
        texts = _write(*given, caption)
        with _watched() as most:
            start = time.perf_counter()
            found = retrieval.evaluate_retrieval(
                images, texts, owners, text_to_text=False
            )
            seconds = time.perf_counter() - start
    size = (images.nbytes + texts.nbytes) / 2**20
    print(
        f"{num_images} images x {len(owners)} captions x {dim} in files of "
        f"{size:.0f} MiB: {seconds:.1f} s, {most[-1]:.0f} MiB beside them, of "
        f"which {most[1] if len(most) > 1 else 0:.0f} before; recall sum "
        f"{found['recall_sum']:.1f}"
    )
