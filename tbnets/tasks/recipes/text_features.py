"""Features of texts: fitted on one split, stored for all."""

import dataclasses
import hashlib
import itertools
import json
import time
from typing import Annotated, Any

import numpy as np
import tqdm

from tbnets.data.captions import caption_key
from tbnets.data.store.manifest import DTYPES, file_sha256
from tbnets.data.store.shares import take_share
from tbnets.errors import InputError, import_extra
from tbnets.features import caption_features, hub
from tbnets.features.hub_features import HubFeatures
from tbnets.features.tfidf import find_lemmatizer
from tbnets.progress import progress_bar
from tbnets.tasks.recipes.texts import texts_by_split
from tbnets.tasks.recipes.thing import Thing, check_space
from tbnets.tasks.settings.flag import (
    PRESET,
    REQUIRED,
    Count,
    Limits,
    OneOf,
    Place,
    Whole,
    flag,
)
from tbnets.text.word_tables import coverage, coverage_line
from tbnets.text.word_vectors import read_showing_progress
from tbnets.text.words import count_words

PROBES = 100, 300, 1000
"""Texts of which features are made to learn what all of them cost; with the
first of them come imports."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFeatures:
    """Which features are made."""

    features: str = flag(
        REQUIRED,
        "tfidf: weighted counts of the most frequent lemmas; mean_vector: "
        "means of word vectors; fisher: Fisher vectors of them (Wang 2016); "
        "hub:PRESET: the text side of a preset of Keras Hub, pooled as it was "
        "trained: a name, a handle or a folder.",
        choices=OneOf("fisher", "mean_vector", "tfidf", PRESET),
    )
    num_terms: Count = flag(
        3000,
        "Of tfidf: lemmas kept. Wang 2016: 3000 (Flickr30K), 5600 (MSCOCO).",
    )
    word_vectors: Place = flag(
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


def check(values):
    """Refuses features without the word vectors that they are made of."""
    of_vectors = values.features in ("mean_vector", "fisher")
    if of_vectors != bool(values.word_vectors):
        raise InputError(
            "`--word_vectors` must be given for mean_vector and fisher alone. "
            f"Received: --word_vectors={values.word_vectors} with --features="
            f"{values.features}. Change one of them."
        )


def make_text_features(values, texts, folder, shard=""):
    """Makes a store of features of texts, or goes on with one.

    Args:
        values: `TextFeatures`.
        texts: split -> its texts; the first is fitted on.
        folder: of the store.
        shard: the share whose features are made, as of `take_share`; all
            of them are fitted alike.
    """
    every = itertools.chain.from_iterable(texts.values())
    all_texts = {caption_key(text): text for text in every}
    keys, size = list(all_texts), caption_features.SHARD_CAPTIONS
    rows, share = take_share(shard, keys, size)
    encoder = _fitted(values, texts, folder)
    tqdm.tqdm.write(f"encoder   {encoder.describe()}")
    writer = caption_features.open_writer(folder, encoder, values.dtype, share)
    start = time.perf_counter()
    left = len({*keys[rows]} - writer.done)
    check_space(folder, left * encoder.dim * np.dtype(values.dtype).itemsize)
    with progress_bar(left, "encoding", "text", leave=True) as bar:
        some = [all_texts[key] for key in keys[rows]]
        caption_features.extract(some, encoder, writer, bar.update)
    writer.finish()
    seconds = time.perf_counter() - start
    tqdm.tqdm.write(
        f"store     {folder}: {len(writer.done)} texts x {encoder.dim} "
        f"features, {values.dtype}, in {seconds:.1f} s"
    )


def _fitted(values, texts, folder):
    """Returns the encoder of the store to go on with, or fits a new one."""
    encoder = _new_encoder(values, texts)
    before = caption_features.open_fitted(folder, encoder)
    if hub.is_hub(values.features):
        return encoder
    if before is not None:
        return before
    start = time.perf_counter()
    _fit(values, encoder, texts)
    seconds = time.perf_counter() - start
    number = encoder.notes_["fitted_on"]["captions"]
    tqdm.tqdm.write(f"fitted    on {number} captions in {seconds:.1f} s")
    return encoder


def _new_encoder(values, texts):
    """Returns the encoder that is asked for, not fitted."""
    if hub.is_hub(values.features):
        return HubFeatures.of(values.features)
    kind = caption_features.KINDS[values.features]
    encoder = kind(*(getattr(values, name) for name in kind.parameters))
    name, training = next(iter(texts.items()))
    text = "\n".join(map(caption_key, training))
    digest = hashlib.sha256(text.encode()).hexdigest()
    told = {"split": name, "captions": len(training), "sha256": digest}
    if values.word_vectors:
        digest = file_sha256(values.word_vectors)
        told |= {"splits_of_words": list(texts), "word_vectors_sha256": digest}
    encoder.notes_["fitted_on"] = told
    return encoder


def _read_vectors(values, texts):
    """Returns the vectors of all words; tells how many have one.

    A vector was learned elsewhere, so words of other splits may be known.
    """
    counts = {split: count_words(some)[0] for split, some in texts.items()}
    words = dict.fromkeys(word for known in counts.values() for word in known)
    vectors = read_showing_progress(values.word_vectors, words)
    for split, found in counts.items():
        line = coverage_line(coverage(vectors, found))
        tqdm.tqdm.write(f"{split:<9} {line}")
    return vectors


def _fit(values, encoder, texts):
    """Fits an encoder, and shows what it is at."""
    training = next(iter(texts.values()))
    if not values.word_vectors:
        return encoder.fit(training)
    vectors = _read_vectors(values, texts)
    if values.features != "fisher":
        return encoder.fit(training, vectors)
    with progress_bar(None, "fitting", "step") as bar:

        def show(line):
            bar.set_description_str(line)
            bar.update()

        return encoder.fit(training, vectors, show)


class FeaturesOfTexts(Thing):
    """Features of the texts of a run that a recipe makes; see `Thing`."""

    verb, group, preset = "extract_text_features", TextFeatures, "features"
    unit = "text"

    def __init__(self, recipe, data):
        super().__init__(recipe, data)
        check(recipe.values)
        self._texts = texts_by_split(data)

    @property
    def count(self):
        """Of how many different texts it is made."""
        every = itertools.chain.from_iterable(self._texts.values())
        return len(set(map(caption_key, every)))

    def inputs(self):
        """Returns the splits, and a sha256 of the texts of each."""
        return [
            [name, hashlib.sha256(json.dumps(list(some)).encode()).hexdigest()]
            for name, some in self._texts.items()
        ]

    def check(self):
        """Refuses what packages are missing for."""
        if hub.is_hub(self.recipe.values.features):
            hub.keras_hub()
            return
        import_extra("text", "sklearn.decomposition")
        if self.recipe.values.features == "tfidf":
            find_lemmatizer()

    def make(self, folder):
        """Makes the store, or goes on."""
        make_text_features(self.recipe.values, self._texts, folder)

    def estimate(self, scratch):
        """Returns what all of it takes: (bytes, seconds), by making a few."""
        values, spent = self.recipe.values, []
        name, training = next(iter(self._texts.items()))
        for count in PROBES:
            start, folder = time.perf_counter(), scratch / str(count)
            make_text_features(values, {name: training[:count]}, folder)
            spent.append(time.perf_counter() - start)
        encoder: Any = caption_features.load_encoder(folder)
        dim = encoder.dim
        if values.features == "tfidf":
            dim = values.num_terms
        elif values.features == "fisher":
            dim = min(encoder.full_dim, values.pca_dim or encoder.full_dim)
        each = max(spent[2] - spent[1], 0) / (PROBES[2] - PROBES[1])
        size = self.count * dim * np.dtype(values.dtype).itemsize
        return size, spent[1] + self.count * each
