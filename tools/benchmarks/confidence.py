"""Measures the confidence of search results on captions of a test split.

Each caption is a query twice in collections of several sizes: once with its
photo, and once after its photo has been removed. For comparison, a fixed
threshold of the cosine separates likely from doubtful results. This threshold
keeps 80 % of the right first results in a search of all photos of the dev
split.
"""

import os

import numpy as np
from matplotlib.figure import Figure

from tbnets import files
from tbnets.data.captions import read_captions
from tbnets.errors import InputError
from tbnets.serving import search, zoo
from tbnets.serving.calibration import KEPT
from tbnets.serving.confidence import NEIGHBOURS
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE

SIZES = 10, 100, 1000
BINS = 10
FOREIGN = (
    *("un perro corre por la nieve", "dos niños juegan en la playa"),
    *("un hombre monta en bicicleta", "una mujer con un vestido rojo"),
    *("un gato mira la cámara", "ein Hund rennt durch den Schnee"),
    *("zwei Kinder spielen am Strand", "ein Mann fährt Fahrrad"),
    *("eine Frau in einem roten Kleid", "ein Mädchen springt ins Wasser"),
    *("un chien court dans la neige", "deux enfants jouent sur la plage"),
    *("un homme fait du vélo", "une femme en robe rouge"),
    *("une fille saute dans l'eau", "un cane corre nella neve"),
    *("due bambini giocano sulla spiaggia", "um homem anda de bicicleta"),
    *("een hond rent door de sneeuw", "en hund springer i snön"),
)
"""Sentences that a model of English captions cannot read."""


def run(options):
    """Prints a table, and saves the reliability diagram as the file --plot."""
    model, curves = zoo.open_model(options.model), {}
    if model.confidence is None:
        raise InputError(
            "--model",
            "be a calibrated model",
            f"--model={options.model}",
            "Calibrate it: tbnets export --confidence.",
        )
    dev, test = (_embedded(model, options, name) for name in ("dev", "test"))
    _, cosines, _, is_right = _searched(model, *dev, np.arange(len(dev[0])))
    cutoff = np.quantile(cosines[is_right], 1 - KEPT)
    print("photos  kept  rejected  cosine: kept  rejected  confidence  correct")
    rng, count = np.random.default_rng(0), len(test[0])
    for size in sorted({min(size, count) for size in SIZES}):
        rows = rng.permutation(count)
        groups = [rows[at : at + size] for at in range(0, count, size)]
        parts = [
            _searched(model, *test, group) for group in groups if len(group) > 1
        ]
        chances, cosines, present, right = map(np.concatenate, zip(*parts))
        limit = model.confidence.threshold(size)
        cells = [
            part
            for values, low in ((chances, limit), (cosines, cutoff))
            for part in (
                (values[right] >= low).mean(),
                (values[~present] < low).mean(),
            )
        ]
        print(
            f"{size:6}  {cells[0]:4.3f}  {cells[1]:8.3f}  {cells[2]:12.3f}  "
            f"{cells[3]:8.3f}  {chances.mean():10.3f}  {right.mean():7.3f}"
        )
        bins = np.array_split(np.argsort(chances), BINS)
        pairs = [(chances[b].mean(), right[b].mean()) for b in bins]
        curves[f"{size} photos"] = np.array(pairs)
    found = search.rank(model, FOREIGN, (), test[0], 1)
    limit = model.confidence.threshold(count)
    print(
        f"{len(FOREIGN)} sentences in other languages are doubtful: "
        f"{(found.confidences < limit).mean():.2f} by confidence, "
        f"{(found.similarities < cutoff).mean():.2f} by cosine"
    )
    if options.plot:
        _draw(curves, options.plot)


def _draw(curves, path):
    figure = Figure((5, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], "k:", lw=1)
    for name, curve in curves.items():
        axes.plot(*curve.T, "o-", ms=4, label=name)
    axes.set(xlabel="confidence", ylabel="fraction of right results")
    axes.legend()
    files.write_atomically(
        path, lambda file: figure.savefig(file, format="png", dpi=110)
    )
    print(f"reliability diagram: {path}")


def _embedded(model, options, split):
    records = read_captions("auto", options.captions, split)
    paths = [os.path.join(options.images, name) for name in records.names]
    return (
        search.embed(model.embed_images, paths, "image", PHOTO_BATCH_SIZE),
        search.embed(model.embed_text, records.captions, "caption"),
        records.caption_to_image,
    )


def _searched(model, images, texts, owners, rows):
    """Searches a collection for each caption, with and without its photo.

    Returns arrays with an entry per search: the confidence and the cosine of
    the first result, whether the caption's photo was in the collection, and
    whether it was the first result.
    """
    queries = np.flatnonzero(np.isin(owners, rows))
    table = texts[queries] @ images[rows].T
    own = rows == owners[queries, None]
    results = []
    for is_present in (True, False):
        count = len(rows) - (not is_present)
        table = table if is_present else np.where(own, -np.inf, table)
        order, best = search.best(table, min(NEIGHBOURS, count))
        first = order[:, :1]
        levels = model.confidence.levels(images[rows])[first]
        chances = model.confidence.probabilities(best, levels, count)[:, 0]
        right = np.take_along_axis(own, first, axis=1)[:, 0] & is_present
        here = np.full(len(right), is_present)
        results.append((chances, best[:, 0], here, right))
    return tuple(map(np.concatenate, zip(*results)))
