"""Settings -> what a network knows of words before it is trained or served."""

import os

import tqdm

from tbnets.layers.fisher_vectors import open_caption_reader
from tbnets.serving.tree_reader import TreeReader
from tbnets.tasks import inputs
from tbnets.tasks import tree_inputs
from tbnets.text.packed_trees import TreeRows
from tbnets.text.packed_trees import tree_arrays
from tbnets.text.vocabulary import Vocabulary
from tbnets.text.vocabulary import count_words
from tbnets.text.word_tables import centred
from tbnets.text.word_tables import coverage
from tbnets.text.word_tables import embedding_table
from tbnets.text.word_tables import with_new_dims
from tbnets.text.word_vectors import read_word_vectors


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


def load_texts(settings, records, vocabulary):
    """Returns the captions of some records, as `Examples` takes them.

    Args:
        settings: the run's settings.
        records: `CaptionedImages` of a split.
        vocabulary: `Vocabulary`, or None with text features.

    Raises:
        ValueError, FileNotFoundError: something is missing or broken; the
            message names it.
    """
    if settings.text_encoder == "features":
        return inputs.load_text_features(settings, records)
    if settings.text_encoder == "h_lstm":
        trees = tree_inputs.load_trees(settings, records)
        limit = settings.max_tokens or None
        return TreeRows(tree_arrays(trees, vocabulary, limit))
    tokenizer = inputs.build_tokenizer(settings, vocabulary)
    return inputs.tokenize(tokenizer, records.captions)


def build_text_reader(settings, fitted):
    """Returns what turns raw captions into what a network takes.

    Args:
        settings: the run's settings.
        fitted: dict with `words` and `text_features_made_by`.

    Returns:
        A `Tokenizer`; a `TreeReader` where captions are read along trees; a
        `CaptionReader` where features come from a store with the encoder that
        made them; None where they come from elsewhere.

    Raises:
        FileNotFoundError, ValueError: the encoder is missing, damaged or
            another one.
    """
    if fitted["words"]:
        vocabulary = Vocabulary(fitted["words"])
        if settings.text_encoder == "h_lstm":
            return TreeReader(vocabulary, settings.max_tokens or None)
        return inputs.build_tokenizer(settings, vocabulary)
    made_by = fitted.get("text_features_made_by", {})
    if "encoder_sha256" not in made_by:
        return None
    flag, split = "text_features", settings.train_split
    paths = inputs.feature_paths(settings, split, flag)
    return open_caption_reader(made_by, *paths)
