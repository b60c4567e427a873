r"""Times parts of tbnets against the arithmetic they cannot avoid.

For instance:

  python tools/benchmark.py --benchmark=loss --num_images=500,1500
  python tools/benchmark.py --benchmark=train_step
  python tools/benchmark.py --benchmark=evaluation
  python tools/benchmark.py --benchmark=extraction --images=flickr8k/images
  python tools/benchmark.py --benchmark=extraction --images=flickr8k/images \
      --cnn=EfficientNetLite2 --image_size=448 --layers=last,block14_add \
      --num_boxes=200 --num_photos=128
  python tools/benchmark.py --benchmark=search --images=flickr8k/images \
      --num_photos=1000
  python tools/benchmark.py --benchmark=batch_sizes --images=flickr8k/images
  python tools/benchmark.py --benchmark=serving
  python tools/benchmark.py --benchmark=index --num_images=1000000
  python tools/benchmark.py --benchmark=replica_costs --hidden_dim=1024 \
      --embedding_dim=256 --workers=2,3,4
  python tools/benchmark.py --benchmark=fisher_vectors
  python tools/benchmark.py --benchmark=region_step --num_images=8,100 \
      --hidden_dim=512 --embedding_dim=256
  python tools/benchmark.py --benchmark=tree_lstm --num_captions=64 \
      --hidden_dim=512
  python tools/benchmark.py --benchmark=peers --part=top_k,infonce
  python tools/benchmark.py --benchmark=scale --part=captions

Every benchmark prints a table of milliseconds, medians over --repeats, with
the ratio to a floor: the matrix products alone, or writing the output. The
floor and the code are run in turns, so that whatever else the machine does
slows both. Read the ratios, not the milliseconds; docs/benchmarks.md has
measured ones.
"""

import dataclasses
import functools
import importlib
import sys

from tbnets import cli
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import Count, Whole, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is timed, and at what size."""

    benchmark: str = flag(
        "loss",
        "loss: miner and loss against the distance matmuls. train_step: a "
        "whole step of the embedding network against its matmuls, in float32 "
        "and mixed_bfloat16. evaluation: retrieval of 25,000 captions. "
        "extraction: image features from files to store against the forward "
        "passes. "
        "fisher_vectors: encoding captions against writing them down. "
        "region_step: a step of phrase localization against its matmuls. "
        "tree_lstm: the LSTM over trees against its matmuls and Keras' LSTM. "
        "search: a folder of photos, embedded and found again. batch_sizes: "
        "sentences and photos embedded as a server does. index: rows of a "
        "search index found, in Python and in a SavedModel. approximate: what "
        "an index finds by cells of the best for captions. "
        "serving: a server asked by gRPC and REST against the bare network, "
        "and its memory over many requests. mapped: retrieval of embeddings "
        "that stay in files, and the memory it takes. replicas: the step of "
        "one replica under a strategy. replica_costs: the step of several "
        "processes beside what a model on paper predicts. peers: losses, a "
        "step and evaluation beside other packages. scale: at growing sizes.",
        choices=[
            *("loss", "train_step", "evaluation", "extraction"),
            *("fisher_vectors", "region_step", "tree_lstm", "search"),
            *("batch_sizes", "index", "approximate", "serving"),
            *("mapped", "replicas", "replica_costs", "peers"),
            "scale",
        ],
    )
    num_images: list[int] = flag(
        [],
        "Images: of a batch, one table each (default 500,1500; train_step "
        "takes the first), of the evaluation (default 5000), known (20000), or "
        "in the index (1,000,000).",
    )
    captions_per_image: Count | None = flag(
        None, "Captions of each image; default 2, of the evaluation 5."
    )
    embedding_dim: Count = flag(512, "Embedding size.")
    hidden_dim: Count = flag(2048, "Hidden units of a branch, or of tree_lstm.")
    num_negatives: Count = flag(
        10, "Negatives K kept for an anchor; Wang 2018: 10."
    )
    repeats: Count | None = flag(
        None,
        "Timed runs of each row; default 15, of evaluation 3 and search 3; of "
        "serving requests, 500.",
    )
    images: str = flag(
        "", "Photos: extraction, search, batch_sizes and approximate."
    )
    captions: str = flag("", "Captions, whose test split asks: approximate.")
    cnn: str = flag(
        "EfficientNetLite0", "Network, for extraction; weights are random."
    )
    layers: list[str] = flag(["last"], "Its layers.")
    image_size: Whole = flag(0, "Its input in pixels; 0: what it was made for.")
    num_boxes: Whole = flag(
        0, "Boxes a photo to extract, for extraction; 0: photos."
    )
    num_photos: Count = flag(3072, "Photos in a timed extraction.")
    num_captions: Count = flag(1000, "Captions: fisher_vectors, tree_lstm.")
    word_dim: Count = flag(300, "Their word vectors.")
    workers: list[int] = flag([2, 3, 4], "Processes: replica_costs.")
    num_components: Count = flag(30, "Centres of their mixture.")
    part: list[str] = flag([], "Tables of peers or scale; default all.")
    pythons: list[str] = flag(
        [], "Interpreters with packages that this one lacks: peers."
    )
    folder: str = flag("", "Keeps results, and a picture: peers, scale.")
    patience: Count = flag(60, "Seconds that a run may take: peers, scale.")


def main(options):
    """Runs the benchmark that was asked for."""
    benchmark = importlib.import_module(f"benchmarks.{options.benchmark}")
    dim, hidden = options.embedding_dim, options.hidden_dim
    images, captions = options.num_images, options.captions_per_image
    often, seldom = options.repeats or 15, options.repeats or 3
    match options.benchmark:
        case "loss":
            images, captions = images or [500, 1500], captions or 2
            negatives = options.num_negatives
            benchmark.run(images, captions, dim, negatives, often)
        case "train_step" | "region_step" | "replicas" | "replica_costs":
            run_steps(options, benchmark, often)
        case "evaluation":
            [first, *_] = images or [5000]
            benchmark.run(first, captions or 5, dim, seldom)
        case "index" | "mapped" as name:
            [first, *_] = images or [1_000_000 if name == "index" else 20_000]
            benchmark.run(first, dim, often)
        case "fisher_vectors" | "tree_lstm" as name:
            last = hidden if name == "tree_lstm" else options.num_components
            size = (options.num_captions, options.word_dim)
            benchmark.run(*size, last, often)
        case "extraction":
            run_extraction(options, benchmark, often)
        case "batch_sizes" | "approximate" | "serving":
            run_server(options, benchmark, options.repeats)
        case "peers" | "scale":
            run_tables(options, benchmark)
        case _:  # Search.
            [known, *_] = images or [20000]
            benchmark.run(options.images, options.num_photos, known, seldom)


def run_steps(options, benchmark, repeats):
    """Times steps of the embedding network: of one device, or of several."""
    [images, *_] = options.num_images or [500]
    size = images, options.captions_per_image or 2
    size += options.hidden_dim, options.embedding_dim, repeats
    if options.benchmark == "train_step":
        benchmark.run(*size)
    elif options.benchmark == "region_step":
        for count in options.num_images or (8, 100):
            benchmark.run(count, *size[2:])
    elif options.benchmark == "replicas":
        benchmark.run(benchmark.Job(*size))
    else:
        benchmark.run(benchmark.Job(*size), options.workers)


def run_tables(options, benchmark):
    """Times tables that have rows in processes of their own."""
    images, folder = options.num_images, options.folder
    repeats, patience = options.repeats or 7, options.patience
    given = images, options.embedding_dim, repeats, patience, folder
    if options.benchmark == "peers":
        given = benchmark.Given(*given, options.pythons)
    else:
        given = benchmark.Given(*given, options.images, options.cnn)
    benchmark.run(options.part, given)


def run_server(options, benchmark, repeats):
    """Times what a server does with a model of the zoo."""
    if options.benchmark == "serving":
        benchmark.run(repeats or 500)
    else:
        given, often = [options.images], repeats or 15
        if options.benchmark == "approximate":
            [count, *_] = options.num_images or [1_000_000]
            given += [options.captions, count]
        model = zoo.open_model("flickr8k_photos")
        benchmark.run(model, *given, often)


def run_extraction(options, benchmark, repeats):
    """Times the extraction of photos, or with --num_boxes of boxes in them."""
    run = benchmark.run
    if options.num_boxes:
        run = functools.partial(benchmark.run_regions, options.num_boxes)
    run(
        options.images,
        options.cnn,
        options.layers,
        options.image_size or None,
        options.num_photos,
        repeats,
    )


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
