"""Reads the texts of a run for its encoder, as words, trees or features."""

import functools

import numpy as np
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.caption_encoder import CaptionReader
from tbnets.features.caption_features import load_encoder_of
from tbnets.features.text_presets import PresetFeatures, open_texts
from tbnets.serving.inputs import MOST_WORDS, FeaturesAndWordsReader, TreeReader
from tbnets.serving.saved_files import check_ops
from tbnets.tasks.settings.settings import Settings
from tbnets.text import word_vectors
from tbnets.text.packed_trees import TreeRows, tree_arrays
from tbnets.text.vocabulary import (
    PaddedRows,
    Tokenizer,
    Vocabulary,
    count_words,
)
from tbnets.text.word_vectors import read_showing_progress

TOKENIZER_BATCH = 4096


class Texts:
    """The texts of a run, in the form that its --text_encoder requires."""

    def __init__(self, settings: Settings, data):
        self.settings = settings
        self._data = data
        self._of_features = settings.texts.are_features
        # A frozen preset has made features.
        self._of_preset = settings.texts.preset and not self._of_features
        self._of_trees = settings.texts.text_encoder == "h_lstm"
        self._begun_with, self._words = {}, ()
        self._readers = {}

    @property
    def _train(self):
        return self._data.split(self.settings.run.train_split)

    def begin_with(self, words, begun_with):
        """Keeps the words and word ids of the model that the run starts from.

        The first `begun_with["words"]` entries of `words` are the model's
        words. `begun_with["sha256"]` is the digest of the model's weights.
        """
        self._begun_with = begun_with
        self._words = words[: begun_with["words"]]

    def check(self, splits, queries=()):
        """Raises an error if texts are missing or a server cannot read them."""
        if self._of_trees:
            if self.settings.training and self.settings.training.jit_compile:
                expected = "be false with h_lstm, which XLA cannot compile"
                raise InputError("--jit_compile", expected, "True")
            for split in splits:
                self._data.split(split).trees()
        if not self._of_features:
            return
        self._data.parts("texts", splits)
        made_by = self._train.texts.features.made_by
        if queries and "encoder_sha256" not in made_by:
            expected = "be used with a model that reads captions"
            received = "--text_features whose encoder is unknown"
            raise InputError("--example_query", expected, received)
        if self.settings.run.export and not self.settings.texts.frozen_preset:
            fitted = {"words": [], "text_features_made_by": made_by}
            self._check_served(self.reader(fitted))

    def check_preset(self):
        """Raises an error if the text preset cannot be opened or exported."""
        if self.settings.texts.preset:
            tokenizer = self._tokenizer
            if self.settings.run.export:
                self._check_served(tokenizer)

    def _check_served(self, reader):
        tokenizer = getattr(reader, "tokenizer", reader)
        if hasattr(tokenizer, "graph_def"):
            is_preset = self.settings.texts.preset != ""
            flag = "--text_encoder" if is_preset else "--text_features"
            check_ops(flag, tokenizer.graph_def(), "Add --noexport.")

    def fit(self):
        """Returns the values of `task.Fitted` that describe the texts."""
        fitted = {"words": [], "text_dim": None, "text_features_made_by": {}}
        if self._begun_with:
            fitted["begun_with"] = self._begun_with
        if self._of_features:
            rows = self._train.texts
            fitted["text_dim"] = rows.shape[0]
            fitted["text_features_made_by"] = rows.features.made_by
        if self._of_preset:
            fitted["text_encoder_made_by"] = self._reads_by
        if not self.settings.texts.learns_words:
            return fitted
        counts, lengths = count_words(self._train.text_records.captions)
        options = self.settings.texts
        vocabulary = Vocabulary.of_counts(
            counts, options.min_count, options.max_words or None
        )
        fitted["words"] = list(dict.fromkeys((*self._words, *vocabulary.words)))
        fitted["longest_text"] = int(lengths.max(initial=0))
        return fitted | self._word_vectors(vocabulary, counts)

    def _word_vectors(self, vocabulary, counts):
        options, run = self.settings.texts, self.settings.run
        if not options.word_vectors or run.from_:
            return {}
        path = self._data.original_sources.file("word_vectors")
        vectors = read_showing_progress(path, vocabulary.words)
        if options.word_vectors_scale:
            vectors = word_vectors.centred(vectors, options.word_vectors_scale)
        new, seed = options.new_word_dims, run.seed
        table = word_vectors.embedding_table(vectors, vocabulary, seed)
        if options.word_vectors_training != "frozen":
            table = word_vectors.with_new_dims(table, new, seed)
        report = word_vectors.coverage(vectors, counts)
        return {"word_vectors": table, "word_vectors_coverage": report}

    def rows(self, split, fitted):
        """Returns the texts of a split as inputs of the text encoder."""
        if self._of_preset:
            tokenizer = self._tokenizer_of(fitted)
            return tokenize(tokenizer, split.text_records.captions)
        if not self.settings.texts.learns_words:
            return split.texts
        vocabulary = Vocabulary(fitted["words"])
        if self._of_trees:
            return TreeRows(tree_arrays(split.trees(), vocabulary))
        words = tokenize(Tokenizer(vocabulary), split.text_records.captions)
        return (
            FeaturesAndWords(split.texts, words) if self._of_features else words
        )

    def reader(self, fitted):
        """Returns an object that converts captions to a network's inputs.

        It is a `Tokenizer` or a trained preset's tokenizer for words, a
        `TreeReader` for trees, a `CaptionReader` for features, and a
        `FeaturesAndWordsReader` for both. Returns None if the store of features
        contains no encoder. Raises an error if that encoder is missing, damaged
        or changed.
        """
        if self._of_preset:
            return self._tokenizer_of(fitted)
        features = self._feature_reader(fitted) if self._of_features else None
        if not fitted["words"]:
            return features
        kind = TreeReader if self._of_trees else Tokenizer
        words = kind(Vocabulary(fitted["words"]), most_words(fitted))
        return FeaturesAndWordsReader(features, words) if features else words

    def _feature_reader(self, fitted):
        made_by = fitted.get("text_features_made_by", {})
        if "encoder_sha256" not in made_by:
            return None
        if preset := self.settings.texts.frozen_preset:
            read = PresetFeatures.made
            places = [hub.placed(preset, *self.settings.sources().starts)]
        else:
            read, split = load_encoder_of, self.settings.run.train_split
            places = self._data.paths("text_features", split)
        key = made_by["encoder_sha256"], *places
        if key not in self._readers:  # Opening an encoder can take seconds.
            reader = CaptionReader(read(made_by, *places), MOST_WORDS)
            self._readers = {key: reader}
        return self._readers[key]

    @functools.cached_property
    def _tokenizer(self):
        return text_preset(self.settings, weights=False).tokenizer

    @property
    def _reads_by(self):
        return {"tokenizer_sha256": self._tokenizer.sha256()}

    def _tokenizer_of(self, fitted):
        if fitted["text_encoder_made_by"] != self._reads_by:
            expected = "be the preset with which the run was started"
            received = self.settings.texts.text_encoder
            raise InputError("--text_encoder", expected, received)
        return self._tokenizer


class FeaturesAndWords:
    """The features and the words of captions, as `Rows` of one array.

    A row of a batch, int32 `[feature_dim + words]`, has the bits of the float32
    features, followed by the ids of the words. So a caption with two inputs is
    batched, distributed and cached like any other text.

    Args:
        features: `FeatureRows` of the captions.
        words: `PaddedRows` of the captions.
    """

    dtype, shape = tf.int32, (None,)

    def __init__(self, features, words):
        self.features, self.words = features, words
        self.lengths = words.lengths

    def batch(self, rows):
        """Returns int32 `[len(rows), feature_dim + words]`."""
        features = np.ascontiguousarray(self.features.batch(rows), np.float32)
        words = self.words.batch(rows)
        return np.concatenate([features.view(np.int32), words], axis=1)


def text_preset(settings: Settings, weights=True):
    """Opens the preset of --text_encoder, as `text_presets.open_texts`."""
    name = hub.placed(settings.texts.preset, *settings.sources().starts)
    return open_texts(name, weights)


def most_words(fitted):
    """Returns the number of words to which served models truncate captions."""
    return max(MOST_WORDS, fitted.get("longest_text") or 0)


def notes(fitted):
    """Returns facts about the words to print, as {title: text}."""
    facts = {}
    if total := len(fitted.get("words") or ()):
        facts["words"] = str(total)
        if begun := fitted.get("begun_with"):
            facts["words"] += f", {total - begun['words']} of them new"
    if report := fitted.get("word_vectors_coverage"):
        facts["vectors"] = word_vectors.coverage_line(report)
    return facts


def tokenize(tokenizer, captions):
    """Tokenises captions in batches, and returns them as `PaddedRows`."""
    starts = range(0, len(captions), TOKENIZER_BATCH)
    parts = [list(captions[at : at + TOKENIZER_BATCH]) for at in starts]
    if not parts:
        return PaddedRows([], [])
    ids = tf.concat(list(map(tokenizer.ragged, parts)), axis=0)
    return PaddedRows(ids.values.numpy(), ids.row_lengths().numpy())
