"""Times tiles of learned similarities against the matmuls of their pairs.

The floor multiplies as many rows as there are pairs with the kernels of the
head, and nothing else. The tile adds the element-wise products, biases and
ReLUs, the way from and to NumPy, and the counting of ranks.
"""

import numpy as np
import tensorflow as tf

from benchmarks import timing
from tbnets.evaluation import score_tiles
from tbnets.layers.branch import Branch
from tbnets.layers.heads import PairHead
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.training.retrieval_metrics import PairScorer

UNITS = (512, 256)


def run(num_images, captions_per_image, dim, repeats):
    """Prints the table.

    Args:
        num_images: Images to rank.
        captions_per_image: Captions of each image.
        dim: Size of the embeddings.
        repeats: Times each row is run; the median is printed.
    """
    rows = np.repeat(np.arange(num_images), captions_per_image)
    network = SimilarityNetwork(
        Branch((dim,)), Branch((dim,)), head=PairHead(UNITS)
    )
    network.build({"images": (None, dim), "captions": (None, dim)})
    generator = np.random.default_rng(0)
    images, texts = (
        _unit(generator.standard_normal((count, dim), np.float32))
        for count in (num_images, len(rows))
    )
    scores = PairScorer(network).scores(images, texts)
    num_pairs = num_images * len(rows)
    milliseconds = timing.interleaved(
        {
            "matmuls alone": lambda: _matmuls(network, num_pairs),
            "tiles, ranked": lambda: score_tiles.evaluate_scores(scores, rows),
        },
        repeats,
    )
    layers = "-".join(map(str, (dim, *UNITS, 1)))
    title = f"{num_images} images x {len(rows)} captions, {layers}"
    timing.print_table(title, milliseconds, "matmuls alone")


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _matmuls(network, num_pairs):
    """Multiplies so many rows with the head's kernels."""
    layers = [*network.head.steps, network.head.last]
    for start in range(0, num_pairs, score_tiles.PAIRS_AT_ONCE):
        count = min(score_tiles.PAIRS_AT_ONCE, num_pairs - start)
        values = tf.ones([count, network.embedding_dim])
        for layer in layers:
            values = tf.matmul(values, layer.kernel)
    values.numpy()
