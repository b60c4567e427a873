"""Ranks images for query sentences or query images."""

import os
import pathlib
import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tbnets.checks import (
    Path,
    Photos,
    as_numbers,
    check_finite,
    checked_number,
    refuse_single,
)
from tbnets.data.pictures import KINDS, BrokenImageError
from tbnets.errors import InputError
from tbnets.progress import progress_bar
from tbnets.serving.checksums import identity_of
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE, embed_folder

if TYPE_CHECKING:
    from tbnets.serving.inputs import Inputs, Texts
    from tbnets.serving.search_index import SearchIndex

from tbnets.files import readable

BATCH_SIZE = 256
NO_WORD = "no word of this is known"
LIKELY = "likely_similarities"
"""Key in a model's metadata of [number of photos, similarity] pairs: the
similarity that 80 % of the right first results exceed among so many photos."""
_FUNCTION_WORDS = frozenset(
    "a an and are as at be by for from has have he her his in into is it its "
    "of on or over s she that the their them then there they this to under up "
    "was were while who with".split()
)


class Ranked(NamedTuple):
    """The best `k` results of each of `m` queries, best first.

    `order`, int `[m, k]`, contains the row indices of the results. `doubtful`
    is as in `are_doubtful`, and False for query images.
    """

    order: np.ndarray
    similarities: np.ndarray
    doubtful: np.ndarray


def embed(embed_batch, rows, what, batch_size=BATCH_SIZE):
    """Embeds rows in batches, with a progress bar.

    `embed_batch` maps a batch of `n` rows to embeddings `[n, embedding_dim]`.
    `what`, such as "image", names a row in the progress bar and in errors.
    Raises ValueError if an embedding is not finite.
    """
    parts = []
    with progress_bar(len(rows), "embedding", what) as bar:
        for start in range(0, len(rows), batch_size):
            parts.append(embed_batch(rows[start : start + batch_size]))
            bar.update(len(parts[-1]))
    embeddings = np.concatenate(parts or [embed_batch(rows)])
    check_finite(f"{what} embeddings", embeddings)
    return embeddings


def best(similarities, top):
    """Finds the `top` best candidates for each query; larger is better.

    Returns `(order, similarities)`: candidate indices and their similarities,
    both `[num_queries, min(top, num_candidates)]`, best first. Ties are sorted
    by candidate.
    """
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(similarities, order, axis=1)


def notes_on(model, queries):
    """Finds the words of sentences that are not in the model's vocabulary.

    Returns `(unknown_words, note)` for each sentence. The note is "" if all
    words are known, and `NO_WORD` if no word is known.
    """
    if model.vocabulary is None:
        return [([], "")] * len(queries)
    known, notes = set(model.vocabulary.words), []
    for words in model.vocabulary.split(queries):
        unknown = [word for word in words if word not in known]
        note = f"unknown words: {', '.join(unknown)}" if unknown else ""
        notes.append((unknown, note if len(unknown) < len(words) else NO_WORD))
    return notes


def are_doubtful(model, queries, similarities, num_photos):
    """Returns which results of sentences are doubtful, bool `[m, k]`.

    A result is doubtful if its similarity is lower than that of most right
    first results among `num_photos` photos, or if a content word of its
    sentence is unknown. The similarities in `LIKELY` are interpolated, because
    they grow with the logarithm of the number of photos.
    """
    least, pairs = -np.inf, model.metadata.get("metadata", {}).get(LIKELY)
    if pairs:
        sizes, values = np.transpose(pairs)
        least = np.interp(np.log(max(num_photos, 1)), np.log(sizes), values)
    doubtful = similarities < least
    for row, (words, note) in enumerate(notes_on(model, sentences_in(queries))):
        if note == NO_WORD or set(words) - _FUNCTION_WORDS:
            doubtful[row] = True
    return doubtful


def sentences_in(queries):
    """Returns the sentences in `queries` as strings, without other queries."""
    texts = [q.numpy() if hasattr(q, "numpy") else q for q in queries]
    return [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in texts
        if isinstance(text, str | bytes)
    ]


def embed_examples(model, images):
    """Embeds query images, all of which must be valid photos."""
    if model.takes_photos:
        refuse_single("like", images)
    embeddings, reasons = model.try_images(images)
    for image, reason in zip(images, reasons):
        if reason:
            raise BrokenImageError(image, reason)
    check_finite("image embeddings", embeddings)
    return embeddings


def rank(model, queries, like, embeddings, top):
    """Ranks images for sentences, then for query images; returns `Ranked`.

    Args:
        model: a `Served` that takes captions.
        queries: sentences; may be empty.
        like: query images; must be empty if the model has a learned similarity.
        embeddings: float32 `[n, embedding_dim]` of the candidates, or a
            `SearchIndex`.
        top: number of results for each query.
    """
    if len(like) and model.has("compare"):
        expected = "be used only with a network that compares by cosine"
        raise InputError("like", expected, model.path)

    def closest(rows):
        if isinstance(embeddings, np.ndarray):
            return best(model.compare(embeddings, rows).T, top)
        learned = model.compare if model.has("compare") else None
        return embeddings.search(rows, top, learned)

    results = []
    if len(queries) or not len(like):
        order, values = closest(embed(model.embed_text, queries, "query"))
        count = len(embeddings)
        doubtful = are_doubtful(model, queries, values, count)
        results.append((order, values, doubtful))
    if len(like):
        order, values = closest(embed_examples(model, like))
        results.append((order, values, np.zeros(order.shape, bool)))
    return Ranked(*map(np.concatenate, zip(*results)))


class Answer(NamedTuple):
    """A result of a search.

    Attributes:
        image: path of the photo, or its id in a `SearchIndex`, or otherwise its
            row.
        similarity: similarity of the query and the image.
        is_doubtful: whether the similarity is low for a right result, or the
            query sentence has a content word that the model does not know.
    """

    image: str | int
    similarity: float
    is_doubtful: bool


def answer(image, similarity, is_doubtful):
    """Returns an `Answer` of Python numbers."""
    return Answer(image, float(similarity), bool(is_doubtful))


class PhotoSearch:
    """The methods that `served.Served` and `lite.Model` share."""

    signatures: Any = ()

    def has(self, *names: str) -> bool:
        """Returns whether the model has all endpoints in `names`."""
        return set(names) <= set(self.signatures)

    def compare(self: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Compares all embeddings of one side with all embeddings of the other.

        Args:
            first: float array `[n, embedding_dim]` for the first side in
                `similarity`.
            second: float array `[m, embedding_dim]` for the second side.

        Returns:
            float32 NumPy array `[n, m]`, as in `similarity`.

        Raises:
            ValueError: the arrays are not embeddings of this model.
        """
        shape = None, self.embedding_dim
        first = as_numbers("first", first, shape)
        second = as_numbers("second", second, shape)
        products = None if self.has("compare") else first @ second.T
        # A non-finite input makes the sum non-finite, and a sum is faster to
        # check.
        if products is None or not np.isfinite(products.sum(dtype=np.float64)):
            check_finite("first", first)
            check_finite("second", second)
        if products is None:
            return self._compare_learned(first, second)
        return products

    def similarity(self: Any, first: "Inputs", second: "Inputs") -> np.ndarray:
        """Compares all images with all texts, or all phrases with all regions.

        Args:
            first: `n` images as in `embed_images`; for phrase localization,
                phrases.
            second: `m` texts as in `embed_text`; for phrase localization,
                features of regions.

        Returns:
            float32 NumPy array `[n, m]` of cosines, or of the logits of a
            learned similarity.
        """
        if self.has("embed_phrases"):
            phrases, regions = self.embed_phrases(first), second
            return self.compare(phrases, self.embed_regions(regions))
        return self.compare(self.embed_images(first), self.embed_text(second))

    def embed_images(self: Any, images: Photos) -> np.ndarray:
        """Embeds images. Returns unit vectors, float32 `[n, embedding_dim]`.

        Args:
            images: list of `n` photos, each a path, the bytes of a file, a
                `PIL.Image.Image` or a uint8 array `[height, width, 3]`; or, if
                the model takes features, a float array `[n, feature_dim]`.

        Raises:
            ValueError: an item is not a photo.
        """
        embeddings, reasons = self.try_images(images)
        for row, reason in enumerate(reasons):
            if reason:
                received = f"images[{row}], which {reason}"
                raise InputError("images", f"be photos: {KINDS}", received)
        return embeddings

    def search(
        self: Any,
        queries: "Texts" = (),
        images: "Path | Photos | SearchIndex | None" = None,
        top: int = 5,
        *,
        like: Photos = (),
        cache: Path | Literal[False] | None = None,
    ) -> list[list[Answer]]:
        """Finds images that match sentences or are similar to query images.

        Warns if no word of a sentence is in the vocabulary.

        Args:
            queries: sentences, as in `embed_text`.
            images: images as in `embed_images`; a folder of photos; embeddings
                `[n, embedding_dim]` of photos; a `SearchIndex`; or None for the
                index inside the model.
            top: number of results for each query.
            like: query images, as in `embed_images`. Their results come last.
            cache: folder that caches the embeddings of a photo folder, so that
                the next search embeds only new and changed photos. None for
                FOLDER.tbnets next to the photo folder, False for no cache.

        Returns:
            list that contains, for each query, a list of `Answer`s, best first.

        Raises:
            ValueError: the model localizes phrases; or `like` is given and the
                model has a learned similarity.

        Example:
            model.search(["a dog in the snow"], "photos", top=3)
            model.search(images="photos", like=["dog.jpg"])
        """
        top = checked_number("top", top, 1, whole=True)
        for name, values in (("queries", queries), ("like", like)):
            if not (isinstance(values, np.ndarray) and values.ndim):
                refuse_single(name, values)
        if images is None and not len(like) and self.has("search"):
            _warn_of_unknown(self, queries)
            return self.search_own_index(queries, top)
        names, embeddings = _gallery(self, images, cache)
        _warn_of_unknown(self, queries)
        ranked = rank(self, queries, like, embeddings, top)
        return [
            [answer(names[row], *numbers) for row, *numbers in zip(*results)]
            for results in zip(*ranked)
        ]


def _warn_of_unknown(model, queries):
    sentences = sentences_in(queries)
    notes = notes_on(model, sentences)
    for sentence, (_, note) in zip(sentences, notes):
        if note == NO_WORD:
            text = f'the vocabulary contains no word of "{sentence}"'
            warnings.warn(f"{text}: its results are meaningless", stacklevel=3)


def _gallery(model, images, cache):
    # The module of `SearchIndex` imports TensorFlow.
    if hasattr(images, "check_embedded_by"):
        images.check_embedded_by(identity_of(model))
        return images.ids, images
    if isinstance(images, str | os.PathLike):
        folder = pathlib.Path(images)
        names, embeddings = embed_folder(model, folder, cache)
        return [str(folder / name) for name in names], embeddings
    if model.takes_photos and getattr(images, "ndim", 0) == 2:
        return range(len(images)), np.asarray(images)
    if not isinstance(images, np.ndarray):
        refuse_single("images", images)
    names = [
        os.fspath(image) if isinstance(image, str | os.PathLike) else row
        for row, image in enumerate(images)
    ]
    size = PHOTO_BATCH_SIZE if model.takes_photos else BATCH_SIZE
    return names, embed(model.embed_images, images, "image", size)


def find_hits(queries, captions, caption_to_image):
    """Finds the images with a caption that contains a query.

    A caption contains a query if it contains the query's words in the same
    order. Other words may be in between. For each query, returns a dict that
    maps the row of each matching image to its first matching caption. If no
    caption matches, the query's entry is None.
    """
    from tbnets.text.vocabulary import split_words  # Imports TensorFlow.

    all_words, hits = split_words(list(captions)).to_list(), []
    for query_words in split_words(list(queries)).to_list():
        images = {}
        for caption, image, words in zip(captions, caption_to_image, all_words):
            if query_words and _in_order(query_words, words):
                images.setdefault(int(image), caption)
        hits.append(images or None)
    return hits


def _in_order(query_words, words):
    remaining = iter(words)
    return all(word in remaining for word in query_words)


def format_answers(title, similarities, answers, hits=None, doubtful=()):
    """Formats the answers to one query as a table headed by `title`.

    `hits` and `doubtful` contain a bool for each answer. A doubtful similarity
    is marked with a question mark.
    """
    head, marks = "", [""] * len(answers)
    if any(doubtful):
        head, marks = " ", ["?" if doubt else " " for doubt in doubtful]
    if hits is not None:
        head, marks = "   hit", ["   yes" if hit else "    no" for hit in hits]
    lines = [title, f" rank  similarity{head}  answer"]
    rows = zip(similarities, marks, answers)
    for rank, (similarity, mark, answer) in enumerate(rows, start=1):
        lines.append(f"{rank:5d}  {similarity:10.3f}{mark}  {readable(answer)}")
    return "\n".join(lines)


def query_titles(queries, notes):
    """Returns each sentence with its note, if any."""
    return [
        f'"{query}"' + (f" ({note})" if note else "")
        for query, (_, note) in zip(queries, notes)
    ]


def format_tables(titles, ids, ranked, hits=None):
    """Formats the results of each query as a table.

    `titles`, `ranked` and `hits` are results of `query_titles`, `rank` and
    `find_hits`. Hits are shown by their captions instead of their ids.
    """
    tables = []
    for title, rows, values, doubtful, right in zip(
        titles, *ranked, hits or [None] * len(titles)
    ):
        title += f" among {len(ids)} images"
        if right is not None:
            title += f", hits: {len(right)}"
        marks = None if right is None else [row in right for row in rows]
        answers = [(right or {}).get(row, ids[row]) for row in rows]
        tables.append(format_answers(title, values, answers, marks, doubtful))
    return "\n\n".join(tables)


def answers_record(kind, names, rows, similarities, doubtful=()):
    """Returns the results of one query as JSON values.

    `kind` is the key for a result's name: "image" or "caption". `names`
    contains the names of all candidates, and `rows` the indices of the results,
    best first. `doubtful` contains a bool for each result, or is empty.
    """
    records = [
        {kind: names[row], "similarity": float(similarity)}
        for row, similarity in zip(rows, similarities)
    ]
    for record, is_doubtful in zip(records, doubtful):
        record["doubtful"] = bool(is_doubtful)
    return records


def regions_record(phrases, notes, results):
    """Returns regions from `Served.find` as JSON values."""
    return [
        {
            "phrase": phrase,
            "unknown_words": unknown,
            "note": note,
            "regions": [
                {"box": [float(edge) for edge in box], "similarity": similarity}
                for box, similarity in regions
            ],
        }
        for phrase, (unknown, note), regions in zip(phrases, notes, results)
    ]
