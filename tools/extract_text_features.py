r"""Extracts fixed features of captions into a store, fitted on one split.

For instance tf-idf of the 3000 most frequent lemmas, as Wang et al. 2016 use
it for Flickr30K:

  python tools/extract_text_features.py --features=tfidf --num_terms=3000 \
      --captions=data/flickr8k/dataset_flickr8k.json \
      --output=features/flickr8k_tfidf

Then train with --text_encoder=features --text_features=features/flickr8k_tfidf.
Beside the features lies encoder.npz, what was fitted: with it, the exported
model takes raw captions. Stopped at any moment, the same command goes on.

docs/text_features.md tells more.
"""

import hashlib
import time

import tqdm
from absl import flags

from tbnets import startup

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets.data import captions as caption_files
from tbnets.features import caption_features
from tbnets.features.tfidf import TfidfFeatures
from tbnets.store.manifest import DTYPES

_FEATURES = flags.DEFINE_enum(
    "features",
    None,
    sorted(caption_features.KINDS),
    "tfidf: weighted counts of the most frequent lemmas (Wang 2016).",
    required=True,
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the feature store to write.", required=True
)
_CAPTIONS = flags.DEFINE_string(
    "captions",
    None,
    "File or folder of captions; may hold {split}.",
    required=True,
)
_FORMAT = flags.DEFINE_enum(
    "captions_format",
    "karpathy",
    list(caption_files.READERS),
    "Format of --captions; docs/data_formats.md describes each.",
)
_TRAIN_SPLIT = flags.DEFINE_string(
    "train_split", "train", "Split that is fitted on."
)
_SPLITS = flags.DEFINE_list(
    "splits", None, "Splits whose features are made; by default all."
)
_TERMS = flags.DEFINE_integer(
    "num_terms",
    3000,
    "Of tfidf: lemmas kept, the most frequent. Wang 2016: 3000 for Flickr30K, "
    "5600 for MSCOCO.",
    lower_bound=1,
)
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", DTYPES, "How features are stored."
)


def read_captions():
    """Returns split -> captions of the splits asked for, the fitted first."""
    where = (_FORMAT.value, _CAPTIONS.value)
    splits = _SPLITS.value or caption_files.list_splits(*where)
    names = dict.fromkeys([_TRAIN_SPLIT.value, *splits])
    return {
        name: caption_files.read_captions(*where, name).captions
        for name in names
    }


def new_encoder(captions):
    """Returns the encoder that the flags ask for, not fitted."""
    encoder = TfidfFeatures(_TERMS.value)
    training = captions[_TRAIN_SPLIT.value]
    text = "\n".join(map(caption_features.caption_key, training))
    encoder.notes_["fitted_on"] = {
        "split": _TRAIN_SPLIT.value,
        "captions": len(training),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    return encoder


def fitted(captions):
    """Returns the encoder of the store to go on with, or fits a new one."""
    encoder = new_encoder(captions)
    before = caption_features.open_fitted(_OUTPUT.value, encoder)
    if before is not None:
        return before
    start = time.perf_counter()
    training = captions[_TRAIN_SPLIT.value]
    encoder.fit(training)
    seconds = time.perf_counter() - start
    print(f"fitted    on {len(training)} captions in {seconds:.1f} s")
    return encoder


def extract(captions, encoder):
    """Writes the store with a progress bar; returns it and the seconds."""
    writer = caption_features.open_writer(_OUTPUT.value, encoder, _DTYPE.value)
    texts = [text for split in captions.values() for text in split]
    start = time.perf_counter()
    with tqdm.tqdm(
        total=len({*map(caption_features.caption_key, texts)} - writer.done),
        unit="text",
        smoothing=0.1,
        disable=None,
    ) as bar:
        caption_features.extract(texts, encoder, writer, bar.update)
    writer.finish()
    return writer, time.perf_counter() - start


def main(argv):
    """Extracts by the flags."""
    if len(argv) > 1:
        raise ValueError(
            "`extract_text_features.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    captions = read_captions()
    encoder = fitted(captions)
    print(f"encoder   {encoder.describe()}")
    writer, seconds = extract(captions, encoder)
    print(
        f"store     {_OUTPUT.value}: {len(writer.done)} texts x {encoder.dim} "
        f"features, {_DTYPE.value}, in {seconds:.1f} s\n"
        "Next, train with --text_encoder=features --text_features="
        f"{_OUTPUT.value}"
    )


if __name__ == "__main__":
    startup.run_tool(main)
