"""Ranks images for query sentences or images, and formats the results."""

from typing import NamedTuple

import numpy as np

from tbnets.checks import check_finite, refuse_single
from tbnets.data.pictures import BrokenImageError
from tbnets.errors import InputError
from tbnets.files import readable
from tbnets.progress import progress_bar
from tbnets.serving.confidence import NEIGHBOURS

BATCH_SIZE = 256
PHOTO_BATCH_SIZE = 32
"""Larger batches are not faster on a CPU and need more memory."""
NO_WORD = "no word of this is known"
NOTHING_FITS = "nothing fits well, or many photos fit equally"


class Ranked(NamedTuple):
    """The best `k` results of each of `m` queries, best first.

    `order`, int `[m, k]`, contains the row indices of the results.
    `confidences` is NaN for query images, and if the model is not calibrated.
    """

    order: np.ndarray
    similarities: np.ndarray
    confidences: np.ndarray


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


def sentences_of(queries):
    """Returns the sentences in `queries` as strings, without other queries."""
    texts = [q.numpy() if hasattr(q, "numpy") else q for q in queries]
    return [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in texts
        if isinstance(text, str | bytes)
    ]


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


def format_answers(title, similarities, answers, hits=None, doubts=None):
    """Formats the answers to one query as a table headed by `title`.

    `hits` contains a bool for each answer. `doubts` is a pair: the confidences
    of the answers, and the limit below which an answer is marked as doubtful.
    """
    head, marks = "", [""] * len(answers)
    if doubts is not None and not np.isnan(doubts[0]).any():
        head = "  confidence "
        marks = [
            f"  {chance:10.2f}{'?' if chance < doubts[1] else ' '}"
            for chance in doubts[0]
        ]
    if hits is not None:
        head, marks = "   hit", ["   yes" if hit else "    no" for hit in hits]
    lines = [title, f" rank  similarity{head}  answer"]
    rows = zip(similarities, marks, answers)
    for rank, (similarity, mark, answer) in enumerate(rows, start=1):
        lines.append(f"{rank:5d}  {similarity:10.3f}{mark}  {readable(answer)}")
    return "\n".join(lines)


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

    If the model is calibrated, also computes confidences for sentences with a
    known word.

    Args:
        model: a `Served` that takes captions.
        queries: sentences; may be empty.
        like: query images; must be empty if the model has a learned similarity.
        embeddings: float32 `[n, embedding_dim]` of the candidates, or a
            `SearchIndex`.
        top: number of results for each query.
    """
    if len(like) and model.has("compare"):
        raise InputError(
            "like",
            "be used only with a network that compares images by cosine",
            f"{model.path}, which has a learned similarity",
            "Use an embedding network, or search with sentences.",
        )

    def closest(rows, confidence=None):
        wide = top if confidence is None else max(top, NEIGHBOURS)
        if isinstance(embeddings, np.ndarray):
            order, values = best(model.compare(embeddings, rows).T, wide)
        else:
            learned = model.compare if model.has("compare") else None
            order, values = embeddings.search(rows, wide, learned)
        order = order[:, :top]
        chances = np.full(order.shape, np.nan, np.float32)
        if confidence is not None and order.size:
            chances = _chances(confidence, embeddings, order, values)
        return order, values[:, :top], chances

    results = []
    if len(queries) or not len(like):
        texts = embed(model.embed_text, queries, "query")
        results.append(closest(texts, model.confidence))
        if model.confidence is not None:
            notes = notes_on(model, sentences_of(queries))
            unknown = [note == NO_WORD for _, note in notes]
            results[0][2][unknown] = np.nan
    if len(like):
        results.append(closest(embed_examples(model, like)))
    return Ranked(*map(np.concatenate, zip(*results)))


def _chances(confidence, embeddings, order, values):
    rows, places = np.unique(order, return_inverse=True)
    is_array = isinstance(embeddings, np.ndarray)
    photos = embeddings[rows] if is_array else embeddings.take(rows)
    levels = confidence.levels(photos)[places.reshape(order.shape)]
    return confidence.probabilities(values, levels, len(embeddings))


def add_doubts(notes, chances, limit):
    """Adds `NOTHING_FITS` to the notes of queries without a likely result.

    `chances`, `[m, k]`, contains the confidence of each result, or NaN if it is
    unknown. `limit` is the lowest confidence of a likely result.
    """
    results = []
    for (unknown, note), values in zip(notes, chances):
        is_doubtful = len(values) and (values < limit).all()
        parts = [note, NOTHING_FITS if is_doubtful else ""]
        results.append((unknown, "; ".join(filter(None, parts))))
    return results


def titles_of(queries, notes):
    """Returns each sentence with its note, if any."""
    return [
        f'"{query}"' + (f" ({note})" if note else "")
        for query, (_, note) in zip(queries, notes)
    ]


def format_tables(titles, ids, ranked, hits=None, limit=0):
    """Formats the results of each query as a table.

    `titles`, `ranked` and `hits` are results of `titles_of`, `rank` and
    `find_hits`. Hits are shown by their captions instead of their ids. Results
    with a confidence below `limit` are marked as doubtful.
    """
    tables = []
    for title, rows, values, chances, right in zip(
        titles, *ranked, hits or [None] * len(titles)
    ):
        title += f" among {len(ids)} images"
        if right is not None:
            title += f", hits: {len(right)}"
        marks = None if right is None else [row in right for row in rows]
        answers = [(right or {}).get(row, ids[row]) for row in rows]
        doubts = chances, limit
        tables.append(format_answers(title, values, answers, marks, doubts))
    return "\n\n".join(tables)


def answers_record(kind, names, rows, similarities, confidences=()):
    """Returns the results of one query as JSON values.

    `kind` is the key for a result's name: "image" or "caption". `names`
    contains the names of all candidates, and `rows` the indices of the results,
    best first. NaN and missing confidences are omitted.
    """
    records = [
        {kind: names[row], "similarity": float(similarity)}
        for row, similarity in zip(rows, similarities)
    ]
    for record, confidence in zip(records, confidences):
        if not np.isnan(confidence):
            record["confidence"] = float(confidence)
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
