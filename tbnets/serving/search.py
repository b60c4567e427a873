"""Search with an exported network: what answers a sentence or an image best.

Works on a `served.Served`, so that it sees what TensorFlow Serving
would.
"""

import sys
from typing import NamedTuple

import numpy as np
import tqdm

from tbnets import images
from tbnets.errors import InputError
from tbnets.files import readable
from tbnets.progress import progress_bar
from tbnets.text.vocabulary import split_words

BATCH_SIZE = 256
PHOTO_BATCH_SIZE = 32
"""Larger ones are no faster on a CPU, and take memory for each photo."""


def embed(embed_batch, rows, what, batch_size=BATCH_SIZE):
    """Embeds rows in batches, with a progress bar where it takes long.

    Args:
        embed_batch: function from some of the rows to `[n, embedding_dim]`.
        rows: list or array; of none the function is asked too.
        what: unit for the bar, for example "image".
        batch_size: rows embedded at once.

    Returns:
        float32 `[len(rows), embedding_dim]`.

    Raises:
        ValueError: If an embedding is not finite.
    """
    parts = []
    with progress_bar(len(rows), "embedding", what) as bar:
        for start in range(0, max(1, len(rows)), batch_size):
            parts.append(embed_batch(rows[start : start + batch_size]))
            bar.update(len(rows[start : start + batch_size]))
    embeddings = np.concatenate(parts)
    check_finite(embeddings, what)
    return embeddings


def check_finite(embeddings, what, names=None):
    """Refuses embeddings that are no numbers, of which any rank would lie.

    Args:
        embeddings: float32 `[n, embedding_dim]`.
        what: what a row is, for example "image".
        names: what to call the rows; their numbers if None.

    Raises:
        ValueError: NaN or infinity is among them.
    """
    if not np.isfinite(embeddings).all():
        bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        first = f"row {bad[0]}" if names is None else names[bad[0]]
        raise InputError(
            f"`{what}` embeddings must be finite. Received: NaN or infinity in "
            f"{len(bad)} of {len(embeddings)}, first in {first}. Check the "
            "features, or use another checkpoint."
        )


class PhotoBatch(NamedTuple):
    """Some files that should be photos, embedded.

    Args:
        photos: paths of those that are.
        embeddings: float32 `[len(photos), embedding_dim]`.
        refused: path -> what is wrong with the content of the file, a few
            words after "which".
        unread: path -> why the file could not even be read.
    """

    photos: list
    embeddings: np.ndarray
    refused: dict
    unread: dict


def embed_files(model, paths, batch_size=PHOTO_BATCH_SIZE):
    """Embeds files that should be photos, each of them decoded once.

    The model itself tells what a photo is. There is a progress bar where it
    takes long.

    Args:
        model: a `Served` that takes photos.
        paths: list of `pathlib.Path`.
        batch_size: photos embedded at once.

    Yields:
        A `PhotoBatch` for each `batch_size` of the files, in order.

    Raises:
        ValueError: an embedding is not finite.
    """
    with progress_bar(len(paths), "embedding the photos", "photo") as bar:
        for start in range(0, len(paths), batch_size):
            yield _embed_some(model, paths[start : start + batch_size])
            bar.update(len(paths[start : start + batch_size]))


def _embed_some(model, paths):
    """Returns the `PhotoBatch` of some files."""
    contents, unread = {}, {}
    for path in paths:
        try:
            contents[path] = images.read_content(path)
        except images.BrokenImageError as error:
            unread[path] = error.reason
    embeddings, reasons = model.try_images(list(contents.values()))
    told = dict(zip(contents, reasons))
    photos = [path for path, reason in told.items() if not reason]
    refused = {path: reason for path, reason in told.items() if reason}
    embeddings = embeddings[np.array(reasons, object) == ""]
    check_finite(embeddings, "image", photos)
    return PhotoBatch(photos, embeddings, refused, unread)


def embed_photos(model, folder, paths, batch_size=PHOTO_BATCH_SIZE):
    """Embeds photos of a folder, leaving out files that are none.

    Those left out are told on standard error with the reason, and counted.
    `index.embed_folder` also keeps what it embeds.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos.
        paths: which of its files.
        batch_size: photos embedded at once.

    Returns:
        `(ids, embeddings)`: paths relative to the folder, and float32 `[n,
        embedding_dim]`.

    Raises:
        ValueError: no file is a photo.
    """
    batches = list(embed_files(model, paths, batch_size))
    left_out = {}
    for batch in batches:
        left_out.update(batch.refused)
        left_out.update(batch.unread)
    tell_left_out(left_out, len(paths), folder)
    ids = [
        path.relative_to(folder).as_posix()
        for batch in batches
        for path in batch.photos
    ]
    parts = [batch.embeddings for batch in batches if batch.photos]
    return ids, np.concatenate(parts)


def tell_left_out(left_out, count, folder):
    """Tells on standard error which files of a folder are no photos.

    Args:
        left_out: dict, path -> what is wrong with it, a few words after
            "which".
        count: number of files that should be photos.
        folder: folder of the files.

    Raises:
        ValueError: none of them is a photo.
    """
    for path, reason in left_out.items():
        note(f"left out: {path}, which {reason}")
    if left_out:
        note(f"{len(left_out)} of {count} files left out")
    if len(left_out) == count:
        raise InputError(
            "`--images` must hold a photo that can be decoded. Received: "
            f"--images={folder}, where none can. See the reasons above."
        )


def note(text):
    """Prints a line on standard error, beside any progress bar."""
    tqdm.tqdm.write(readable(text), file=sys.stderr)


def best(similarities, top):
    """Finds the best candidates of each query.

    Args:
        similarities: float32 `[q, n]`, larger is better.
        top: number of answers, at most `n` of which there are.

    Returns:
        `(order, similarities)`, each `[q, min(top, n)]`, best first; of equal
        candidates the first one comes first.
    """
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :top]
    return order, np.take_along_axis(similarities, order, axis=1)


def unknown_words(model, query):
    """Returns the words of a query that the network does not know."""
    if model.vocabulary is None:
        return []
    words = split_words([query]).flat_values.numpy()
    words = [word.decode("utf-8") for word in words]
    return [word for word in words if word not in model.vocabulary.words]


def unknown_note(model, query):
    """Returns "" or which words of a query the network does not know."""
    unknown = ", ".join(unknown_words(model, query))
    return f"unknown words: {unknown}" if unknown else ""


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
        lines.append(
            f"{place + 1:5d}  {similarity:10.3f}{mark}  {readable(answer)}"
        )
    return "\n".join(lines)


def answer_queries(model, queries, ids, embeddings, top, hits=None):
    """Ranks images for sentences.

    Args:
        model: a `Served` that takes captions.
        queries: list of sentences.
        ids: the images' ids.
        embeddings: float32 `[len(ids), embedding_dim]` of the images.
        top: number of answers for each.
        hits: list with a dict for each query, row of an image that answers
            it -> what stands there for its id; None, or None for a query,
            where nobody knows.

    Returns:
        `(text, order, similarities)`: a table a query, and what `best`
        returns.
    """
    texts = embed(model.embed_text, queries, "query")
    order, similarities = best(model.compare(embeddings, texts).T, top)
    tables = []
    for query, rows, values, right in zip(
        queries, order, similarities, hits or [None] * len(queries)
    ):
        note = unknown_note(model, query)
        note = f" ({note})" if note else ""
        title = f'"{query}"{note} among {len(ids)} images'
        if right is not None:
            title += f", hits: {len(right)}"
        told = {**dict(enumerate(ids)), **(right or {})}
        marks = None if right is None else [row in right for row in rows]
        answers = [told[row] for row in rows]
        tables.append(format_answers(title, values, answers, marks))
    return "\n\n".join(tables), order, similarities
