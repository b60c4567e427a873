"""Settings -> what a network knows of words before it is trained or served."""

import os

import tqdm

from tbnets.layers.fisher_vectors import open_caption_reader
from tbnets.tasks import inputs
from tbnets.text.vocabulary import Vocabulary
from tbnets.text.vocabulary import count_words
from tbnets.text.word_tables import centred
from tbnets.text.word_tables import coverage
from tbnets.text.word_tables import coverage_line
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


def build_text_reader(settings, fitted):
    """Returns what turns raw captions into what a network takes.

    Args:
        settings: the run's settings.
        fitted: dict with `words` and `text_features_made_by`.

    Returns:
        A `Tokenizer`; a `CaptionReader` where features come from a store with
        the encoder that made them; None where they come from elsewhere.

    Raises:
        FileNotFoundError, ValueError: the encoder is missing, damaged or
            another one.
    """
    if fitted["words"]:
        vocabulary = Vocabulary(fitted["words"])
        return inputs.build_tokenizer(settings, vocabulary)
    made_by = fitted.get("text_features_made_by", {})
    if "encoder_sha256" not in made_by:
        return None
    flag, split = "text_features", settings.train_split
    paths = inputs.feature_paths(settings, split, flag)
    return open_caption_reader(made_by, *paths)
