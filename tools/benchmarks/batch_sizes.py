"""Times the signatures that a server batches against the size of a batch."""

import itertools
import pathlib

import tensorflow as tf

from benchmarks import timing
from tbnets.data.photos import list_photos

SIZES = (1, 2, 4, 8, 16, 32, 64)
CAPTION = "a brown dog runs through the snow with a red ball in its mouth"


def run(model, folder, repeats):
    """Prints milliseconds of a call, and rows a second, for each size.

    Args:
        model: a `Served` that takes captions and photos.
        folder: folder of photos, which are taken again where it has too few.
        repeats: timed runs of each row; the median is printed.
    """
    paths = itertools.cycle(list_photos(pathlib.Path(folder)))
    photos = [path.read_bytes() for path in itertools.islice(paths, SIZES[-1])]
    given = {
        "embed_text": ("captions", [CAPTION] * SIZES[-1]),
        "embed_image": ("image_bytes", photos),
    }
    print("signature    size  ms a call   rows/s")
    for name, (argument, rows) in given.items():
        calls = {n: _call(model, name, argument, rows[:n]) for n in SIZES}
        for size, ms in timing.interleaved(calls, repeats).items():
            print(f"{name:11}  {size:4}  {ms:9.1f}  {1e3 * size / ms:7.1f}")


def _call(model, name, argument, rows):
    """Returns a call of a signature that waits for its answer."""
    given = {argument: tf.constant(rows)}
    return lambda: model.signatures[name](**given)["embeddings"].numpy()
