"""Times miner and loss against the distance matmuls alone.

The floor holds the products that every implementation with dense matrices
needs: the inner products of images with captions and of captions with
captions, and the products that turn their dense gradients into gradients of
the embeddings. It does not mine, mask or compare. Both directions
between images and captions share one matrix.

The loss starts from embeddings and ids. It builds the masks, mines, and
returns the total, the terms and the gradients of the embeddings.
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
