"""Estimates the probability that a search result is right.

A result is right if it is the photo that the sentence was written for. The
similarity alone is not enough, because some photos are similar to every
sentence, and some sentences are similar to many photos. A logistic regression
therefore combines three numbers::

    x1 = (s - soft_maximum(similarities of the photo to the query bank)) / t
    x2 = (s - soft_maximum(similarities of the sentence to its best photos)) / t
    x3 = log(number of photos in the collection)
    confidence = sigmoid(w0 + w1 x1 + w2 x2 + w3 x3)

`s` is the similarity of the result, and `soft_maximum(v) = t log(mean(exp(v /
t)))`. The query bank is a sample of training captions.
"""

import dataclasses
import os

import numpy as np

from tbnets.data.store.npy import read_npz, write_npz
from tbnets.files import CheckedFile, is_kind

CONFIDENCE_FILE = "assets.extra/confidence.npz"
NEIGHBOURS = 20
"""Number of best photos with which a result is compared."""
CERTAIN = 0.25
"""A result with at least this confidence is never doubtful."""
_ROWS_AT_ONCE = 4096
_CURE = "Export the model again with --confidence."


@dataclasses.dataclass(frozen=True, eq=False)
class Confidence:
    """A fitted logistic regression and its query bank.

    Args:
        bank: float16 `[num_captions, dim]`, embeddings of training captions.
        temperature: `t` in the formulas.
        weights: `w0` to `w3`.
        limits: `l0` and `l1`. A result is doubtful if its confidence is below
            `sigmoid(l0 + l1 x3)` and below `CERTAIN`.
    """

    bank: np.ndarray
    temperature: float
    weights: list[float]
    limits: list[float]

    def levels(self, rows):
        """Returns each photo's soft maximum over the bank, float32 `[n]`."""
        bank, levels = np.float32(self.bank), np.zeros(len(rows), np.float32)
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            block = slice(at, at + _ROWS_AT_ONCE)
            table = np.float32(rows[block]) @ bank.T
            levels[block] = soft_maximum(table, self.temperature)
        return levels

    def probabilities(self, similarities, levels, num_rows):
        """Returns the confidences of each query's first `j` results, `[m, j]`.

        `similarities`, float32 `[m, k]`, contains the `k` best similarities of
        each of `m` queries, best first. `k` is at least `NEIGHBOURS`, or
        `num_rows`, the number of photos. `levels`, float32 `[m, j]`, contains
        the `levels` of the results.
        """
        inputs = features(similarities, levels, num_rows, self.temperature)
        return sigmoid(self.weights[0] + inputs @ self.weights[1:])

    def threshold(self, num_rows):
        """Returns the confidence below which a result is doubtful."""
        first, slope = self.limits
        limit = sigmoid(first + slope * np.log(max(num_rows, 1)))
        return min(float(limit), CERTAIN)

    def save(self, folder):
        """Writes `CONFIDENCE_FILE` into the folder of a SavedModel."""
        header = dataclasses.asdict(self)
        bank = header.pop("bank")
        write_npz(os.path.join(folder, CONFIDENCE_FILE), header, {"bank": bank})


def load_confidence(folder, dim):
    """Reads the `Confidence` of a SavedModel; returns None if it has none.

    `dim` is the required size of the bank's embeddings.
    """
    path = os.path.join(folder, CONFIDENCE_FILE)
    if not os.path.isfile(path):
        return None
    file = CheckedFile(path)
    try:
        header, arrays = read_npz(path)
        confidence = Confidence(arrays["bank"], **header)
    except (LookupError, TypeError, ValueError) as error:
        file.refuse("a calibration", str(error), advice=_CURE)
    bank, temperature = confidence.bank, confidence.temperature
    if (bank.dtype, bank.ndim, bank.shape[-1:]) != ("float16", 2, (dim,)):
        file.refuse(f"float16 [n, {dim}]", (bank.dtype, bank.shape), "bank")
    numbers = confidence.weights, confidence.limits
    is_sound = (
        is_kind(list(numbers), list[list[float]])
        and [*map(len, numbers)] == [4, 2]
        and isinstance(temperature, float)
        and temperature > 0
        and len(bank)
        and np.isfinite([*numbers[0], *numbers[1], temperature]).all()
        and np.isfinite(bank).all()
    )
    if not is_sound:
        file.refuse("finite numbers", header, "header", _CURE)
    return confidence


def soft_maximum(values, temperature):
    """Returns `t log(mean(exp(v / t)))` over the last axis of an array."""
    highest = values.max(axis=-1)
    ratios = np.exp((values - highest[..., None]) / temperature)
    return highest + temperature * np.log(ratios.mean(axis=-1))


def features(similarities, levels, num_rows, temperature):
    """Returns the features `x1`, `x2` and `x3` of results, `[m, j, 3]`.

    The results are the first `j` results of each of `m` queries.
    """
    own = similarities[:, : levels.shape[1]]
    crowd = soft_maximum(similarities[:, :NEIGHBOURS], temperature)[:, None]
    logs = np.full_like(own, np.log(num_rows))
    gaps = (own - levels) / temperature, (own - crowd) / temperature
    return np.stack([*gaps, logs], axis=-1)


def sigmoid(logits):
    """Converts logits to probabilities, as float32."""
    return np.float32(1 / (1 + np.exp(-np.clip(logits, -80, 80))))
