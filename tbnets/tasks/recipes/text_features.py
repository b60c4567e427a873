"""Makes stores of text features, and files of parse trees."""

import collections
import dataclasses
import functools
import hashlib
import itertools
from typing import Annotated

import tqdm

from tbnets.data.captions import caption_key
from tbnets.data.splits import DRAWN, WHOLE_FILE
from tbnets.data.store.reader import DTYPES, file_sha256
from tbnets.errors import InputError, import_extra
from tbnets.features import caption_features, hub, text_presets
from tbnets.features.text_presets import PresetFeatures
from tbnets.features.tfidf import find_lemmatizer
from tbnets.progress import progress_bar
from tbnets.tasks.recipes.recipe import Recipe
from tbnets.tasks.settings.flag import (
    PRESET,
    REQUIRED,
    Count,
    Limits,
    Place,
    Whole,
    flag,
)
from tbnets.text import parsing
from tbnets.text.parsing import DEFAULT_URL, PARSERS, open_parser
from tbnets.text.vocabulary import count_words
from tbnets.text.word_vectors import (
    coverage,
    coverage_line,
    read_showing_progress,
)


def _split_names(data):
    sources = data.sources
    if sources.split_lists:
        return [name for name in sources.run_splits if data.has(name)]
    return data.captions.splits()


def texts_by_split(data, names=()):
    """Returns a dict from split to texts, for the named splits or all splits.

    The first split is the training split, on which features are fitted. If the
    captions file defines no splits, they are drawn at random.
    """
    names = tuple(names or _split_names(data))
    first = data.original_sources.train_split
    if names == (WHOLE_FILE,) and first != WHOLE_FILE:
        names = DRAWN
    names = dict.fromkeys([first, *names])
    return {name: data.split(name).text_records.captions for name in names}


def texts_by_id(data, names=()):
    """Returns (IMAGE#NUMBER, text) pairs of the named splits or all splits."""
    names = names or _split_names(data)
    return [
        (f"{image_id}#{number}", part.captions[row])
        for part in data.parts("text_records", names).values()
        for image_id, rows in zip(part.image_ids, part.caption_rows())
        for number, row in enumerate(rows)
    ]


MOST_PRINTED = 5
FILE = "trees.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trees:
    """Flags that select and configure the parser."""

    parser: str = flag(
        "embedded",
        "Parser. embedded: TextBlob's tagger and a grammar, no download; "
        "corenlp: a server (Niu 2017); right_branching: no syntax, for "
        "comparison.",
        choices=list(PARSERS),
    )
    corenlp_url: str = flag(
        DEFAULT_URL, "Address of the server for --parser=corenlp.", free=True
    )
    processes: Whole = flag(
        0, "Number of parsing processes; 0: one per core.", free=True
    )


def make_trees(values, texts, path, cache):
    """Parses texts, a list of (id, text), and writes the trees to `path`.

    An interrupted call is continued from the file `cache`.
    """
    captions = [caption for _, caption in texts]
    count = len(set(captions))
    how = {"processes": values.processes or None, "cache": cache}
    with progress_bar(count, "parsing", "caption", leave=True) as bar:
        how |= {"corenlp_url": values.corenlp_url, "progress": bar.update}
        parses = parsing.parse_captions(captions, values.parser, **how)
    parsing.write_parses(path, texts, parses)
    failed = sum(caption in parses.failures for caption in captions)
    tqdm.tqdm.write(
        f"parsed    {len(parses.trees) - parses.num_cached} captions by "
        f"{values.parser}, "
        f"{parses.num_cached} were cached\n"
        f"trees     {path}: {len(texts)} captions, {failed} of them "
        "right-branching because parsing failed"
    )
    reasons = collections.Counter(parses.failures.values())
    for reason, count in reasons.most_common(MOST_PRINTED):
        tqdm.tqdm.write(f"          {count} x {reason}")


class TreesOfTexts(Recipe):
    """A recipe for trees of a run's texts, with flags of `parse_captions`."""

    verb, group = "parse_captions", Trees
    unit = "text"

    def __init__(self, flagfile, values, data):
        super().__init__(flagfile, values, data, texts_by_id(data))

    def inputs(self):
        """Returns the texts, whose trees are all in one file."""
        return self.items

    @property
    def path(self):
        """The file of trees in the folder."""
        return self.folder / FILE

    def is_made(self, folder):
        """Returns whether the folder contains the complete file of trees."""
        return (folder / FILE).is_file()

    def check(self):
        """Raises an error if the parser is missing or does not respond."""
        open_parser(self.values.parser, self.values.corenlp_url)

    def make(self, folder):
        """Parses the texts that are not in the cache."""
        folder.mkdir(parents=True, exist_ok=True)
        cache = folder / f"{FILE}.cache"
        make_trees(self.values, self.items, folder / FILE, cache)
        cache.unlink()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFeatures:
    """Flags that control which features are made."""

    features: str = flag(
        REQUIRED,
        "Features. tfidf: weighted counts of the most frequent lemmas; "
        "mean_vector: means of word vectors; fisher: Fisher vectors of word "
        "vectors (Wang 2016); hub:PRESET: the text encoder of a Keras Hub "
        "preset (a name, handle or folder) with its own pooling.",
        choices=("fisher", "mean_vector", "tfidf", PRESET),
    )
    num_terms: Count = flag(
        3000,
        "For tfidf: number of lemmas. Wang 2016: 3000 (Flickr30K), 5600 "
        "(MSCOCO).",
    )
    word_vectors: Place = flag(
        "",
        "For mean_vector and fisher: a word2vec or GloVe file.",
        argument="vectors",
    )
    num_components: Count = flag(
        30, "For fisher: components of the mixture. Papers: 30."
    )
    pca_dim: Whole = flag(
        6000,
        "For fisher: dimensions after PCA; 0: all. Papers: 6000 of 18,000.",
    )
    pca_captions: Annotated[int, Limits(2)] = flag(
        20_000, "For fisher: number of training captions in memory for PCA."
    )
    seed: Whole = flag(0, "For fisher: seed of the fit.")
    dtype: str = flag("float32", "Type of the stored features.", choices=DTYPES)


def check_text_features(values):
    """Raises an error if `word_vectors` is missing or has no effect."""
    of_vectors = values.features in ("mean_vector", "fisher")
    if of_vectors != bool(values.word_vectors):
        expected = "be set for --features=mean_vector and fisher only"
        received = f"{values.word_vectors!r} with --features={values.features}"
        raise InputError("--word_vectors", expected, received)


def make_text_features(values, texts, folder):
    """Makes or completes a store of text features.

    `texts` maps splits to texts; the encoder is fitted on the first split.
    """
    every = itertools.chain.from_iterable(texts.values())
    all_texts = {caption_key(text): text for text in every}
    encoder = _fitted(values, texts, folder)
    tqdm.tqdm.write(f"encoder   {encoder.describe()}")
    writer = caption_features.open_writer(folder, encoder, values.dtype)
    count = len(all_texts.keys() - writer.done)
    with progress_bar(count, "encoding", "text", leave=True) as bar:
        caption_features.extract_captions(
            all_texts.values(), encoder, writer, bar.update
        )
    writer.finish()
    tqdm.tqdm.write(
        f"store     {folder}: {len(writer.done)} texts x {encoder.dim} "
        f"features, {values.dtype}"
    )


def _fitted(values, texts, folder):
    encoder = _new_encoder(values, texts)
    before = caption_features.open_fitted(folder, encoder)
    if hub.is_hub(values.features):
        return encoder
    if before is not None:
        return before
    _fit(values, encoder, texts)
    number = encoder.notes_["fitted_on"]["captions"]
    tqdm.tqdm.write(f"fitted    on {number} captions")
    return encoder


def _new_encoder(values, texts):
    if hub.is_hub(values.features):
        return PresetFeatures.of(values.features)
    kind = caption_features.ENCODERS[values.features]
    encoder = kind(*(getattr(values, name) for name in kind.parameters))
    name, training = next(iter(texts.items()))
    text = "\n".join(map(caption_key, training))
    digest = hashlib.sha256(text.encode()).hexdigest()
    note = {"split": name, "captions": len(training), "sha256": digest}
    if values.word_vectors:
        digest = file_sha256(values.word_vectors)
        note |= {"splits_of_words": list(texts), "word_vectors_sha256": digest}
    encoder.notes_["fitted_on"] = note
    return encoder


def _read_vectors(values, texts):
    counts = {split: count_words(some)[0] for split, some in texts.items()}
    words = dict.fromkeys(word for known in counts.values() for word in known)
    vectors = read_showing_progress(values.word_vectors, words)
    for split, count in counts.items():
        line = coverage_line(coverage(vectors, count))
        tqdm.tqdm.write(f"{split:<9} {line}")
    return vectors


def _fit(values, encoder, texts):
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


class FeaturesOfTexts(Recipe):
    """A recipe for text features, with flags of `extract_text_features`."""

    verb, group, preset = "extract_text_features", TextFeatures, "features"
    unit = "text"

    def __init__(self, flagfile, values, data):
        items = list(texts_by_split(data).items())
        super().__init__(flagfile, values, data, items)
        check_text_features(values)

    @functools.cached_property
    def keys(self):
        """The ids of the distinct texts in the store, a dict."""
        texts = itertools.chain.from_iterable(some for _, some in self.items)
        return {key: key for key in map(caption_key, texts)}

    @property
    def count(self):
        """The number of distinct texts."""
        return len(self.keys)

    def inputs(self):
        """Returns the texts to which an encoder is fitted, unlike presets."""
        return None if hub.is_hub(self.values.features) else self.items

    def check(self):
        """Raises an error if a package is missing."""
        if hub.is_hub(self.values.features):
            text_presets.files(self.values.features)
            return
        import_extra("text", "sklearn.decomposition")
        if self.values.features == "tfidf":
            find_lemmatizer()

    def make(self, folder):
        """Makes or completes the store."""
        make_text_features(self.values, dict(self.items), folder)
