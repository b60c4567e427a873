"""Compares the times of the miner, the loss and their matrix products.

The lower bound consists of the products that any implementation with dense
matrices needs. The loss returns the total, the terms and the gradients with
respect to the embeddings.
"""

from benchmarks import arrays, timing
from benchmarks.products import dense_loss, graph, learning, similarities
from tbnets.losses.triplet import TripletLoss


def run(options):
    """Prints a table for each number of images."""
    dim = options.embedding_dim
    for count in options.num_images or (500, 1500):
        inputs = arrays.embeddings(count, 2, dim, noise=1.0).values()
        loss = TripletLoss(num_negatives=10, gradient="sparse")
        timing.print_table(
            f"{count} images, {2 * count} captions, {dim}-d, K = 10, three "
            "terms",
            {
                "matmuls forward + backward": graph(dense_loss, *inputs),
                "matmuls forward": graph(similarities, *inputs),
                "miner + loss": graph(learning(loss), *inputs),
            },
            options.repeats or 15,
        )
