"""Compares the LiteRT models of a zoo model with its SavedModel.

Prints the time to embed photos on all cores, from files to unit vectors, and,
with `--captions`, the recall sums on the test split.
"""

import pathlib
import tempfile

import numpy as np
from zoo_making.lite import CALIBRATION, calibration_photos, measure

from benchmarks import timing
from tbnets import lite
from tbnets.data.captions import read_captions
from tbnets.data.photos import list_photos
from tbnets.serving import embedding_cache, zoo
from tbnets.serving.checksums import KINDS, NETWORKS
from tbnets.serving.litert import write_litert
from tbnets.tasks.trained import rebuild


def run(options):
    """Prints the sizes and times, and the recalls if there are captions."""
    folder = pathlib.Path(options.images)
    paths = list_photos(folder)
    photos = paths[:: max(1, len(paths) // CALIBRATION)][:CALIBRATION]
    if options.captions:
        photos = calibration_photos(folder, options.captions)
        test = read_captions(options.captions, "test")
        paths = [folder / name for name in test.names]
    with tempfile.TemporaryDirectory() as place:
        models = {"SavedModel": zoo.open_model(options.model)}
        network, endpoints = rebuild(options.model)
        for kind in KINDS:
            path = pathlib.Path(place, kind)
            write_litert(network, endpoints, path, kind, photos)
            sizes = (f"{(path / name).stat().st_size:,}" for name in NETWORKS)
            print(
                f"{kind:10}  bytes of {', '.join(NETWORKS)}: {' '.join(sizes)}"
            )
            models[kind] = lite.load(path)
        _time(models, folder, paths[: options.num_photos], options.repeats or 3)
        if options.captions:
            _recalls(models, folder, options.captions)


def _time(models, folder, paths, repeats):
    named = {path.name: path for path in paths}

    def embed(model):
        saved = embedding_cache.EmbeddingCache
        return lambda: saved(model, folder).embed(named)

    runs = {name: embed(model) for name, model in models.items()}
    rows = dict.fromkeys(runs, len(named))
    timing.print_table(f"{len(named)} photos embedded", runs, repeats, rows)


def _recalls(models, folder, captions):
    expected = None
    for name, model in models.items():
        metrics, images = measure(model, folder, captions)
        expected = images if expected is None else expected
        cosines = (images * expected).sum(axis=1)
        print(
            f"{name:10}  recall sum {metrics['recall_sum']:.2f}, cosine with "
            f"the SavedModel: median {np.median(cosines):.4f}, least "
            f"{cosines.min():.4f}"
        )
