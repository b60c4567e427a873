"""Compares the times of retrieval evaluation and of its matrix product."""

import time

import numpy as np

from benchmarks import arrays, timing
from tbnets.evaluation import retrieval

REST_SECONDS = 0.1
"""Pause before each run, because NumPy's threads keep their cores busy for a
while after a product."""
NOISE = {"trained": 7.5, "untrained": 1e4}
"""Noise of the captions in each row of the table."""


def run(options):
    """Prints the table; measures each row in its own process."""
    count, dim = options.first_size(5000), options.embedding_dim
    print(
        f"Evaluation of {count} images x {5 * count} captions x {dim}, both "
        "directions"
    )
    titles = ("evaluation", "product", "ratio", "peak")
    print("{:18}{:>12} {:>12} {:>7} {:>14}".format("", *titles))
    for name, noise in NOISE.items():
        evaluation, product, peak = timing.in_another_process(
            _measure, count, dim, options.repeats or 3, noise
        )
        print(
            f"{name:18}{evaluation:>10.2f} s {product:>10.2f} s "
            f"{evaluation / product:>6.2f}x {peak:>10.0f} MiB"
        )


def _measure(num_images, dim, repeats, noise):
    """Returns the minimum times of evaluation and product, and the peak MiB."""
    inputs = arrays.embeddings(num_images, 5, dim, noise)
    images, texts, owners = (inputs[n] for n in ("images", "texts", "owners"))

    def evaluate():
        retrieval.evaluate_retrieval(images, texts, owners, text_to_text=False)

    evaluate()
    peak = timing.mebibytes("VmHWM")
    scores = np.empty((len(images), len(texts)), np.float32)
    runs = {
        "product": lambda: np.matmul(images, texts.T, scores),
        "evaluation": evaluate,
    }
    seconds = timing.in_turns(
        runs, repeats, warm_up=0, before=lambda: time.sleep(REST_SECONDS)
    )
    return min(seconds["evaluation"]), min(seconds["product"]), peak
