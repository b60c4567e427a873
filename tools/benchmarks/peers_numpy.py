"""Benchmark rows of `peers` that need neither TensorFlow nor PyTorch."""

import numpy as np

from benchmarks import arrays


def product(inputs):
    """Times the matrix product in NumPy, which is the lower bound."""
    images, texts = inputs["images"], inputs["texts"]
    scores = np.empty((len(images), len(texts)), np.float32)
    return lambda: np.matmul(images, texts.T, scores)


def exact_ranks(inputs):
    """Times exact ranks in both directions, computed by tbnets."""
    from tbnets.evaluation.retrieval import evaluate_retrieval

    rows = [inputs[name] for name in ("images", "texts", "owners")]
    return lambda: evaluate_retrieval(*rows, text_to_text=False)["recall_sum"]


def flat_index(inputs):
    """Times the top-10 search in both directions with faiss.IndexFlatIP."""
    import faiss

    def best(queries, rows):
        index = faiss.IndexFlatIP(rows.shape[1])
        index.add(rows)
        return index.search(queries, 10)[1]

    images, texts, owners = (inputs[x] for x in ("images", "texts", "owners"))
    return lambda: arrays.recall_sum(
        owners, best(images, texts), best(texts, images)
    )
