"""Times the encoding of captions as Fisher vectors.

The lower bound is the time to write the encoded rows to a store. The encoder
keeps the gradients of all words between calls, except in the row `words anew`.
"""

import pathlib
import sys
import tempfile

import numpy as np
from scipy import sparse

from benchmarks import timing
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import fisher

VOCABULARY, WORDS_OF_CAPTION = 8000, 12
WORD_DIM, NUM_COMPONENTS = 300, 30


def run(options):
    """Prints the table, and how much the encoder and the loop differ."""
    encoder = _encoder(WORD_DIM, NUM_COMPONENTS)
    rows = _captions(options.num_captions)
    counts = _counts(rows)
    result = encoder.encode_counts(counts)
    blank = np.empty_like(result)
    loop = _loop(encoder, rows)
    gap = max(abs(a - b).max() for a, b in zip(loop(), result))
    timing.print_table(
        f"{options.num_captions} captions of {WORDS_OF_CAPTION} words, "
        f"{WORD_DIM} x {NUM_COMPONENTS} x 2 = {encoder.full_dim}-d; loop and "
        f"encoder differ by {gap:.1e} at most",
        {
            "written to a store": lambda: _write(result),
            "copied in memory": lambda: np.copyto(blank, result),
            "encoded": lambda: encoder.encode_counts(counts),
            "encoded, words anew": lambda: _anew(encoder, counts),
            "a sentence at a time": loop,
        },
        options.repeats or 15,
    )


def _encoder(dim, num_components):
    random = np.random.default_rng(0)
    encoder = fisher.FisherFeatures(num_components, pca_dim=0)
    encoder.words_ = tuple(f"w{i}" for i in range(VOCABULARY))
    shape = (num_components, dim)
    encoder.vectors_ = random.laplace(size=(VOCABULARY, dim)).astype("f4")
    encoder.weights_ = random.dirichlet(np.full(num_components, 20.0))
    encoder.weights_ = encoder.weights_.astype(np.float32)
    encoder.locations_ = 0.2 * random.standard_normal(shape, np.float32)
    encoder.scales_ = random.uniform(0.8, 1.5, shape).astype("f4")
    encoder.laplacian_ = random.random(shape) < 0.5
    return encoder


def _captions(number):
    random = np.random.default_rng(1)
    chances = 1 / np.arange(1, VOCABULARY + 1)
    shape = (number, WORDS_OF_CAPTION)
    return random.choice(VOCABULARY, shape, p=chances / chances.sum())


def _counts(rows):
    places = np.repeat(np.arange(len(rows)), rows.shape[1])
    ones = np.ones(rows.size, np.float32)
    shape = (len(rows), VOCABULARY)
    return sparse.coo_array((ones, (places, rows.ravel())), shape).tocsr()


def _loop(encoder, rows):
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
    from tests import reference

    mixture = (
        encoder.weights_,
        encoder.locations_,
        encoder.scales_,
        encoder.laplacian_,
    )

    def loop():
        return [
            reference.fisher_vector(encoder.vectors_[words], *mixture)
            for words in rows
        ]

    return loop


def _anew(encoder, counts):
    limit, fisher.TABLE_BYTES = fisher.TABLE_BYTES, 0
    encoder.encode_counts(counts)
    fisher.TABLE_BYTES = limit


def _write(rows):
    with tempfile.TemporaryDirectory() as folder:
        writer = FeatureWriter(folder, {"for": "timing"}, rows.shape[1])
        writer.add(map(str, range(len(rows))), rows)
        writer.finish()
