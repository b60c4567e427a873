"""Rows that rank images for captions and captions for images."""

import numpy as np

from benchmarks import peers_arrays as given


def product(arrays):
    """The floor: NumPy's product of both matrices."""
    images, texts = arrays["images"], arrays["texts"]
    scores = np.empty((len(images), len(texts)), np.float32)

    def step():
        np.matmul(images, texts.T, scores)

    return step


def exact_ranks(arrays):
    """Exact ranks of both directions, by tbnets."""
    from tbnets.evaluation.retrieval import evaluate_retrieval

    rows = [arrays[name] for name in ("images", "texts", "owners")]
    return lambda: evaluate_retrieval(*rows, text_to_text=False)["recall_sum"]


def flat_index(arrays):
    """The ten best of both directions, by IndexFlatIP of faiss."""
    import faiss

    def best(queries, rows):
        index = faiss.IndexFlatIP(rows.shape[1])
        index.add(rows)
        return index.search(queries, 10)[1]

    images, texts, owners = (arrays[x] for x in ("images", "texts", "owners"))
    return lambda: given.recall_sum(
        owners, best(images, texts), best(texts, images)
    )
