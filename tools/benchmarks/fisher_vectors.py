"""Times the encoding of captions as Fisher vectors.

The lower bound is the time to write the encoded rows to a store. The encoder
keeps the gradients of all words between calls, except in the row `words anew`.
"""

import tempfile

import numpy as np
from scipy import sparse

from benchmarks import timing
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import fisher

VOCABULARY, WORDS_OF_CAPTION = 8000, 12
WORD_DIM, NUM_COMPONENTS = 300, 30


def run(options):
    """Prints the table."""
    encoder = _encoder(WORD_DIM, NUM_COMPONENTS)
    counts = _counts(options.num_captions)
    result = encoder.encode_counts(counts)
    blank = np.empty_like(result)
    timing.print_table(
        f"{options.num_captions} captions of {WORDS_OF_CAPTION} words, "
        f"{WORD_DIM} x {NUM_COMPONENTS} x 2 = {encoder.full_dim}-d",
        {
            "written to a store": lambda: _write(result),
            "copied in memory": lambda: np.copyto(blank, result),
            "encoded": lambda: encoder.encode_counts(counts),
            "encoded, words anew": lambda: _anew(encoder, counts),
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


def _counts(number):
    """Returns the word counts of random captions, a sparse matrix."""
    random = np.random.default_rng(1)
    chances = 1 / np.arange(1, VOCABULARY + 1)
    shape = (number, WORDS_OF_CAPTION)
    rows = random.choice(VOCABULARY, shape, p=chances / chances.sum())
    places = np.repeat(np.arange(number), WORDS_OF_CAPTION)
    ones = np.ones(rows.size, np.float32)
    shape = (number, VOCABULARY)
    return sparse.coo_array((ones, (places, rows.ravel())), shape).tocsr()


def _anew(encoder, counts):
    limit, fisher.TABLE_BYTES = fisher.TABLE_BYTES, 0
    encoder.encode_counts(counts)
    fisher.TABLE_BYTES = limit


def _write(rows):
    with tempfile.TemporaryDirectory() as folder:
        writer = FeatureWriter(folder, {"for": "timing"}, rows.shape[1])
        writer.add(map(str, range(len(rows))), rows)
        writer.finish()
