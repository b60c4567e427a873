"""Times the signatures that a server batches, for several batch sizes."""

import functools
import itertools
import pathlib

import tensorflow as tf

from benchmarks import timing
from tbnets.data.photos import list_photos
from tbnets.serving import zoo

SIZES = (1, 2, 4, 8, 16, 32, 64)
CAPTION = "a brown dog runs through the snow with a red ball in its mouth"


def run(options):
    """Prints milliseconds per call and rows per second for each batch size."""
    model = zoo.open_model("flickr8k_photos")
    paths = itertools.cycle(list_photos(pathlib.Path(options.images)))
    photos = [path.read_bytes() for path in itertools.islice(paths, SIZES[-1])]
    inputs = {
        "embed_text": ("captions", [CAPTION] * SIZES[-1]),
        "embed_image": ("image_bytes", photos),
    }
    for name, (argument, rows) in inputs.items():
        call = functools.partial(_call, model.signatures[name], argument)
        sizes = {f"{size:2}": size for size in SIZES}
        timing.print_table(
            f"{name}, rows of a call",
            {word: call(rows[:size]) for word, size in sizes.items()},
            options.repeats or 15,
            sizes,
        )


def _call(signature, argument, rows):
    inputs = {argument: tf.constant(rows)}
    return lambda: signature(**inputs)["embeddings"].numpy()
