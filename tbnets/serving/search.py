"""Search with an exported network: ranks images for sentences or images.

The search uses a `served.Served`, so that its results are equal to those from
TensorFlow Serving.
"""

import numpy as np

from tbnets.checks import check_finite, refuse_single
from tbnets.data.images import BrokenImageError
from tbnets.errors import InputError
from tbnets.files import readable
from tbnets.progress import progress_bar
from tbnets.serving.search_index import SearchIndex
from tbnets.text.vocabulary import split_words

BATCH_SIZE = 256
PHOTO_BATCH_SIZE = 32
"""Larger batches are not faster on a CPU, and each photo takes memory."""
NO_WORD = "no word of this is known"


def embed(embed_batch, rows, what, batch_size=BATCH_SIZE):
    """Embeds rows in batches, with a progress bar if it takes long.

    Args:
        embed_batch: function from some of the rows to `[n, embedding_dim]`; it
            is also called for empty rows.
        rows: list or array.
        what: unit for the bar, for example "image".
        batch_size: number of rows embedded at once.

    Returns:
        float32 `[len(rows), embedding_dim]`.

    Raises:
        ValueError: If an embedding is not finite.
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
    """Finds the best candidates of each query.

    Args:
        similarities: float32 `[q, n]`, larger is better.
        top: number of results, limited to `n`.

    Returns:
        `(order, similarities)`, each `[q, min(top, n)]`, best first; the first
        of equal candidates comes first.
    """
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(similarities, order, axis=1)


def notes_on(model, queries):
    """Finds the words of sentences that the network does not know.

    Args:
        model: a `Served`.
        queries: list of sentences.

    Returns:
        list with `(words, note)` for each query: the unknown words, and a note
        on the words, which may be ""; `NO_WORD` if all words are unknown.
    """
    if model.vocabulary is None:
        return [([], "")] * len(queries)
    known = {word.encode() for word in model.vocabulary.words}
    found = []
    for words in split_into_words(queries):
        unknown = [word.decode() for word in words if word not in known]
        note = f"unknown words: {', '.join(unknown)}" if unknown else ""
        found.append((unknown, note if len(unknown) < len(words) else NO_WORD))
    return found


def split_into_words(texts):
    """Returns the words of texts, as the network's tokeniser splits them."""
    return split_words(list(texts)).to_list() if len(texts) else []


def find_hits(queries, captions, caption_to_image):
    """Finds the images with a caption that contains a query.

    A caption contains a query if it has all words of the query in their order;
    other words may be between them.

    Args:
        queries: list of sentences.
        captions: sequence of strings.
        caption_to_image: int `[len(captions)]`, row of the image.

    Returns:
        list with a dict for each query, row of an image -> its first caption
        that contains the query; None for a query that no caption contains,
        since its correct images are unknown.
    """
    told = split_into_words(captions)
    hits = []
    for wanted in split_into_words(queries):
        found = {}
        for caption, image, words in zip(captions, caption_to_image, told):
            if wanted and _in_order(wanted, words):
                found.setdefault(int(image), caption)
        hits.append(found or None)
    return hits


def _in_order(wanted, words):
    """Returns whether the wanted words occur in this order."""
    rest = iter(words)
    return all(word in rest for word in wanted)


def format_answers(title, similarities, answers, hits=None):
    """Returns one query's table.

    Args:
        title: the first line.
        similarities: k floats, best first.
        answers: k strings.
        hits: k bools, which get a column; None for no column.
    """
    head, marks = "", [""] * len(answers)
    if hits is not None:
        head, marks = "   hit", ["   yes" if hit else "    no" for hit in hits]
    lines = [title, f" rank  similarity{head}  answer"]
    rows = zip(similarities, marks, answers)
    for rank, (similarity, mark, answer) in enumerate(rows, start=1):
        lines.append(f"{rank:5d}  {similarity:10.3f}{mark}  {readable(answer)}")
    return "\n".join(lines)


def embed_examples(model, images):
    """Embeds images to search with; all of them must be photos.

    Args:
        model: a `Served`.
        images: as in `Served.embed_images`.

    Raises:
        BrokenImageError: an image is not a photo; the message names the image.
    """
    if model.takes_photos:
        refuse_single("like", images)
    embeddings, reasons = model.try_images(images)
    for image, reason in zip(images, reasons):
        if reason:
            raise BrokenImageError(image, reason)
    check_finite("image embeddings", embeddings)
    return embeddings


def rank(model, queries, like, embeddings, top):
    """Ranks images for sentences, then for images.

    Args:
        model: a `Served` that takes captions.
        queries: as in `Served.embed_text`.
        like: as in `Served.embed_images`; both may be empty.
        embeddings: float32 `[n, embedding_dim]` of the candidates, or a
            `SearchIndex` of them.
        top: number of results for each query.

    Returns:
        `(order, similarities)`, as `best` returns them.

    Raises:
        ValueError: the model's embeddings do not compare images.
    """
    if len(like) and model.has("compare"):
        raise InputError(
            "like",
            "be called on a network whose embeddings have cosines",
            f"{model.path}, which learned to compare images with texts alone",
            "Take an embedding network, or ask by sentences.",
        )

    def closest(rows, similarities):
        if isinstance(embeddings, SearchIndex):
            learned = model.compare if model.has("compare") else None
            return embeddings.search(rows, top, learned)
        return best(similarities(rows), top)

    found = []
    if len(queries) or not len(like):
        texts = embed(model.embed_text, queries, "query")
        found.append(closest(texts, lambda x: model.compare(embeddings, x).T))
    if len(like):
        examples = embed_examples(model, like)
        found.append(closest(examples, lambda x: x @ embeddings.T))
    return tuple(map(np.concatenate, zip(*found)))


def titles_of(queries, notes):
    """Returns each sentence with its note from `notes_on`."""
    return [
        f'"{query}"' + (f" ({note})" if note else "")
        for query, (_, note) in zip(queries, notes)
    ]


def format_tables(titles, ids, order, similarities, hits=None):
    """Returns a table for every query.

    Args:
        titles: titles from `titles_of`.
        ids: ids of the images.
        order: rows from `rank`.
        similarities: similarities from `rank`.
        hits: list with a dict for each query, row of a correct image -> text
            shown in place of its id; None for a query, or for all, if the
            correct images are unknown.
    """
    tables = []
    for title, rows, values, right in zip(
        titles, order, similarities, hits or [None] * len(titles)
    ):
        title += f" among {len(ids)} images"
        if right is not None:
            title += f", hits: {len(right)}"
        marks = None if right is None else [row in right for row in rows]
        answers = [(right or {}).get(row, ids[row]) for row in rows]
        tables.append(format_answers(title, values, answers, marks))
    return "\n\n".join(tables)


def answers_record(kind, names, rows, similarities):
    """Returns the results of one query in the form of the JSON output.

    Args:
        kind: name of a result, "image" or "caption".
        names: names of the candidates.
        rows: ints `[k]`, rows of the results, best first.
        similarities: float32 `[k]`.
    """
    return [
        {kind: names[row], "similarity": float(similarity)}
        for row, similarity in zip(rows, similarities)
    ]


def regions_record(phrases, notes, found):
    """Returns the regions found for phrases in the form of the JSON output.

    Args:
        phrases: list of strings.
        notes: notes from `notes_on`.
        found: regions from `Served.find`.
    """
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
        for phrase, (unknown, note), regions in zip(phrases, notes, found)
    ]
