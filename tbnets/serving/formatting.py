"""Formats the results of searches as tables and as JSON values."""

from tbnets.files import readable


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
