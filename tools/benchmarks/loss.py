"""Times miner and loss against the distance matmuls alone.

The floor holds what no implementation with dense matrices can leave out: the
inner products of images with captions and of captions with captions, and the
products that carry a dense gradient of each matrix back to the embeddings.
Nothing is mined, masked or compared in it. Both directions between images and
captions read one matrix, so it is computed once.

The loss starts from embeddings and ids: it builds the masks, mines, and
returns the total, the terms and the gradients of all embeddings.
"""

from benchmarks import arrays, timing
from benchmarks.products import dense_loss, graph, learning, similarities
from tbnets.losses.triplet import TripletLoss


def run(options):
    """Prints one table for each number of images."""
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
