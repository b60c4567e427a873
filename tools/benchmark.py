r"""Times parts of tbnets against the arithmetic they cannot avoid.

For instance:

  python tools/benchmark.py --benchmark=loss --num_images=500,1500
  python tools/benchmark.py --benchmark=train_step
  python tools/benchmark.py --benchmark=evaluation
  python tools/benchmark.py --benchmark=pair_scores --num_images=200
  python tools/benchmark.py --benchmark=extraction --images=flickr8k/images
  python tools/benchmark.py --benchmark=extraction --images=flickr8k/images \
      --cnn=EfficientNetLite2 --image_size=448 --layers=last,block14_add \
      --num_boxes=200 --num_photos=128
  python tools/benchmark.py --benchmark=fisher_vectors
  python tools/benchmark.py --benchmark=region_step --num_images=8,100 \
      --hidden_dim=512 --embedding_dim=256
  python tools/benchmark.py --benchmark=tree_lstm --num_captions=64 \
      --hidden_dim=512

Every benchmark prints a table of milliseconds, medians over --repeats, with
the ratio to a floor: the matrix products alone, or writing the output. The
floor and the code are run in turns, so that whatever else the machine does
slows both. Read the ratios, not the milliseconds; docs/benchmarks.md has
measured ones.
"""

import functools

from absl import flags

from tbnets import startup

_BENCHMARK = flags.DEFINE_enum(
    "benchmark",
    "loss",
    [
        *("loss", "train_step", "evaluation", "pair_scores", "extraction"),
        *("fisher_vectors", "region_step", "tree_lstm"),
    ],
    "loss: miner and loss against the distance matmuls. train_step: a whole "
    "step of the embedding network against its matmuls, in float32 and "
    "mixed_bfloat16. evaluation: retrieval of 25,000 captions. pair_scores: "
    "the evaluation of a similarity network. extraction: "
    "image features from files to store against the forward passes. "
    "fisher_vectors: encoding captions against writing them down. "
    "region_step: a step of phrase localization against its matmuls. "
    "tree_lstm: the LSTM over trees against its matmuls and Keras' LSTM.",
)
_NUM_IMAGES = flags.DEFINE_list(
    "num_images",
    None,
    "Images: of a batch, one table each (default 500,1500; train_step takes "
    "the first), or of the evaluation (default 5000).",
)
_CAPTIONS = flags.DEFINE_integer(
    "captions_per_image",
    None,
    "Captions of each image; default 2, of the evaluation 5.",
    1,
)
_DIM = flags.DEFINE_integer("embedding_dim", 512, "Embedding size.", 1)
_HIDDEN = flags.DEFINE_integer(
    "hidden_dim", 2048, "Hidden units of a branch, or of tree_lstm.", 1
)
_NEGATIVES = flags.DEFINE_integer(
    "num_negatives", 10, "Negatives K kept for an anchor; Wang 2018: 10.", 1
)
_REPEATS = flags.DEFINE_integer(
    "repeats", None, "Timed runs of each row; default 15, of evaluation 3.", 1
)
_IMAGES = flags.DEFINE_string("images", None, "Photos, for extraction.")
_CNN = flags.DEFINE_string(
    "cnn", "EfficientNetLite0", "Network, for extraction; weights are random."
)
_LAYERS = flags.DEFINE_list("layers", ["last"], "Its layers.")
_IMAGE_SIZE = flags.DEFINE_integer(
    "image_size", 0, "Its input in pixels; 0: what it was made for.", 0
)
_NUM_BOXES = flags.DEFINE_integer(
    "num_boxes", 0, "Boxes a photo to extract, for extraction; 0: photos.", 0
)
_NUM_PHOTOS = flags.DEFINE_integer(
    "num_photos", 3072, "Photos in a timed extraction.", 1
)
_NUM_CAPTIONS = flags.DEFINE_integer(
    "num_captions", 1000, "Captions: fisher_vectors, tree_lstm.", 1
)
_WORD_DIM = flags.DEFINE_integer("word_dim", 300, "Their word vectors.", 1)
_COMPONENTS = flags.DEFINE_integer(
    "num_components", 30, "Centres of their mixture.", 1
)


def _run_fisher_vectors(repeats):
    from benchmarks import fisher_vectors

    fisher_vectors.run(
        _NUM_CAPTIONS.value, _WORD_DIM.value, _COMPONENTS.value, repeats
    )


def _run_pair_scores():
    from benchmarks import pair_scores

    num_images = int(_NUM_IMAGES.value[0]) if _NUM_IMAGES.value else 200
    captions, repeats = _CAPTIONS.value or 5, _REPEATS.value or 3
    pair_scores.run(num_images, captions, _DIM.value, repeats)


def _run_extraction(repeats):
    from benchmarks import extraction

    run = extraction.run
    if _NUM_BOXES.value:
        run = functools.partial(extraction.run_regions, _NUM_BOXES.value)
    run(
        _IMAGES.value,
        _CNN.value,
        _LAYERS.value,
        _IMAGE_SIZE.value or None,
        _NUM_PHOTOS.value,
        repeats,
    )


def _run_tree_lstm(repeats):
    from benchmarks import tree_lstm

    tree_lstm.run(_NUM_CAPTIONS.value, _WORD_DIM.value, _HIDDEN.value, repeats)


def _run_region_step(repeats):
    from benchmarks import region_step

    for count in _NUM_IMAGES.value or (8, 100):
        region_step.run(int(count), _HIDDEN.value, _DIM.value, repeats)


def main(_):
    """Runs the benchmark that was asked for."""
    if _BENCHMARK.value != "evaluation":
        with startup.quiet_tensorflow():
            import tensorflow  # noqa: F401
    num_images = [int(count) for count in _NUM_IMAGES.value or (500, 1500)]
    captions, repeats = _CAPTIONS.value or 2, _REPEATS.value or 15
    if _BENCHMARK.value == "loss":
        from benchmarks import loss

        loss.run(num_images, captions, _DIM.value, _NEGATIVES.value, repeats)
    elif _BENCHMARK.value == "train_step":
        from benchmarks import train_step

        train_step.run(
            num_images[0], captions, _HIDDEN.value, _DIM.value, repeats
        )
    elif _BENCHMARK.value == "extraction":
        _run_extraction(repeats)
    elif _BENCHMARK.value == "pair_scores":
        _run_pair_scores()
    elif _BENCHMARK.value == "region_step":
        _run_region_step(repeats)
    elif _BENCHMARK.value == "fisher_vectors":
        _run_fisher_vectors(repeats)
    elif _BENCHMARK.value == "tree_lstm":
        _run_tree_lstm(repeats)
    else:
        from benchmarks import evaluation

        evaluation.run(
            num_images[0] if _NUM_IMAGES.value else 5000,
            _CAPTIONS.value or 5,
            _DIM.value,
            _REPEATS.value or 3,
        )


if __name__ == "__main__":
    startup.run_tool(main)
