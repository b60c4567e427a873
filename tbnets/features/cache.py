"""Caches vectors that were computed from files or texts.

::

    CACHE/files.json               size, time and SHA-256 of files
          embeddings-3f2a9c81/     a feature store for each description

The name of a store's folder ends with a digest of its description: the network,
its layers, and everything else that determines the vectors. The ids in a store
are the SHA-256 digests of the files, so a renamed or copied file keeps its
vectors. A file is read again if its size or modification time has changed. The
vectors of removed files remain.

Several processes can use a cache at once. Nothing in it is trusted: what is
damaged is computed again.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import time

from tbnets.data import archives, pictures
from tbnets.data.store.locks import FolderLock
from tbnets.data.store.manifest import MANIFEST, check_same
from tbnets.data.store.opening import check_features
from tbnets.data.store.reader import open_store
from tbnets.errors import FileError, InputError
from tbnets.files import make_folder_of, parse_json, write_text
from tbnets.progress import progress_bar, say
from tbnets.startup import usable_cores

FILES = "files.json"
_DIGITS = 8
_SETTLED_SECONDS = 2
"""Age of a file at which any later change alters its modification time."""


class FileKeys:
    """The SHA-256 digests of the files in a folder.

    Args:
        folder: the folder. The names of files are relative to it.
        cache: folder of the cache; None to remember nothing.
    """

    def __init__(self, folder, cache):
        self._folder = os.path.abspath(folder)
        self._index = cache and pathlib.Path(cache, FILES)
        self._known = self._read().get(self._folder, {})
        self._new = {}

    def get(self, name, stamp):
        """Returns the key of a file, or None if it must be read.

        `stamp` is its size in bytes and its modification time in nanoseconds.
        """
        *known_stamp, key = self._known.get(name, (None,))
        return key if known_stamp == [*stamp] else None

    def add(self, name, stamp, key):
        """Notes the key of a file, which had the `stamp` before it was read."""
        self._new[name] = self._known[name] = [*stamp, key]

    def save(self):
        """Writes the new keys. If this fails, the files are read again."""
        # A younger file could still change without a change of its time.
        latest = (time.time() - _SETTLED_SECONDS) * 1e9
        new = {name: x for name, x in self._new.items() if x[1] < latest}
        if new and self._index:
            folders = self._read()
            folders[self._folder] = folders.get(self._folder, {}) | new
            with contextlib.suppress(OSError):
                write_text(self._index, json.dumps(folders))
        self._new = {}

    def _read(self):
        """Returns {folder: {name: [size, time, key]}}; {} if it is damaged."""
        try:
            folders = parse_json(self._index.read_bytes())
            for files in folders.values():
                for size, changed, key in files.values():
                    if not type(size) is type(changed) is int:
                        raise TypeError(f"{size}, {changed}")
                    if not re.fullmatch("[0-9a-f]{64}", key):
                        raise ValueError(key)
            return folders
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def read(self, paths):
        """Returns ({name: key}, {name: reason}) of files, with a progress bar.

        `paths` maps names to paths, which may be inside archives. A reason is a
        verb phrase, such as "does not exist".
        """
        keys, reasons, new = {}, {}, {}
        for name, path in paths.items():
            try:
                stamp = archives.stamp(path)
            except OSError:
                stamp = ()
            keys[name] = self.get(name, stamp)
            if keys[name] is None:
                new[name] = stamp

        def read(name):
            try:
                content = pictures.read_file(paths[name])
            except pictures.BrokenImageError as error:
                return None, error.reason
            return hashlib.sha256(content).hexdigest(), ""

        with (
            progress_bar(len(new), "reading", " files") as bar,
            concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool,
        ):
            for name, (key, reason) in zip(new, pool.map(read, new)):
                bar.update()
                if reason:
                    del keys[name]
                    reasons[name] = reason
                    continue
                keys[name] = key
                self.add(name, new[name], key)
        self.save()
        return keys, reasons


def store_folder(cache, name, description):
    """Returns the folder of the store for a description.

    Args:
        cache: folder of the cache.
        name: any first part of the folder's name.
        description: JSON value of everything that determines the vectors.
    """
    text = json.dumps(description, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    return pathlib.Path(cache, f"{name}-{digest[:_DIGITS]}")


def open_cached(folder, made_by=None):
    """Opens a store, or returns None if there is none.

    A damaged store, or one whose settings differ from `made_by`, is reported
    and removed.
    """
    if not (folder / MANIFEST).is_file():
        return None
    try:
        store = open_store(folder, incomplete=True)
        check_features(store)
        if made_by is not None:
            check_same(folder, store.extraction, made_by)
    except InputError as error:
        say(f"note: {error} Its vectors are computed again.")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return store


def known(store):
    """Returns the ids of a store with vectors, or with lasting faults."""
    return {*store.ids, *lasting_faults(store)} if store else set()


def has_all(folder, keys):
    """Returns whether a store has vectors or lasting faults of all keys."""
    store = open_cached(folder)
    return store is not None and set(keys) <= known(store)


def lasting_faults(store):
    """Returns {key: reason} of the files that would fail again."""
    failed = store.failed.items()
    return {key: why for key, why in failed if not pictures.is_cured(why)}


@contextlib.contextmanager
def written_alone(folder):
    """Locks a store or a file of a cache, after waiting for other processes."""
    folder.parent.mkdir(parents=True, exist_ok=True)

    def tell(holder):
        say(f"waiting   for process {holder}, which writes {folder}")

    lock = FolderLock.wait(folder.parent, f".{folder.name}.lock", tell)
    yield
    del lock


def make_cache(folder, cache):
    """Creates a cache folder for files in `folder`.

    Raises OSError if this fails.
    """
    try:
        make_folder_of(folder, cache)
    except OSError as error:
        raise FileError(
            error.errno,
            "`--cache` must be a writable folder. Received: "
            f"--cache={cache} ({error.strerror}). Set it to another folder",
        ) from error
