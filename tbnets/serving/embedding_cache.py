"""Embeds the photos in a folder, and caches the embeddings.

The cache, by default in FOLDER.tbnets, is described in `features.cache`.
"""

import concurrent.futures
import errno
import functools
import hashlib
import os
import pathlib
import shutil
import tempfile
import weakref

import numpy as np

from tbnets import files
from tbnets.data import pictures
from tbnets.data.photos import left_out_lines, sort_files
from tbnets.errors import InputError
from tbnets.features import cache as caches
from tbnets.progress import say
from tbnets.serving.checksums import identity_of

PHOTO_BATCH_SIZE = 32
"""Larger batches are not faster on a CPU and need more memory."""
HELD_BYTES = 2**28
"""Maximum size in bytes of the encoded photos in memory. Photos that are
neither JPEG nor PNG are converted to PNG, which is large."""
AT_ONCE = 2
"""Number of batches that are embedded in parallel to keep all cores busy."""


def embed_folder(model, folder, cache=None, fault_of_name=lambda name: ""):
    """Embeds the photos of a folder, including subfolders.

    The arguments and the result are those of `EmbeddingCache` and its `embed`.
    """
    paths, left_out = sort_files(folder)
    saved = EmbeddingCache(model, folder, cache)
    return saved.embed(paths, left_out, fault_of_name)


class EmbeddingCache:
    """The embeddings of photos in a folder.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos.
        cache: folder of the cache; None for FOLDER.tbnets next to `folder`,
            False for no cache. Embeddings from a server are not saved, because
            the server may later use another model.

    Attributes:
        vectors: the `VectorCache` that contains them.
    """

    def __init__(self, model, folder, cache=False):
        self._model, self._folder, self._made_by = model, folder, {}
        self._temporary = pathlib.Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self._temporary, True)
        place = self._temporary
        if cache is not False and os.path.isdir(model.path):
            place = files.folder_beside(folder, cache)
            self._made_by = identity_of(model)
        self._use(place)

    def _use(self, place):
        self._place = place
        self.vectors = caches.VectorCache(place, "embeddings", self._made_by)

    def embed(self, paths, left_out=(), fault_of_name=lambda name: ""):
        """Embeds photos that are not in the cache.

        Files that are not photos are reported on standard error.

        Args:
            paths: dict from the name of each file to its `pathlib.Path` or
                `os.DirEntry`.
            left_out: list of other files to report.
            fault_of_name: function that takes the name of a photo and returns
                "" or a reason to leave the photo out.

        Returns:
            `(ids, embeddings)`: the photos' names, and their embeddings,
            float32 `[n, embedding_dim]`.

        Raises:
            ValueError: no file is a valid photo.
        """
        if paths:
            self._complete(paths)
        features = self.vectors.features()
        reasons = {x: features.failed.get(x) or fault_of_name(x) for x in paths}
        broken = {pathlib.Path(paths[x]): y for x, y in reasons.items() if y}
        count = len(paths) + len(left_out)
        for line in left_out_lines(broken, left_out, count):
            _note(line)
        ids = [name for name in paths if not reasons[name]]
        if not ids:
            raise InputError("images", "contain a valid photo", self._folder)
        return ids, features.take(features.rows(ids))

    def _complete(self, paths):
        vectors, model = self.vectors, self._model

        def load():
            return model.embedding_dim, functools.partial(_embed, model=model)

        try:
            files.make_folder_of(self._folder, self._place)
            vectors.complete(paths, "embedding", load)
        except OSError as error:
            if self._place == self._temporary:
                raise
            _note(
                f"note: the embeddings are not saved in {vectors.folder}: "
                f"{os.strerror(error.errno or errno.EIO)}. Choose another "
                "folder with --cache."
            )
            self._use(self._temporary)
            if vectors.folder.is_dir():
                shutil.copytree(vectors.folder, self.vectors.folder)
            self._complete(paths)


def _embed(photos, model, writer, **writing):
    photos, faults = caches.remaining(photos, writer), {}
    starts = range(0, len(photos), PHOTO_BATCH_SIZE)

    def embed(start):
        batch = photos[start : start + PHOTO_BATCH_SIZE]
        paths, results = dict(batch), []
        _, vectors, unreadable = try_photos(model, paths, (), paths)
        for photo in batch:
            key, result = photo[0], None
            # The content may have changed since its key was computed.
            vector = unreadable.get(key, vectors.get(key, pictures.CHANGED))
            if isinstance(vector, str):
                faults[photo] = vector
            else:
                result = {"features": vector[None]}
            results.append(result)
        return range(start, start + len(batch)), results

    def reasons(failed):
        return [faults[photo] for photo in failed]

    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        batches = pool.map(embed, starts)
        return caches.write_results(photos, writer, batches, reasons, **writing)
    finally:
        pool.shutdown(cancel_futures=True)


def try_photos(model, paths, cache, names, read=pictures.read_file):
    """Embeds the photos whose content is new.

    `paths[name]` is the photo that `read` reads for each of `names`. `cache`
    contains the keys of known contents: their SHA-256 digests in hexadecimal.
    Returns ({name: key}, {key: row or reason}, {name: reason} of the files that
    cannot be read).
    """
    keys, contents, results, unreadable = {}, {}, {}, {}
    for name in names:
        try:
            content = read(paths[name])
        except pictures.BrokenImageError as error:
            unreadable[name] = error.reason
            continue
        except OSError as error:  # Of a file on another machine.
            unreadable[name] = f"cannot be read: {error}"
            continue
        keys[name] = key = hashlib.sha256(content).hexdigest()
        if key not in cache:
            contents[key] = pictures.as_decodable(content)
        if sum(map(len, contents.values())) > HELD_BYTES:
            results |= _ask(model, contents)
            contents = {}
    return keys, results | _ask(model, contents), unreadable


def _ask(model, contents):
    if not contents:  # Convolutions on some CPUs reject an empty batch.
        return {}
    # The model decides which files are photos.
    rows, reasons = model.try_images(list(contents.values()))
    is_finite = np.isfinite(rows).all(axis=1)
    return {
        key: reason or (row if finite else pictures.NOT_FINITE)
        for key, row, reason, finite in zip(contents, rows, reasons, is_finite)
    }


def _note(text):
    say(files.readable(text))
