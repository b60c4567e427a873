"""Fits a `Confidence`, which estimates whether search results are right."""

import dataclasses
import os

import numpy as np

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.errors import InputError
from tbnets.evaluation.query_bank import TEMPERATURE
from tbnets.serving import search
from tbnets.serving.confidence import NEIGHBOURS, Confidence, features
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE

BANK_SIZE = 1000
"""Maximum number of training captions in the query bank."""
RESULTS = 5
"""Number of results of each query that the regression is fitted to."""
KEPT = 0.8
"""Fraction of the right first results that must not be marked as doubtful."""
_STEPS = 50


def calibrate(images, texts, caption_to_image, bank):
    """Fits a `Confidence` to searches in random collections of many sizes.

    Each caption is a query twice: with its photo in the collection, and after
    its photo has been removed.

    Args:
        images: float32 `[n, dim]`, embeddings of photos not used in training.
        texts: float32 `[m, dim]`, embeddings of the photos' captions.
        caption_to_image: int `[m]`, row of each caption's photo.
        bank: float32 `[b, dim]`, embeddings of training captions, of which at
            most `BANK_SIZE` are drawn.
    """
    owners = caption_to_image
    if min(len(images), len(texts), len(bank)) < NEIGHBOURS:
        raise InputError(
            "captions",
            f"have at least {NEIGHBOURS} photos, and as many captions in both "
            "splits",
            f"{len(images)} photos with {len(texts)} captions, and {len(bank)} "
            "training captions",
            "Use more captions.",
        )
    rng = np.random.default_rng(0)
    sample = bank[np.sort(rng.permutation(len(bank))[:BANK_SIZE])]
    temperature = float(TEMPERATURE * np.std(texts @ images.T))
    blank = Confidence(np.float16(sample), temperature, [0.0] * 4, [0.0] * 2)
    levels = blank.levels(images)
    inputs, labels, firsts = [], [], []
    for rows in collections(len(images), rng):
        queries = np.flatnonzero(np.isin(owners, rows))
        table = texts[queries] @ images[rows].T
        own = rows == owners[queries, None]
        for is_removed in (False, True):
            table = np.where(own, -np.inf, table) if is_removed else table
            count = len(rows) - is_removed
            order, best = search.best(table, min(NEIGHBOURS, count))
            order = order[:, :RESULTS]
            parts = features(best, levels[rows][order], count, temperature)
            right = np.take_along_axis(own, order, axis=1) & (not is_removed)
            inputs.append(parts.reshape(-1, 3))
            labels.append(right.ravel())
            firsts.append(parts[right[:, 0], 0])
    weights = fit_logistic(np.concatenate(inputs), np.concatenate(labels))
    fitted = dataclasses.replace(blank, weights=weights.tolist())
    return dataclasses.replace(fitted, limits=_limits(firsts, weights))


def _limits(firsts, weights):
    """Fits limits that a fraction `KEPT` of the right first results exceed."""
    groups = {}
    for rows in filter(len, firsts):
        logits = weights[0] + rows @ weights[1:]
        groups.setdefault(rows[0, 2], []).append(logits)
    logits = [np.quantile(np.concatenate(g), 1 - KEPT) for g in groups.values()]
    slope, first = np.polyfit([*groups], logits, 1)
    return [float(first), float(slope)]


def collections(num_images, rng):
    """Yields row indices of random collections of 10, 30, 100, ... photos."""
    sizes = [n for p in range(1, 7) for n in (10**p, 3 * 10**p)]
    for size in [n for n in sizes if n < num_images] + [num_images]:
        rows = rng.permutation(num_images)
        for at in range(0, num_images - size + 1, size):
            yield rows[at : at + size]


def fit_logistic(inputs, labels):
    """Fits a logistic regression by Newton's method.

    `inputs` is a float array `[n, p]`. Returns the weights, float64 `[1 + p]`,
    with the bias first.
    """
    rows = np.column_stack([np.ones(len(inputs)), np.float64(inputs)])
    weights = np.zeros(rows.shape[1])
    ridge = 1e-3 * np.eye(len(weights))  # Finite weights if classes separate.
    for _ in range(_STEPS):
        values = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        gradient = rows.T @ (values - labels) + ridge @ weights
        hessian = (rows.T * (values * (1 - values))) @ rows + ridge
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def calibrate_model(model, captions, images):
    """Fits the `Confidence` of a model that takes photos.

    `captions` is a caption file, and `images` is the folder of its photos.
    Missing splits are drawn as in training. Raises ValueError if the model does
    not compare photos and sentences by cosine similarity.
    """
    is_able = model.takes_photos and model.takes_captions
    if model.has("compare") or not (is_able and model.has("embed_text")):
        raise InputError(
            "--model",
            "compare photos and sentences by cosine",
            f"{model.path}, which has {sorted(model.signatures)}",
            "Choose another model.",
        )
    data = Data(Sources(data_root="", captions=os.fspath(captions)))
    records, bank = map(data.read_records, ("dev", "train"))
    bank = bank.captions
    rows = np.random.default_rng(0).permutation(len(bank))[:BANK_SIZE]
    bank = [bank[row] for row in rows]
    paths = [os.path.join(images, name) for name in records.names]
    return calibrate(
        search.embed(model.embed_images, paths, "image", PHOTO_BATCH_SIZE),
        search.embed(model.embed_text, records.captions, "caption"),
        records.caption_to_image,
        search.embed(model.embed_text, bank, "caption"),
    )
