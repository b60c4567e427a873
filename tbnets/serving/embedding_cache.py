"""Embeds the photos in a folder, and caches the embeddings.

The cache, by default in FOLDER.tbnets, is described in `features.cache`.
"""

import concurrent.futures
import errno
import functools
import hashlib
import os
import pathlib

import numpy as np

from tbnets import files
from tbnets.data import pictures
from tbnets.data.photos import left_out_lines, sort_files
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tbnets.features import cache as caches
from tbnets.progress import progress_bar, say
from tbnets.serving.checksums import identity_of

PHOTO_BATCH_SIZE = 32
"""Larger batches are not faster on a CPU and need more memory."""
PHOTOS_AT_ONCE = 256
"""Number of photos embedded between two writes. A killed process loses at most
this many embeddings."""
HELD_BYTES = 2**28
"""Maximum size in bytes of the encoded photos in memory. Photos that are
neither JPEG nor PNG are converted to PNG, which is large."""
AT_ONCE = 2
"""Number of batches that are embedded in parallel to keep all cores busy."""


def embed_folder(model, folder, cache=None, fault_of_name=lambda name: ""):
    """Embeds the photos of a folder, reusing embeddings in the cache.

    Files that are not photos are reported on standard error.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, including subfolders.
        cache: folder of the cache; None for FOLDER.tbnets next to `folder`,
            False for no cache.
        fault_of_name: function that takes the relative path of a photo and
            returns "" or a reason to leave the photo out.

    Returns:
        `(ids, embeddings)`: the photos' paths relative to the folder, and their
        embeddings, float32 `[n, embedding_dim]`.

    Raises:
        ValueError: no file is a valid photo.
    """
    paths, left_out = sort_files(folder)
    cache = EmbeddingCache(cache, model, folder)
    return embed_photos(model, folder, paths, left_out, cache, fault_of_name)


def embed_photos(
    model,
    folder,
    paths,
    left_out=(),
    cache=None,
    fault_of_name=lambda name: "",
):
    """Embeds listed photos of a folder, like `embed_folder`.

    `paths` maps the name of each file to its `pathlib.Path` or `os.DirEntry`.
    `left_out` lists other files to report. `cache` is an `EmbeddingCache` or
    None.
    """
    cache = cache or EmbeddingCache()
    new = [name for name, path in paths.items() if not cache.finds(name, path)]
    starts = range(0, len(new), PHOTO_BATCH_SIZE)
    batches = [new[at : at + PHOTO_BATCH_SIZE] for at in starts]
    embed = functools.partial(try_photos, model, paths, cache)
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        with progress_bar(len(new), "embedding", " photos") as bar:
            for batch, results in zip(batches, pool.map(embed, batches)):
                cache.add(paths, *results)
                cache.save(is_last=False)
                bar.update(len(batch))
    except KeyboardInterrupt:
        if cache.save():
            _note("interrupted; the embeddings are saved, the next run resumes")
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        cache.save()
    rows, reasons = cache.get(paths)
    reasons = {n: reasons.get(n) or fault_of_name(n) for n in paths}
    broken = {pathlib.Path(paths[n]): why for n, why in reasons.items() if why}
    for line in left_out_lines(broken, left_out, len(paths) + len(left_out)):
        _note(line)
    if len(broken) == len(paths):
        raise InputError("images", "contain a valid photo", folder)
    rows = {n: row for n, row in rows.items() if not reasons[n]}
    # Much faster than `np.stack` for many rows.
    return list(rows), np.concatenate([*rows.values()]).reshape(len(rows), -1)


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


class EmbeddingCache:
    """The embeddings of the photos in a folder, in memory and on disk.

    `cache` is as in `embed_folder`. Embeddings from a server are not saved,
    because the server may later use another model.
    """

    def __init__(self, cache=False, model=None, folder=""):
        self._keys, self._results, self._unreadable = {}, {}, {}
        self._unsaved, self._store = [], None
        can_save = cache is not False and os.path.isdir(model.path)
        self._cache = files.folder_beside(folder, cache) if can_save else None
        self._folder, self._files = folder, caches.FileKeys(self._cache)
        if can_save:
            self._made_by = identity_of(model)
            self._store = caches.store_folder(
                self._cache, "embeddings", self._made_by
            )
            store = caches.open_cached(self._store, self._made_by)
            if store is not None:
                rows = store.take(range(len(store)))
                self._results = dict(zip(store.ids, rows))
                self._results |= caches.lasting_faults(store)

    def __contains__(self, key):
        return key in self._results

    def finds(self, name, path):
        """Returns whether the result of an unchanged file is known."""
        key = self._keys[name] = self._files.find(path)
        return key in self

    def add(self, paths, keys, results, unreadable):
        """Adds what `try_photos` returned. `paths` maps names to paths."""
        for name, key in keys.items():
            self._files.add(paths[name], key)
        self._keys |= keys
        self._unreadable |= unreadable
        self._unsaved += [key for key in results if key not in self]
        self._results |= results

    def get(self, names):
        """Returns ({name: embedding}, {name: reason}) of the files in `names`.

        Files that were not read yet are in neither.
        """
        rows, reasons = {}, {}
        for name in names:
            result = self._results.get(self._keys.get(name))
            result = self._unreadable.get(name) if result is None else result
            if isinstance(result, str):
                reasons[name] = result
            elif result is not None:
                rows[name] = result
        return rows, reasons

    def save(self, is_last=True):
        """Writes new embeddings, if they are many or the last ones.

        Returns whether the cache is writable.
        """
        is_due = is_last or len(self._unsaved) >= PHOTOS_AT_ONCE
        if self._store and is_due:
            try:
                self._write(is_last)
            except OSError as error:
                _note(
                    f"note: the embeddings are not saved in {self._store}: "
                    f"{os.strerror(error.errno or errno.EIO)}. Choose another "
                    "folder with --cache."
                )
                self._store = None
        return bool(self._store)

    def _write(self, is_last):
        if self._unsaved:
            files.make_folder_of(self._folder, self._cache)
            dim = self._made_by["embedding_dim"]
            with (
                caches.written_alone(self._store),
                FeatureWriter(self._store, self._made_by, dim) as writer,
            ):
                new = [x for x in self._unsaved if x not in writer.done]
                results = {key: self._results[key] for key in new}
                failed = {k: x for k, x in results.items() if type(x) is str}
                ids = [key for key in new if key not in failed]
                rows = np.array([results[x] for x in ids], np.float32)
                writer.add(ids, rows.reshape(-1, dim), failed=failed)
                if is_last:
                    writer.finish()
        self._unsaved = []
        self._files.save()
