"""Settings -> texts as a network takes them, and what it knows of words."""

import os

import tensorflow as tf
import tqdm

from tbnets.data.examples import Examples, TokenRows
from tbnets.errors import InputError
from tbnets.identity import text_ids
from tbnets.layers.fisher_vectors import open_caption_reader
from tbnets.serving.doors import MOST_WORDS
from tbnets.serving.tree_reader import TreeReader
from tbnets.tasks import inputs
from tbnets.text.packed_trees import TreeRows, tree_arrays
from tbnets.text.tree_files import trees_of
from tbnets.text.vocabulary import Tokenizer, Vocabulary, count_words
from tbnets.text.word_tables import (
    centred,
    coverage,
    coverage_line,
    embedding_table,
    with_new_dims,
)
from tbnets.text.word_vectors import read_word_vectors

TOKENIZER_BATCH = 4096


def read_showing_progress(path, words):
    """Returns `read_word_vectors(path, words)`, with a progress bar."""
    with tqdm.tqdm(
        total=os.path.getsize(path),
        desc="reading word vectors",
        unit="B",
        unit_scale=True,
        leave=False,
        delay=1,
        disable=None,
    ) as bar:
        return read_word_vectors(path, words, bar.update)


def load_word_vectors(settings, vocabulary, captions):
    """Returns the first vectors of a network's words, from --word_vectors.

    Args:
        settings: the run's settings.
        vocabulary: the `Vocabulary`.
        captions: of the training split.

    Returns:
        dict of `word_vectors`, float32 `[vocabulary.size, dim]`, and
        `word_vectors_coverage`, see `text.word_tables.coverage`; {} where
        the flag is not set.

    Raises:
        FileNotFoundError, ValueError: there is no such file, it is damaged,
            or none of the words is in it.
    """
    if not settings.word_vectors:
        return {}
    path = inputs.resolve(settings, settings.word_vectors)
    if not path.exists():
        raise inputs.nowhere(settings, "word_vectors", path)
    vectors = read_showing_progress(path, vocabulary.words)
    if settings.word_vectors_scale:
        vectors = centred(vectors, settings.word_vectors_scale)
    table = embedding_table(
        vectors, vocabulary, settings.missing_vectors, settings.seed
    )
    if settings.word_vectors_training != "frozen":
        table = with_new_dims(table, settings.new_word_dims, settings.seed)
    report = coverage(vectors, count_words(captions)[0])
    return {"word_vectors": table, "word_vectors_coverage": report}


def notes(fitted):
    """Returns what people should know of the words: title -> text.

    Args:
        fitted: what `load_word_vectors` and the vocabulary gave.
    """
    found = {}
    if fitted.get("words"):
        found["words"] = str(len(fitted["words"]))
    if fitted.get("word_vectors_coverage"):
        found["vectors"] = coverage_line(fitted["word_vectors_coverage"])
    return found


def tree_path(settings):
    """Returns the file of trees; of scenes the folder of gold trees."""
    if settings.trees:
        path = inputs.resolve(settings, settings.trees)
        if path.exists():
            return path
        raise inputs.nowhere(settings, "trees", path)
    if settings.scenes:
        return inputs.from_start(settings, settings.scenes) / "trees"
    raise InputError(
        "`--trees` must name a file of trees. Received: --trees= with "
        "--text_encoder=h_lstm. Make one by tools/parse_captions.py."
    )


def tokenize(tokenizer, captions):
    """Returns the `TokenRows` of captions, a few thousand at a time."""
    parts = [
        tokenizer.ragged(list(captions[start : start + TOKENIZER_BATCH]))
        for start in range(0, len(captions), TOKENIZER_BATCH)
    ]
    if not parts:
        return TokenRows([], [])
    ids = tf.concat(parts, axis=0)
    return TokenRows(ids.values.numpy(), ids.row_lengths().numpy())


def load_words(settings, captions, vocabulary):
    """Returns captions as an encoder of words takes them.

    Raises:
        ValueError, FileNotFoundError: a caption has no tree, of --trees.
    """
    if settings.text_encoder != "h_lstm":
        return tokenize(inputs.build_tokenizer(settings, vocabulary), captions)
    trees = trees_of(tree_path(settings), captions)
    return TreeRows(tree_arrays(trees, vocabulary, settings.max_tokens or None))


def load_examples(settings, records, images, vocabulary):
    """Returns the `Examples` of some records.

    Args:
        settings: the run's settings.
        records: `CaptionedImages` of a split.
        images: their images, as `Examples` takes them.
        vocabulary: `Vocabulary`, or None with text features.

    Raises:
        ValueError, FileNotFoundError: something is missing or broken; the
            message names it.
    """
    if settings.text_encoder == "features":
        texts = inputs.load_text_features(settings, records)
    else:
        texts = load_words(settings, records.captions, vocabulary)
    same = settings.equal_texts_match
    return Examples(
        records=records,
        images=images,
        texts=texts,
        text_ids=text_ids(records.captions) if same else None,
    )


def most_words(settings, fitted):
    """Returns after how many words a served model cuts a caption.

    Args:
        settings: the run's settings, whose `max_tokens` counts if it is set.
        fitted: dict with `longest_text`, the words of the longest training
            caption, if that is known.
    """
    longest = max(MOST_WORDS, fitted.get("longest_text") or 0)
    return settings.max_tokens or longest


def build_text_reader(settings, fitted):
    """Returns what turns raw captions into what a served network takes.

    It cuts a caption after `most_words`.

    Args:
        settings: the run's settings.
        fitted: dict with `words` and `text_features_made_by`.

    Returns:
        A `Tokenizer`; a `TreeReader` where captions are read along trees; a
        `CaptionReader` where features come from a store with
        the encoder that made them; None where they come from elsewhere.

    Raises:
        FileNotFoundError, ValueError: the encoder is missing, damaged or
            another one.
    """
    if fitted["words"]:
        vocabulary = Vocabulary(fitted["words"])
        if settings.text_encoder == "h_lstm":
            return TreeReader(vocabulary, most_words(settings, fitted))
        return Tokenizer(vocabulary, most_words(settings, fitted))
    made_by = fitted.get("text_features_made_by", {})
    if "encoder_sha256" not in made_by:
        return None
    flag, split = "text_features", settings.train_split
    paths = inputs.feature_paths(settings, split, flag)
    return open_caption_reader(made_by, *paths, max_tokens=MOST_WORDS)
