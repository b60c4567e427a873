r"""Extracts fixed features of captions into a store, fitted on one split.

For instance tf-idf of the 3000 most frequent lemmas, as Wang et al. 2016 use
it for Flickr30K:

  python tools/extract_text_features.py --features=tfidf --num_terms=3000 \
      --captions=data/flickr8k/dataset_flickr8k.json \
      --output=features/flickr8k_tfidf

or Fisher vectors of word vectors (of word2vec or GloVe), or their means:

  python tools/extract_text_features.py --features=fisher \
      --word_vectors=data/GoogleNews-vectors-negative300.bin \
      --captions=data/flickr8k/dataset_flickr8k.json \
      --output=features/flickr8k_fisher

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
from tbnets.errors import InputError

with startup.quiet_tensorflow():
    import tensorflow  # noqa: F401

from tbnets.data import captions as caption_files
from tbnets.data.phrases import read_phrases
from tbnets.features import caption_features
from tbnets.features.fisher import FisherFeatures
from tbnets.features.mean_vectors import MeanFeatures
from tbnets.features.tfidf import TfidfFeatures
from tbnets.store.manifest import DTYPES, file_sha256
from tbnets.tasks.texts import read_showing_progress
from tbnets.text.vocabulary import count_words
from tbnets.text.word_tables import coverage, coverage_line

_FEATURES = flags.DEFINE_enum(
    "features",
    None,
    sorted(caption_features.KINDS),
    "tfidf: weighted counts of the most frequent lemmas; mean_vector: means of "
    "word vectors; fisher: Fisher vectors of them (all Wang 2016).",
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
_PHRASES = flags.DEFINE_string(
    "phrases",
    None,
    "Phrases of the captions' images, a folder or .jsonl as train.py "
    "--task=localization takes it: their features are made instead.",
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
_VECTORS = flags.DEFINE_string(
    "word_vectors",
    None,
    "Of mean_vector and fisher: word2vec file (binary or text) or GloVe file.",
)
_COMPONENTS = flags.DEFINE_integer(
    "num_components",
    30,
    "Of fisher: centres of the mixture. Papers: 30.",
    lower_bound=1,
)
_PCA_DIM = flags.DEFINE_integer(
    "pca_dim",
    6000,
    "Of fisher: dimensions kept by PCA, where there are more; 0: all. Papers: "
    "6000 of 18,000.",
    lower_bound=0,
)
_PCA_CAPTIONS = flags.DEFINE_integer(
    "pca_captions",
    20_000,
    "Of fisher: training captions that PCA looks at, all of them in memory.",
    lower_bound=2,
)
_SEED = flags.DEFINE_integer("seed", 0, "Of fisher: of all that is fitted.")
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", DTYPES, "How features are stored."
)


def read_captions():
    """Returns split -> captions of the splits asked for, the fitted first."""
    where = (_FORMAT.value, _CAPTIONS.value)
    splits = _SPLITS.value or caption_files.list_splits(*where)
    captions = {}
    for name in dict.fromkeys([_TRAIN_SPLIT.value, *splits]):
        images = caption_files.read_captions(*where, name)
        if _PHRASES.value:
            captions[name] = read_phrases(_PHRASES.value, images).phrases
        else:
            captions[name] = images.captions
    return captions


def new_encoder(captions):
    """Returns the encoder that the flags ask for, not fitted."""
    encoder = {
        "tfidf": lambda: TfidfFeatures(_TERMS.value),
        "mean_vector": MeanFeatures,
        "fisher": lambda: FisherFeatures(
            _COMPONENTS.value, _PCA_DIM.value, _PCA_CAPTIONS.value, _SEED.value
        ),
    }[_FEATURES.value]()
    training = captions[_TRAIN_SPLIT.value]
    text = "\n".join(map(caption_features.caption_key, training))
    encoder.notes_["fitted_on"] = {
        "split": _TRAIN_SPLIT.value,
        "captions": len(training),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    if _VECTORS.value:
        encoder.notes_["fitted_on"] |= {
            "splits_of_words": list(captions),
            "word_vectors_sha256": file_sha256(_VECTORS.value),
        }
    return encoder


def read_vectors(captions):
    """Returns the vectors of all words; tells how many have one.

    A vector was learned elsewhere, so words of other splits may be known.
    """
    counts = {split: count_words(texts)[0] for split, texts in captions.items()}
    words = dict.fromkeys(word for known in counts.values() for word in known)
    vectors = read_showing_progress(_VECTORS.value, words)
    for split, found in counts.items():
        print(f"{split:<9} {coverage_line(coverage(vectors, found))}")
    return vectors


def fit(encoder, captions):
    """Fits an encoder, and shows what it is at."""
    training = captions[_TRAIN_SPLIT.value]
    if not _VECTORS.value:
        return encoder.fit(training)
    vectors = read_vectors(captions)
    if _FEATURES.value != "fisher":
        return encoder.fit(training, vectors)
    with tqdm.tqdm(unit="step", leave=False, disable=None) as bar:

        def show(line):
            bar.set_description_str(line)
            bar.update()

        return encoder.fit(training, vectors, show)


def fitted(captions):
    """Returns the encoder of the store to go on with, or fits a new one."""
    if (_FEATURES.value == "tfidf") == bool(_VECTORS.value):
        raise InputError(
            "`--word_vectors` must name a file for mean_vector and fisher, and "
            f"only for them. Received: --word_vectors={_VECTORS.value or ''} "
            f"with --features={_FEATURES.value}. Change one of them."
        )
    encoder = new_encoder(captions)
    before = caption_features.open_fitted(_OUTPUT.value, encoder)
    if before is not None:
        return before
    start = time.perf_counter()
    fit(encoder, captions)
    seconds = time.perf_counter() - start
    number = len(captions[_TRAIN_SPLIT.value])
    print(f"fitted    on {number} captions in {seconds:.1f} s")
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
        raise InputError(
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
