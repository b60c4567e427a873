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

import dataclasses
import hashlib
import time
from typing import Annotated

from tbnets.commands.data_flags import Captions
from tbnets.data.open import Data
from tbnets.data.phrases import read_phrases
from tbnets.data.sources import Sources
from tbnets.data.splits import DRAWN, WHOLE_FILE
from tbnets.errors import InputError
from tbnets.features import caption_features
from tbnets.features.caption_encoder import MeanFeatures
from tbnets.features.fisher import FisherFeatures
from tbnets.features.tfidf import TfidfFeatures
from tbnets.flags.flag import REQUIRED, Count, Limits, Whole, flag
from tbnets.progress import progress_bar
from tbnets.store.manifest import DTYPES, file_sha256
from tbnets.tasks.texts import read_showing_progress
from tbnets.text.vocabulary import count_words
from tbnets.text.word_tables import coverage, coverage_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Captions):
    """Which features are made, of which captions, and where they go."""

    features: str = flag(
        REQUIRED,
        "tfidf: weighted counts of the most frequent lemmas; mean_vector: "
        "means of word vectors; fisher: Fisher vectors of them (Wang 2016).",
        choices=sorted(caption_features.KINDS),
    )
    output: str = flag(REQUIRED, "Folder of the feature store to write.")
    phrases: str = flag(
        "",
        "Phrases of the captions' images, as train.py --task=localization "
        "takes them: their features are made instead.",
    )
    train_split: str = flag("train", "Split that is fitted on.")
    num_terms: Count = flag(
        3000,
        "Of tfidf: lemmas kept. Wang 2016: 3000 (Flickr30K), 5600 (MSCOCO).",
    )
    word_vectors: str = flag(
        "", "Of mean_vector and fisher: file of word2vec or of GloVe."
    )
    num_components: Count = flag(
        30, "Of fisher: centres of the mixture. Papers: 30."
    )
    pca_dim: Whole = flag(
        6000,
        "Of fisher: dimensions kept by PCA; 0: all. Papers: 6000 of 18,000.",
    )
    pca_captions: Annotated[int, Limits(2)] = flag(
        20_000, "Of fisher: training captions in memory that PCA looks at."
    )
    seed: int = flag(0, "Of fisher: of all that is fitted.")
    dtype: str = flag("float32", "How features are stored.", choices=DTYPES)


def read_captions(options):
    """Returns split -> captions of the splits asked for, the fitted first.

    Where the captions tell no splits, they are drawn as a training does.
    """
    (form, path), first = options.where, options.train_split
    data = Data(Sources("", "", captions=path, captions_format=form))
    captions, names = {}, options.names()
    if names == (WHOLE_FILE,) and first != WHOLE_FILE:
        names = DRAWN
    for name in dict.fromkeys([first, *names]):
        images = data.split(name).records
        captions[name] = images.captions
        if options.phrases:
            captions[name] = read_phrases(options.phrases, images).phrases
    return captions


def new_encoder(options, captions):
    """Returns the encoder that the flags ask for, not fitted."""
    encoder = MeanFeatures()
    if options.features == "tfidf":
        encoder = TfidfFeatures(options.num_terms)
    elif options.features == "fisher":
        sizes = options.num_components, options.pca_dim, options.pca_captions
        encoder = FisherFeatures(*sizes, options.seed)
    training = captions[options.train_split]
    text = "\n".join(map(caption_features.caption_key, training))
    encoder.notes_["fitted_on"] = {
        "split": options.train_split,
        "captions": len(training),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    if options.word_vectors:
        encoder.notes_["fitted_on"] |= {
            "splits_of_words": list(captions),
            "word_vectors_sha256": file_sha256(options.word_vectors),
        }
    return encoder


def read_vectors(options, captions):
    """Returns the vectors of all words; tells how many have one.

    A vector was learned elsewhere, so words of other splits may be known.
    """
    counts = {split: count_words(texts)[0] for split, texts in captions.items()}
    words = dict.fromkeys(word for known in counts.values() for word in known)
    vectors = read_showing_progress(options.word_vectors, words)
    for split, found in counts.items():
        print(f"{split:<9} {coverage_line(coverage(vectors, found))}")
    return vectors


def fit(options, encoder, captions):
    """Fits an encoder, and shows what it is at."""
    training = captions[options.train_split]
    if not options.word_vectors:
        return encoder.fit(training)
    vectors = read_vectors(options, captions)
    if options.features != "fisher":
        return encoder.fit(training, vectors)
    with progress_bar(None, "fitting", "step") as bar:

        def show(line):
            bar.set_description_str(line)
            bar.update()

        return encoder.fit(training, vectors, show)


def fitted(options, captions):
    """Returns the encoder of the store to go on with, or fits a new one."""
    encoder = new_encoder(options, captions)
    before = caption_features.open_fitted(options.output, encoder)
    if before is not None:
        return before
    start = time.perf_counter()
    fit(options, encoder, captions)
    seconds = time.perf_counter() - start
    number = len(captions[options.train_split])
    print(f"fitted    on {number} captions in {seconds:.1f} s")
    return encoder


def main(options):
    """Extracts by the flags."""
    if (options.features == "tfidf") == bool(options.word_vectors):
        raise InputError(
            "`--word_vectors` must be given for mean_vector and fisher alone. "
            f"Received: --word_vectors={options.word_vectors} with --features="
            f"{options.features}. Change one of them."
        )
    captions = read_captions(options)
    encoder = fitted(options, captions)
    print(f"encoder   {encoder.describe()}")
    writer = caption_features.open_writer(
        options.output, encoder, options.dtype
    )
    texts = [text for split in captions.values() for text in split]
    start = time.perf_counter()
    left = {*map(caption_features.caption_key, texts)} - writer.done
    with progress_bar(len(left), "encoding", "text", leave=True) as bar:
        caption_features.extract(texts, encoder, writer, bar.update)
    writer.finish()
    seconds = time.perf_counter() - start
    print(
        f"store     {options.output}: {len(writer.done)} texts x {encoder.dim} "
        f"features, {options.dtype}, in {seconds:.1f} s\n"
        "Next, train with --text_encoder=features --text_features="
        f"{options.output}"
    )
