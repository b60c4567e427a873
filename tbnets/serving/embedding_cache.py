"""Embeds the photos in a folder, and caches the embeddings.

::

    photos.tbnets/embeddings/MODEL/*.photos

`MODEL` is a prefix of the digest that `identity.identity_of` returns. Cache
files have unique names and are never modified, so two searches can run at once.
After embedding all photos, a process merges the cache files that it has read.
"""

import concurrent.futures
import contextlib
import errno
import os
import pathlib
import uuid
from typing import NamedTuple

import numpy as np

from tbnets import files
from tbnets.checks import check_finite
from tbnets.data import pictures
from tbnets.data.photos import left_out_lines, sort_files
from tbnets.data.store import npy
from tbnets.errors import InputError
from tbnets.progress import progress_bar, say
from tbnets.serving.identity import identity_of

# A cache file is an `npz` file that contains a JSON value (names, sizes, times,
# and the faults of broken photos) and the embeddings. It is untrusted.


class Entry(NamedTuple):
    """The cache entry of a file.

    Args:
        stamp: size in bytes and modification time in nanoseconds, or None if
            the file could not be read. A file is read again if its stamp
            changes. Entries without a stamp are not saved.
        embedding: float32 `[embedding_dim]`; None for a file that is not a
            photo.
        reason: why the file is not a photo, for example "is empty"; "" for a
            photo.
    """

    stamp: tuple | None
    embedding: np.ndarray | None
    reason: str = ""


def read_entries(path, identity):
    """Reads a cache file, which may be damaged or forged.

    Returns a dict that maps the names of photos to `Entry`s. Raises ValueError
    if the file is damaged or is not from the model with this `identity`.
    """
    header, arrays = npy.read_npz(path)
    try:
        is_own = identity.items() <= header.items()
        photos, rows = header["photos"], arrays["rows"]
        is_whole = rows.shape == (len(photos), identity["embedding_dim"])
        is_sound = rows.dtype == np.float32 and np.isfinite(rows).all()
        entries = {
            str(name): Entry((size, time), row)
            for (name, size, time), row in zip(photos, rows)
        }
        for name, size, time, reason in header["broken"]:
            reason = str(reason) or "is broken"
            entries[str(name)] = Entry((size, time), None, reason)
    except npy.ERRORS as error:
        raise InputError("damaged, or not a cache file") from error
    if not (is_own and is_whole and is_sound):
        raise InputError("damaged, or written for another model")
    return entries


SUFFIX = ".photos"
PHOTO_BATCH_SIZE = 32
"""Larger batches are not faster on a CPU and need more memory."""
PHOTOS_PER_FILE = 256
"""Number of photos embedded between two writes. A killed process loses at most
this many embeddings."""
HELD_BYTES = 2**28
"""Maximum size in bytes of the encoded photos in memory. Photos that are
neither JPEG nor PNG are converted to PNG, which is large."""
AT_ONCE = 2
"""Number of batches that are embedded in parallel to keep all cores busy."""


def embed_folder(
    model, folder, cache=None, batch_size=None, fault_of_name=lambda name: ""
):
    """Embeds the photos of a folder, reusing embeddings in the cache.

    Files that are not photos are reported on standard error.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, including subfolders.
        cache: folder of the cache, which no other photo folder may use; None
            for FOLDER.tbnets next to `folder`, False for no cache.
        batch_size: number of photos in a batch; None for the default.
        fault_of_name: function that takes the relative path of a photo and
            returns "" or a reason to leave the photo out.

    Returns:
        `(ids, embeddings)`: the photos' paths relative to the folder, and their
        embeddings, float32 `[n, embedding_dim]`.

    Raises:
        ValueError: no file is a valid photo, or an embedding is not finite.
    """
    paths, left_out = sort_files(folder)
    cache = EmbeddingCache(cache, model, folder)
    return embed_photos(
        model, folder, paths, left_out, cache, batch_size, fault_of_name
    )


def embed_photos(
    model,
    folder,
    paths,
    left_out=(),
    cache=None,
    batch_size=None,
    fault_of_name=lambda name: "",
):
    """Embeds listed photos of a folder, like `embed_folder`.

    `paths` maps the name of each file to its `pathlib.Path` or `os.DirEntry`.
    `left_out` lists other files to report. `cache` is an `EmbeddingCache` or
    None.
    """
    cache = cache or EmbeddingCache()
    # Stamps are taken before reading: a file that changes in between is read
    # again by the next call.
    stamps = {name: stamp_of(path) for name, path in paths.items()}
    new = [name for name in paths if not cache.knows(name, stamps[name])]
    size = batch_size or PHOTO_BATCH_SIZE
    batches = [new[at : at + size] for at in range(0, len(new), size)]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        with progress_bar(len(new), "embedding", " photos") as bar:
            for new_entries in pool.map(
                lambda names: _embed(model, paths, stamps, names), batches
            ):
                cache.add(new_entries)
                cache.save(at_least=PHOTOS_PER_FILE)
                bar.update(len(new_entries))
    except KeyboardInterrupt:
        if cache.save():
            _note(
                "interrupted; the embeddings are saved. Run the search again: "
                "it resumes"
            )
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        cache.save()
    cache.tidy(paths)
    entries = {name: cache.entries[name] for name in paths}
    faults = {n: e.reason or fault_of_name(n) for n, e in entries.items()}
    broken = {pathlib.Path(paths[n]): why for n, why in faults.items() if why}
    for line in left_out_lines(broken, left_out, len(paths) + len(left_out)):
        _note(line)
    if len(broken) == len(paths):
        raise InputError(
            "images",
            "contain a photo that can be decoded",
            f"images={folder}, which contains no valid photo",
            "See the reasons above.",
        )
    rows = {n: e.embedding for n, e in entries.items() if not faults[n]}
    # Much faster than `np.stack` for many rows.
    return list(rows), np.concatenate([*rows.values()]).reshape(len(rows), -1)


def _embed(model, paths, stamps, names):
    entries, contents = {}, {}
    for name in names:
        try:
            contents[name] = pictures.read_content(paths[name])
        except pictures.BrokenImageError as error:
            entries[name] = Entry(None, None, error.reason)
        if sum(map(len, contents.values())) > HELD_BYTES:
            entries |= _ask(model, contents, stamps)
            contents = {}
    return entries | _ask(model, contents, stamps)


def _ask(model, contents, stamps):
    if not contents:  # Convolutions on some CPUs reject an empty batch.
        return {}
    # The model decides which files are photos.
    embeddings, reasons = model.try_images(list(contents.values()))
    entries = {}
    for name, row, reason in zip(contents, embeddings, reasons):
        check_finite(f"embedding of {name}", row[None])
        entries[name] = Entry(stamps[name], None if reason else row, reason)
    return entries


def _note(text):
    say(files.readable(text))


class EmbeddingCache:
    """The cache of a folder of photos. `entries` maps their names to `Entry`s.

    `cache` is as in `embed_folder`. Embeddings from a server are not saved,
    because the server may later use another model.
    """

    def __init__(self, cache=False, model=None, folder=""):
        self.entries, self._unsaved, self._files = {}, {}, []
        self._can_write = cache is not False and os.path.isdir(model.path)
        if self._can_write:
            self._folder, self._identity = folder, identity_of(model)
            self._cache_folder = files.folder_beside(folder, cache)
            name = self._identity["model"][:16]
            self.path = self._cache_folder / "embeddings" / name
            self._read()

    def knows(self, name, stamp):
        """Returns whether the cache contains this name with this stamp."""
        known = self.entries.get(name)
        return bool(known and stamp) and known.stamp == stamp

    def add(self, entries):
        """Adds or replaces entries. `entries` maps names to `Entry`s."""
        self.entries.update(entries)
        self._unsaved.update(entries)

    def save(self, at_least=1):
        """Writes the new entries if there are at least `at_least` of them.

        Returns whether the cache is writable.
        """
        if len(self._unsaved) >= at_least:
            self._write(self._unsaved)
            self._unsaved = {}
        return self._can_write

    def tidy(self, names):
        """Removes entries that are not in `names`, and merges the files."""
        entries = {n: self.entries[n] for n in names if n in self.entries}
        if len(entries) == len(self.entries) and len(self._files) < 2:
            return
        self.entries = entries
        old, self._files = self._files, []
        if not self._write(entries):
            return
        with contextlib.suppress(OSError):  # Old files only use disk space.
            for path in old:
                path.unlink(missing_ok=True)

    def _read(self):
        try:
            paths = self.path.glob(f"*{SUFFIX}")
            self._files = sorted(paths, key=lambda x: x.stat().st_mtime_ns)
        except OSError:
            return
        for path in self._files:
            try:
                self.entries.update(read_entries(path, self._identity))
            except (OSError, ValueError) as error:
                _note(
                    f"note: {path} cannot be used ({error}); its photos are "
                    "embedded again"
                )
        entries, is_cured = self.entries.items(), pictures.is_cured
        self.entries = {n: e for n, e in entries if not is_cured(e.reason)}

    def _write(self, entries):
        entries = {n: e for n, e in entries.items() if e.stamp}
        if not (entries and self._can_write):
            return self._can_write
        path = self.path / f"{uuid.uuid4().hex}{SUFFIX}"
        photos = {n: e for n, e in entries.items() if not e.reason}
        broken = {n: e for n, e in entries.items() if e.reason}
        header = {
            **self._identity,
            "photos": [[n, *e.stamp] for n, e in photos.items()],
            "broken": [[n, *e.stamp, e.reason] for n, e in broken.items()],
        }
        dim = self._identity["embedding_dim"]
        rows = [np.empty([0, dim], np.float32)]
        rows += [e.embedding[None] for e in photos.values()]
        rows = np.concatenate(rows)
        try:
            files.make_folder_of(self._folder, self._cache_folder)
            self.path.mkdir(parents=True, exist_ok=True)
            npy.write_npz(path, header, {"rows": rows})
        except OSError as error:
            self._can_write = False
            _note(
                f"note: the embeddings are not saved in {self.path}: "
                f"{os.strerror(error.errno or errno.EIO)}. Choose another "
                "folder with --cache."
            )
        else:
            self._files.append(path)
        return self._can_write


def stamp_of(path):
    """Returns a file's size and modification time, or None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
