"""Compares the time of parts of tbnets with a lower bound.

For example:

  python tools/benchmark.py --benchmark=loss --num_images=500,1500
  python tools/benchmark.py --benchmark=extraction --images=flickr8k/images
  python tools/benchmark.py --benchmark=peers --part=top_k,infonce

Each benchmark prints the median milliseconds over --repeats and the ratio to a
lower bound, such as the matrix products alone. The measured part and the
lower bound run alternately, so that other load on the machine affects both
equally. The first line names the device and, for a GPU, whether TF32 is on.
"""

import dataclasses
import importlib
import sys

from tbnets import cli, startup
from tbnets.tasks.settings.flag import Count, flag

BENCHMARKS = {
    "loss": "miner and loss, compared with the distance matmuls",
    "train_step": "a step of the embedding network, compared with its matmuls, "
    "in float32 and mixed_bfloat16",
    "evaluation": "retrieval of 25,000 captions",
    "extraction": "image features from files to store, compared with the "
    "forward passes",
    "fisher_vectors": "encoding captions, compared with writing them",
    "region_step": "a step of phrase localization, compared with its matmuls",
    "tree_lstm": "the LSTM over trees, compared with matmuls and Keras' LSTM",
    "search": "first and later searches of a folder of photos",
    "litert": "LiteRT models, compared with the SavedModel: sizes, times and "
    "recalls",
    "batch_sizes": "embedding batches of sentences and photos",
    "index": "search in an index, in Python and in a SavedModel",
    "doubt": "how many search results are marked as doubtful, right and wrong",
    "few_photos": "recall after training on a few photos with the usual flags",
    "approximate": "recall and time of approximate search in an index",
    "mapped": "time and memory of retrieval on memory-mapped files",
    "pointing": "share of heat maps that point into the box of the phrase, "
    "compared with the middle of the photo, and their time",
    "peers": "losses, a step and evaluation, compared with other packages",
}
"""Descriptions of the modules in benchmarks/, which define `run(options)`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags that select the benchmark and set its sizes."""

    benchmark: str = flag(
        "loss",
        "; ".join(f"{name}: {text}" for name, text in BENCHMARKS.items()) + ".",
        choices=list(BENCHMARKS),
    )
    num_images: list[int] = flag(
        [],
        "Images in a batch, with a table for each number (default 500,1500; "
        "train_step uses the first), in the evaluation (default 5000), in the "
        "embedded folder of search (20000), in the index (1,000,000), or "
        "in the training split (few_photos, default 80,240,1000).",
    )
    embedding_dim: Count = flag(512, "Embedding size.")
    hidden_dim: Count = flag(2048, "Hidden units of a branch, or of tree_lstm.")
    repeats: Count | None = flag(
        None,
        "Timed runs per row; default 15, for evaluation and search 3. Seeds "
        "of few_photos (3).",
    )
    images: str = flag(
        "",
        "Folder of photos: extraction, search, litert, batch_sizes, "
        "approximate, doubt, few_photos, pointing.",
    )
    captions: str = flag(
        "",
        "Caption file whose test split has the queries: approximate, litert, "
        "doubt; that lists the photos: pointing; or that is trained on: "
        "few_photos.",
    )
    phrases: str = flag("", "Phrases with boxes: pointing.")
    split: str = flag("test", "Split of --captions: pointing.")
    model: str = flag("flickr8k_photos", "Model: doubt, litert, pointing.")
    cnn: str = flag(
        "EfficientNetLite0", "Network, with random weights: extraction."
    )
    num_photos: Count = flag(3072, "Photos in a timed extraction.")
    num_captions: Count = flag(1000, "Captions: fisher_vectors, tree_lstm.")
    part: list[str] = flag(
        [],
        "Tables to print: peers (default all). Losses among top_k, all and "
        "infonce: loss (default top_k,infonce).",
    )
    patience: Count = flag(60, "Maximum seconds per run: peers.")

    def first_size(self, default):
        """Returns the first value of --num_images, or a default."""
        return [*self.num_images, default][0]


def main(options):
    """Runs the benchmark that --benchmark names."""
    module = importlib.import_module(f"benchmarks.{options.benchmark}")
    if "tensorflow" in sys.modules:
        print(f"device    {startup.describe_device()}")
    module.run(options)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
