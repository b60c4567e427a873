"""Reads pretrained word vectors from word2vec and GloVe files."""

import contextlib
import dataclasses
import mmap
import os
import re
import unicodedata
from collections.abc import Callable, Iterable

import numpy as np

from tbnets.checks import Path, per_cent, short_repr
from tbnets.errors import InputError
from tbnets.files import CheckedFile, require_file, shown
from tbnets.progress import progress_bar
from tbnets.seeds import generator_of
from tbnets.text.vocabulary import PADDING_ID


def coverage(vectors, counts):
    """Counts how many words, and how many of their occurrences, have a vector.

    `counts` maps each word to its number of occurrences. Returns a dict:
    `words` is the number of words, `known_words` the number of words with a
    vector, `token_share` the fraction of occurrences with a vector, and
    `most_frequent_missing` lists up to five words without a vector.
    """
    known_words = set(vectors.words)
    missing = [word for word in counts if word not in known_words]
    missing.sort(key=lambda word: (-counts[word], word))
    tokens = sum(counts.values())
    covered = tokens - sum(counts[word] for word in missing)
    return {
        "words": len(counts),
        "known_words": len(counts) - len(missing),
        "token_share": covered / max(tokens, 1),
        "most_frequent_missing": missing[:5],
    }


def coverage_line(report):
    """Formats the result of `coverage` as one line."""
    missing = ", ".join(report["most_frequent_missing"])
    return (
        f"{report['known_words']} of {report['words']} words have vectors, "
        f"{per_cent(report['token_share'])} % of their occurrences"
        f"{missing and f'; without: {missing}'}"
    )


def centred(vectors, scale):
    """Centres `WordVectors` and scales them to the standard deviation `scale`.

    Pretrained vectors are long and have a large mean, so a network hardly
    learns to separate the mean vectors of captions.

    Source: Mu and Viswanath 2018, "All-but-the-top", first step.
    """
    rows = vectors.vectors - vectors.vectors.mean(axis=0)
    deviation = rows.std()
    if deviation > 0:
        rows *= scale / deviation
    return dataclasses.replace(vectors, vectors=rows)


def with_new_dims(table, count, seed=0):
    """Appends `count` random numbers to each word's row in a table.

    The numbers are drawn uniformly from -0.05 to 0.05, as in Keras. In row 0,
    the padding, they are 0.
    """
    generator = generator_of(seed, "new_dims")
    new_columns = generator.uniform(-0.05, 0.05, (len(table), count))
    new_columns[PADDING_ID] = 0
    return np.concatenate([table, new_columns.astype(np.float32)], axis=1)


def embedding_table(vectors, vocabulary, seed=0):
    """Returns the initial embedding table, float32 `[vocabulary.size, dim]`.

    For a word without a vector, a vector is drawn from a normal distribution
    with the known vectors' mean and standard deviation in each dimension. The
    padding row contains zeros.
    """
    rows = vectors.rows(vocabulary.words)
    has_vector = rows >= 0
    if not has_vector.any():
        expected = f"have one of the {vocabulary.size} words of the vocabulary"
        raise InputError("vectors", expected, f"vectors={vectors.path}")
    table = np.zeros((vocabulary.size, vectors.dim), np.float32)
    table[has_vector] = vectors.vectors[rows[has_vector]]
    mean = table[has_vector].mean(axis=0)
    deviation = table[has_vector].std(axis=0)
    shape = (np.count_nonzero(~has_vector), vectors.dim)
    draws = generator_of(seed, "missing_vectors")
    noise = draws.standard_normal(shape, np.float32)
    table[~has_vector] = mean + deviation * noise
    table[PADDING_ID] = 0
    return table


MOST_WORD_BYTES = 4096
MOST_LINE_BYTES = 2**20
_APOSTROPHES = str.maketrans("", "", "'\u2018\u2019\u201b\u2032\u02bc\u00b4`")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"([1-9]\d{,17})\s+([1-9]\d{,17})\s*")
_PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip"}
_AGAIN = (
    "The file is damaged or its header is wrong. Copy or download it again."
)


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Args:
        words: distinct strings.
        vectors: float32 `[len(words), dim]`, finite.
        path: source file, for error messages.

    Example:
        vectors = tbnets.WordVectors(("dog", "cat"), np.eye(2, dtype="float32"))
        vectors.dim, vectors.rows(["cat", "cow"])  # 2, [1, -1]
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    path: str = ""

    def __post_init__(self):
        shape = np.shape(self.vectors)
        if len(shape) != 2 or shape[0] != len(self.words):
            expected = f"have one row for each of the {len(self.words)} words"
            raise InputError("vectors", expected, f"shape {shape}")

    __repr__ = short_repr("path", "dim", words=lambda self: len(self.words))

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self.vectors.shape[1]

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """Returns each word's int64 row, or -1 for a word without a vector."""
        row_of = {word: row for row, word in enumerate(self.words)}
        return np.array([row_of.get(word, -1) for word in words], np.int64)


def read_word_vectors(
    path: Path,
    words: Iterable[str],
    progress: Callable[[int], object] | None = None,
) -> WordVectors:
    """Reads the vectors of the given words from a file.

    The file may be in word2vec binary, word2vec text or GloVe text format. If a
    word is not in the file, the first word that differs only in case and
    apostrophes is used: `dont` matches `don't`, and `paris` matches `Paris`.

    Args:
        path: the decompressed file.
        words: words to read, spelt as `split_words` returns them.
        progress: function called with the number of newly read bytes, or None.

    Returns:
        `WordVectors` of the words found, in the order of `words`.

    Raises:
        ValueError: If the file is compressed or damaged, its header is wrong,
            vectors differ in length, or a requested word occurs twice or has a
            vector that is not finite.

    Example:
        words = tbnets.Vocabulary.build(captions).words
        vectors = tbnets.read_word_vectors("glove.txt", words)
        vectors.vectors.shape  # (num_words, dim)
    """
    if isinstance(words, str):
        raise InputError("words", "be a list of strings", f"words={words!r}")
    require_file(path)
    file, requested = CheckedFile(path), dict.fromkeys(filter(None, words))
    entries = {}  # Requested word: (spelling, position, vector) in the file.

    def requested_word(name):
        if name in requested:
            return name
        # Normalised as in `split_words`.
        plain = unicodedata.normalize("NFKC", name).casefold()
        plain = plain.translate(_APOSTROPHES)
        return plain if plain in requested and plain not in entries else None

    with open(path, "rb") as stream:
        count, dim = _header(stream, file)
        is_text = count is None or _is_text(stream, dim)
        progress = progress or (lambda count: None)
        rows = (_text_rows if is_text else _binary_rows)(
            stream, file, (count, dim), requested_word, progress
        )
        for name, number, row in rows:
            if not np.isfinite(row).all():
                expected = f"finite numbers in the vector of {shown(name)}"
                file.refuse(expected, row[~np.isfinite(row)][0], number)
            word = requested_word(name)
            spelling, position, _ = entries.get(word, (None, 0, None))
            if spelling == name:
                once = f"each word once, as at {position}"
                file.refuse(once, name, number, "Remove one of the vectors.")
            entries[word] = name, number, row
    names = tuple(word for word in requested if word in entries)
    rows = np.array([entries[word][-1] for word in names], np.float32)
    return WordVectors(names, rows.reshape(len(names), dim), os.fspath(path))


def _header(stream, file):
    start = stream.read(len(_BYTE_ORDER_MARK))
    if kind := _PACKED.get(start[:2]):
        file.report(f"expected word vectors; found {kind}. Decompress it.")
    begin = stream.seek(len(start) * (start == _BYTE_ORDER_MARK))
    line = stream.readline(MOST_LINE_BYTES)
    if not line.strip():
        file.report("expected word vectors; found an empty line.", 1)
    if header := _HEADER.fullmatch(line):
        return int(header[1]), int(header[2])
    stream.seek(begin)
    return None, line.rstrip(b" \r\n").count(b" ")


def _is_text(stream, dim):
    begin = stream.tell()
    row = stream.readline(MOST_LINE_BYTES)
    stream.seek(begin)
    fields = row.split()[: 1 + min(dim, 3)]
    is_line = len(fields) > 1 and len(row) < MOST_LINE_BYTES
    return is_line and all(map(_is_number, fields[1:]))


def _is_number(field):
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field  # Python reads 1_0 as 10.


def _text_rows(stream, file, header, requested_word, progress):
    count, dim = header
    line = first = int(count is not None)  # Number of header lines.
    row = b"\n"
    for row in iter(lambda: stream.readline(MOST_LINE_BYTES), b""):
        line += 1
        progress(len(row))
        fields = row.rstrip(b" \r\n").rsplit(b" ", dim)
        # Some files have words with spaces: GloVe contains `. . .`.
        *first_fields, last = fields[0].split(b" ")
        if not dim or len(fields) <= dim or (first_fields and _is_number(last)):
            numbers = f"a word and {dim or 'its'} numbers"
            expected = f"{numbers}, separated by single spaces"
            file.refuse(expected, row[:60], line, "Download the file again.")
        name = fields[0].decode("utf-8", errors="replace")
        if requested_word(name) is not None:
            yield name, line, _numbers(fields[1:], name, line, file)
    if count not in (None, line - first):
        expected = f"the {count} vectors of the header"
        file.refuse(expected, line - first, 1, _AGAIN)
    if not row.endswith(b"\n"):
        file.suspect(
            "expected a newline after the last vector; found the end of the "
            "file. If the file is complete, append a newline.",
            line,
        )


def _numbers(fields, name, line, file):
    if b"_" not in b" ".join(fields):
        with contextlib.suppress(ValueError), np.errstate(over="ignore"):
            return np.array(list(map(float, fields)), np.float32)
    invalid = next(field for field in fields if not _is_number(field))
    return file.refuse(f"numbers in the vector of {shown(name)}", invalid, line)


def _binary_rows(stream, file, header, requested_word, progress):
    """Yields (word, record number, vector) from records `word SPACE floats`."""
    count, dim = header
    size = os.fstat(stream.fileno()).st_size
    least = count * (4 * dim + 2)
    vectors = f"the header's {count} vectors of {dim} numbers"
    if size < least:
        expected = f"{vectors}, which need at least {least} bytes"
        file.refuse(expected, size, 1, _AGAIN)
    start, between = stream.tell(), b""
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for number in range(1, count + 1):
            space = content.find(b" ", start, start + MOST_WORD_BYTES)
            end, word = space + 1 + 4 * dim, content[start : max(space, start)]
            name, invalid = word.removeprefix(between), ""
            if end > size or space < 0:
                invalid = "the end of the file" if end > size else "no word"
            elif b"\n" in name or not word.startswith(between):
                invalid = shown(word)
            if invalid:
                file.report(
                    f"word {number} of {count}: expected a word, a space and "
                    f"{dim} floats; found {invalid}. {_AGAIN}"
                )
            name = name.decode("utf-8", errors="replace")
            if requested_word(name) is not None:
                row = np.frombuffer(content[space + 1 : end], "<f4")
                yield name, number, row.astype(np.float32)
            progress(end - start)
            start = end
            if number == 1 < count and content[end : end + 1] == b"\n":
                between = b"\n"
        if content[start : start + MOST_WORD_BYTES].strip():
            problem = f"expected only {vectors}; found more bytes."
            file.report(f"{problem} {_AGAIN}", 1)


def read_showing_progress(path, words):
    """Calls `read_word_vectors(path, words)` and shows a progress bar."""
    size, label = os.path.getsize(path), "reading word vectors"
    with progress_bar(size, label, "B", unit_scale=True) as bar:
        return read_word_vectors(path, words, bar.update)
