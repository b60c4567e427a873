"""Search with an exported network: what answers a sentence or an image best.

Works on a `served_model.ServedModel`, so that it sees what TensorFlow Serving
would.
"""

import sys

import numpy as np
import tqdm

from tbnets import images
from tbnets.text.vocabulary import split_words

BATCH_SIZE = 256


def embed(embed_batch, rows, what, batch_size=BATCH_SIZE):
    """Embeds rows in batches, with a progress bar where it takes long.

    Args:
        embed_batch: function from some of the rows to `[n, embedding_dim]`.
        rows: list or array, not empty.
        what: unit for the bar, for example "image".
        batch_size: rows embedded at once.

    Returns:
        float32 `[len(rows), embedding_dim]`.

    Raises:
        ValueError: If an embedding is not finite.
    """
    parts = []
    with tqdm.tqdm(
        total=len(rows), unit=what, leave=False, disable=None, delay=1
    ) as bar:
        for start in range(0, len(rows), batch_size):
            parts.append(embed_batch(rows[start : start + batch_size]))
            bar.update(len(rows[start : start + batch_size]))
    embeddings = np.concatenate(parts)
    if not np.isfinite(embeddings).all():
        bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        raise ValueError(
            f"`{what}` embeddings must be finite. Received: NaN or infinity in "
            f"{len(bad)} of {len(rows)}, first in row {bad[0]}. Check the "
            "features, or use another checkpoint."
        )
    return embeddings


def embed_photos(model, folder, paths=None, batch_size=BATCH_SIZE):
    """Embeds the photos of a folder, leaving out files that are none.

    Those left out are told on standard error with the reason, and counted.

    Args:
        model: a `ServedModel` that takes photos.
        folder: folder of photos.
        paths: which of its files; all photos below it if None.
        batch_size: photos embedded at once.

    Returns:
        `(ids, embeddings)`: paths relative to the folder, and float32 `[n,
        embedding_dim]`.

    Raises:
        ValueError: no file is a photo.
    """
    paths = paths or images.list_photos(folder)
    photos = _leave_out_broken(paths)
    if not photos:
        raise ValueError(
            "`--images` must hold a photo that can be decoded. Received: "
            f"--images={folder}, where none can. See the reasons above."
        )
    embeddings = embed(
        lambda some: model.embed_images([path.read_bytes() for path in some]),
        photos,
        "image",
        batch_size,
    )
    return [path.relative_to(folder).as_posix() for path in photos], embeddings


def _leave_out_broken(paths):
    """Returns the paths of photos; tells of the others."""
    photos = []
    with tqdm.tqdm(
        zip(paths, images.faults(paths)),
        total=len(paths),
        desc="looking at the photos",
        unit="image",
        leave=False,
        disable=None,
        delay=1,
    ) as bar:
        for path, reason in bar:
            if reason is None:
                photos.append(path)
            else:
                tqdm.tqdm.write(
                    f"left out: {path}, which {reason}", file=sys.stderr
                )
    if len(photos) < len(paths):
        count = len(paths) - len(photos)
        tqdm.tqdm.write(
            f"{count} of {len(paths)} files left out", file=sys.stderr
        )
    return photos


def rank(query_embeddings, candidate_embeddings, top):
    """Finds the best candidates of each query.

    Args:
        query_embeddings: float32 `[q, embedding_dim]`.
        candidate_embeddings: float32 `[n, embedding_dim]`.
        top: number of answers, at most `n` of which there are.

    Returns:
        `(order, similarities)`, each `[q, min(top, n)]`, best first; of equal
        candidates the first one comes first.
    """
    similarities = query_embeddings @ candidate_embeddings.T
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(similarities, order, axis=1)


def unknown_words(model, query):
    """Returns the words of a query that the network does not know."""
    if model.vocabulary is None:
        return []
    words = split_words([query]).flat_values.numpy()
    words = [word.decode("utf-8") for word in words]
    return [word for word in words if word not in model.vocabulary.words]


def split_into_words(texts):
    """Returns the words of each text, as the network's tokeniser cuts them."""
    return split_words(list(texts)).to_list() if len(texts) else []


def find_hits(queries, captions, caption_to_image):
    """Finds the images with a caption that says what a query says.

    A caption does when it has all words of the query in the query's order;
    others may stand between them.

    Args:
        queries: list of sentences.
        captions: sequence of strings.
        caption_to_image: int `[len(captions)]`, row of the image.

    Returns:
        list with a dict for each query, row of an image -> its first caption
        that says so; None for a query that no caption says, of which nobody
        knows what would be right.
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
    """Tells whether the wanted words occur one after the other."""
    rest = iter(words)
    return all(word in rest for word in wanted)


def format_answers(title, similarities, answers, hits=None):
    """Returns one query's table.

    Args:
        title: the first line.
        similarities: floats, best first.
        answers: as many strings.
        hits: as many bools, which get a column; None without.
    """
    head = "" if hits is None else "   hit"
    lines = [title, f" rank  similarity{head}  answer"]
    for place, (similarity, answer) in enumerate(zip(similarities, answers)):
        mark = ""
        if hits is not None:
            mark = "   yes" if hits[place] else "    no"
        lines.append(f"{place + 1:5d}  {similarity:10.3f}{mark}  {answer}")
    return "\n".join(lines)


def answer_queries(model, queries, ids, embeddings, top, hits=None):
    """Ranks images for sentences.

    Args:
        model: a `ServedModel` that takes captions.
        queries: list of sentences.
        ids: the images' ids.
        embeddings: float32 `[len(ids), embedding_dim]` of the images.
        top: number of answers for each.
        hits: list with a dict for each query, row of an image that answers
            it -> what stands there for its id; None, or None for a query,
            where nobody knows.

    Returns:
        `(text, order, similarities)`: a table a query, and what `rank`
        returns.
    """
    texts = embed(model.embed_text, queries, "query")
    order, similarities = rank(texts, embeddings, top)
    tables = []
    for query, rows, values, right in zip(
        queries, order, similarities, hits or [None] * len(queries)
    ):
        unknown = ", ".join(unknown_words(model, query))
        note = f" (unknown words: {unknown})" if unknown else ""
        title = f'"{query}"{note} among {len(ids)} images'
        if right is not None:
            title += f", hits: {len(right)}"
        told = {**dict(enumerate(ids)), **(right or {})}
        marks = None if right is None else [row in right for row in rows]
        answers = [told[row] for row in rows]
        tables.append(format_answers(title, values, answers, marks))
    return "\n\n".join(tables), order, similarities
