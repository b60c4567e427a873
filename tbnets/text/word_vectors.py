"""Word vectors that others trained: word2vec and GloVe files.

    vectors = read_word_vectors("glove.6B.300d.txt", vocabulary.words)

Files hold millions of words; they are read as a stream, of which the rows of
the words asked for alone are kept.
"""

import dataclasses
import mmap
import os
import unicodedata

import numpy as np

from tbnets.checked_files import CheckedFile, require_file, shown
from tbnets.errors import InputError

MOST_WORD_BYTES = 4096
MOST_LINE_BYTES = 2**20
_APOSTROPHES = str.maketrans("", "", "'\u2018\u2019\u201b\u2032\u02bc\u00b4`")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip"}


@dataclasses.dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Args:
        words: n distinct strings.
        vectors: float32 `[n, dim]`, finite.
        path: the file they come from, for messages.
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    path: str = ""

    @property
    def dim(self):
        """The size of a vector."""
        return self.vectors.shape[1]

    def rows(self, words):
        """Returns the row of each word, -1 where it has no vector.

        Args:
            words: sequence of strings.

        Returns:
            int64 `[len(words)]`.
        """
        places = {word: row for row, word in enumerate(self.words)}
        return np.array([places.get(word, -1) for word in words], np.int64)


def read_word_vectors(path, words, progress=None):
    """Reads the vectors of some words from a file.

    The kind of file is told from its content: word2vec binary; word2vec text
    (a first line `words dimensions`); or GloVe text (no such line).

    A word's own spelling comes first; if the file has none, the first of its
    words that is the same but for case and apostrophes is taken: `dont` finds
    `don't`, `paris` finds `Paris`.

    Args:
        path: the file, unpacked.
        words: the words whose vectors are kept, as `split_words` gives them.
        progress: None, or called with the bytes read since the last call.

    Returns:
        `WordVectors` of the words that were found, in the order of `words`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is packed, damaged, its header is wrong, vectors differ
            in length, or a wanted word occurs twice or has a vector that is
            not finite; the message names line or word.
    """
    require_file(path)
    progress = progress or (lambda count: None)
    file, found = CheckedFile(path), _Found(words)
    with open(path, "rb") as stream:
        start = stream.read(len(_BYTE_ORDER_MARK))
        kind = _PACKED.get(start[:2])
        if kind:
            file.report(
                f"expected word vectors; found a {kind} file. Unpack it."
            )
        if start != _BYTE_ORDER_MARK:
            stream.seek(0)
        header, first = _first_lines(stream, file)
        if header is not None and not _is_text_row(first, header[1]):
            dim = _read_binary(stream, file, found, header, progress)
        else:
            dim = _read_text(stream, file, found, header, progress)
    kept = tuple(word for word in found.wanted if word in found)
    rows = [found.row(word) for word in kept]
    matrix = np.stack(rows) if rows else np.zeros((0, dim), np.float32)
    return WordVectors(kept, matrix, os.fspath(path))


class _Found:
    """Vectors found so far, of words in their own or another spelling."""

    def __init__(self, words):
        self.wanted = {word: None for word in words if word}
        self._own, self._other = {}, {}
        self._places = {}

    def __contains__(self, word):
        return word in self._own or word in self._other

    def row(self, word):
        return self._own[word] if word in self._own else self._other[word]

    def offers(self, word):
        """Returns whose vector that of a file's word may be, or None."""
        if word in self.wanted:
            return word
        plain = _plain(word)
        if plain in self.wanted and plain not in self:
            return plain
        return None

    def add(self, word, wanted, row, place, file):
        """Keeps the vector of a word; reports one that is not usable.

        Args:
            word: the file's word.
            wanted: what `offers` said.
            row: float32 `[dim]`.
            place: 1-based line or number of the word.
            file: the `CheckedFile`.
        """
        if not np.isfinite(row).all():
            file.report(
                f"the vector of {shown(word)}: expected finite numbers; found "
                f"{row[~np.isfinite(row)][0]}. Take the file from its source "
                "again.",
                place,
            )
        if word != wanted:
            self._other[wanted] = row
            return
        if word in self._own:
            file.report(
                f"expected each word once; found {shown(word)} again, as at "
                f"{self._places[word]}. Remove one of them.",
                place,
            )
        self._own[word], self._places[word] = row, place


def _plain(word):
    """Returns a word as `split_words` would spell it."""
    word = unicodedata.normalize("NFKC", word).casefold()
    return word.translate(_APOSTROPHES)


def _first_lines(stream, file):
    """Returns the header (words, dimensions) or None, and the next line.

    The stream stands where the vectors begin.
    """
    place = stream.tell()
    first = stream.readline(MOST_LINE_BYTES)
    fields = first.split()
    if not fields:
        file.report("expected word vectors; found an empty line.", 1)
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        # Short enough to be numbers and not an attack on int().
        if max(map(len, fields)) > 18 or 0 in map(int, fields):
            file.report(
                "expected the numbers of words and of dimensions; found "
                f"{shown(first.decode('latin-1').strip())}.",
                1,
            )
        place = stream.tell()
        row = stream.readline(MOST_LINE_BYTES)
        stream.seek(place)
        return tuple(map(int, fields)), row
    stream.seek(place)
    return None, b""


def _is_text_row(row, dim):
    """Tells whether a line is a word and numbers, not bytes of floats."""
    fields = row.split()
    if len(fields) < 2 or len(row) == MOST_LINE_BYTES:
        return False
    return all(map(_is_number, fields[1 : 1 + min(dim, 3)]))


def _is_number(field):
    try:
        float(field)
    except ValueError:
        return False
    return True


def _read_text(stream, file, found, header, progress):
    """Reads `word number number ...` lines; returns the dimension."""
    line = first = int(header is not None)  # How many lines are no vectors.
    dim = header[1] if header else None
    ends_well = True
    while row := stream.readline(MOST_LINE_BYTES):
        line += 1
        ends_well = row.endswith(b"\n")
        progress(len(row))
        row = row.rstrip(b" \r\n")
        dim = row.count(b" ") if dim is None else dim
        _check_length(row, dim, line, file)
        name = row.rsplit(b" ", dim)[0].decode("utf-8", errors="replace")
        wanted = found.offers(name)
        if wanted is not None:
            numbers = _parse(row.rsplit(b" ", dim)[1:], line, name, file)
            found.add(name, wanted, numbers, line, file)
    count = line - first
    if header and count != header[0]:
        file.report(
            f"expected as many vectors as the header says, {header[0]}; found "
            f"{count}. Copy or download the file again.",
            1,
        )
    if not ends_well:
        file.suspect(
            "expected a newline after the last vector; found none. Its last "
            "number may be cut: if the file is whole, end the line.",
            line,
        )
    return dim


def _check_length(row, dim, line, file):
    """Reports a line whose vector is shorter or longer than the first."""
    spaces = row.count(b" ")
    if spaces == dim and dim:
        return
    # Some files have words with spaces in them: `. . .` is one of GloVe's.
    name = row.rsplit(b" ", dim)[0] if spaces > dim else b""
    if name and not _is_number(name.split(b" ")[-1]):
        return
    file.report(
        f"expected a word and {dim or 'its'} numbers, with single spaces "
        f"between, as in the first row; found {spaces} numbers after "
        f"{shown(row.split(b' ')[0].decode('utf-8', errors='replace'))}. "
        "Take the file from its source again.",
        line,
    )


def _parse(fields, line, name, file):
    try:
        for field in fields:
            if b"_" in field:  # Python would read 1_0 as 10.
                raise InputError(shown(field.decode("latin-1")))
        with np.errstate(over="ignore"):
            return np.array([float(field) for field in fields], np.float32)
    except ValueError as error:
        file.report(
            f"the vector of {shown(name)}: expected numbers; found {error}.",
            line,
        )
        raise


def _word(content, between, place, file):
    """Returns a word of a binary file; reports one that bytes were lost of.

    Args:
        content: bytes from the vector before up to the space.
        between: what stands between a vector and a word in this file.
        place: how a message calls the word.
        file: the `CheckedFile`.
    """
    name = content.removeprefix(between)
    if b"\n" in name or not content.startswith(between):
        expected = (
            "a newline before the word alone" if between else "no newline"
        )
        file.report(
            f"{place}: expected {expected}, as before the others; found "
            f"{shown(content)}. Bytes were lost or added: copy or download "
            "the file again."
        )
    return name.decode("utf-8", errors="replace")


def _read_binary(stream, file, found, header, progress):
    """Reads `word SPACE floats` records; returns the dimension."""
    count, dim = header
    size = os.fstat(stream.fileno()).st_size
    least = count * (4 * dim + 2)
    if size < least:
        file.report(
            f"expected {count} vectors of {dim} numbers, as the header says, "
            f"which take at least {least} bytes; found {size}. The file is "
            "truncated or its header wrong: copy or download it again.",
            1,
        )
    start, between = stream.tell(), b""
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for number in range(1, count + 1):
            space = content.find(b" ", start, start + MOST_WORD_BYTES)
            end = space + 1 + 4 * dim
            if space < 0 or end > size:
                file.report(
                    f"word {number} of {count}: expected a word, a space and "
                    f"{dim} floats; found "
                    f"{'the end of the file' if end > size else 'no word'}. "
                    "The file is truncated or its header wrong: copy or "
                    "download it again."
                )
            place = f"word {number} of {count}"
            name = _word(content[start:space], between, place, file)
            wanted = found.offers(name)
            if wanted is not None:
                row = np.frombuffer(content[space + 1 : end], "<f4")
                row = row.astype(np.float32)
                found.add(name, wanted, row, number, file)
            progress(end - start)
            start = end
            if number == 1 < count and content[end : end + 1] == b"\n":
                between = b"\n"
        if content[start : start + MOST_WORD_BYTES].strip():
            file.report(
                f"expected {count} vectors of {dim} numbers, as the header "
                "says; found more after them. Its header is wrong: copy or "
                "download the file again.",
                1,
            )
    return dim
