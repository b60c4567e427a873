"""Compares the times of the miner, the loss and their matrix products.

The lower bound consists of the matrix products that any implementation with
dense matrices needs. Each timed loss computes the total, the terms and the
gradients with respect to the embeddings.
"""

from benchmarks import arrays, products, timing
from tbnets.errors import check_choice
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.tiles import LARGEST
from tbnets.losses.triplet import TripletLoss
from tbnets.startup import no_accelerator

LOSSES = {
    "top_k": "miner + loss, K = 10",
    "all": "loss, all negatives",
    "infonce": "InfoNCE",
}


def make_loss(name):
    """Returns the loss with a name in `LOSSES`."""
    if name == "infonce":
        return InfoNCELoss()
    if name == "all":
        return TripletLoss(negatives="all", num_negatives=None)
    return TripletLoss(num_negatives=10, gradient=products.gradient())


def run(options):
    """Prints tables for each number of images."""
    names = options.part or ("top_k", "infonce")
    for name in names:
        check_choice("part", name, LOSSES)
    dim, repeats = options.embedding_dim, options.repeats or 15
    for count in options.num_images or (500, 1500):
        for forward in (products.similarities, products.cross):
            is_cross = forward is products.cross
            losses = [name for name in names if (name == "infonce") == is_cross]
            if losses:
                _print_table(forward, losses, count, dim, repeats)


def _print_table(forward, names, count, dim, repeats):
    inputs = arrays.embeddings(count, 2, dim, noise=1.0).values()
    backward = products.with_gradients(forward)
    runs = {
        "matmuls forward + backward": products.graph(backward, *inputs),
        "matmuls forward": products.graph(forward, *inputs),
    }
    runs |= {LOSSES[name]: _learning(name, inputs) for name in names}
    terms = "two" if forward is products.cross else "three"
    timing.print_table(
        f"{count} images, {2 * count} captions, {dim}-d, {terms} terms",
        runs,
        repeats,
    )
    for name in names:
        if not no_accelerator():
            peak = timing.with_peak(runs[LOSSES[name]])[1]
        elif count > LARGEST:
            peak = timing.in_another_process(_peak, name, count, dim)
        else:
            continue
        print(f"  memory of {LOSSES[name]}: {peak:.0f} MiB")


def _learning(name, inputs):
    return products.graph(products.learning(make_loss(name)), *inputs)


def _peak(name, count, dim):
    inputs = arrays.embeddings(count, 2, dim, noise=1.0).values()
    return timing.with_peak(_learning(name, inputs))[1]
