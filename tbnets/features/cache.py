"""Caches vectors that were computed from files or texts.

::

    CACHE/files.json               path -> size, time and SHA-256 of a file
          embeddings-3f2a9c81/     a feature store for each description

The name of a store's folder ends with a digest of its description: the network,
its layers, and everything else that determines the vectors. The ids in a store
are the SHA-256 digests of the files, so a renamed or copied file keeps its
vectors. A file is read again if its size or modification time has changed. The
vectors of removed files remain.

Several processes can use a cache at once. A damaged store is computed again.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import pathlib
import platform
import shutil
import threading
import time
import weakref

import numpy as np

from tbnets.data import archives, pictures
from tbnets.data.store.features import FeatureArray
from tbnets.data.store.reader import (
    MANIFEST,
    check_same,
    load_features,
    open_store,
)
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import ExistingFileError, InputError
from tbnets.files import (
    can_be_written,
    is_kind,
    parse_json,
    try_lock,
    write_text,
)
from tbnets.progress import progress_bar, say
from tbnets.startup import usable_cores

FILES = "files.json"
PHOTOS_PER_WRITE = 256
"""Number of photos whose features a killed process may lose."""
_DIGITS = 8
_SETTLED_SECONDS = 2
"""Age of a file at which any later change alters its modification time."""


class FileKeys:
    """The SHA-256 digests of files, which are saved in the folder `cache`."""

    def __init__(self, cache):
        self._index = pathlib.Path(cache, FILES)
        self._stamps = {}
        self._here = os.getcwd()  # `os.path.abspath` is slow.

    def read(self, paths):
        """Returns ({name: key}, {name: reason}) of files, with a progress bar.

        `paths` maps any names to paths, which may be inside archives. A reason
        is a verb phrase, such as "does not exist". If the keys cannot be saved,
        the next call reads the files again.
        """
        places = {k: os.path.join(self._here, x) for k, x in paths.items()}
        saved, entries, reasons = self._load(), {}, {}
        keys = {k: self._find(saved, place) for k, place in places.items()}
        new = [name for name in keys if not keys[name]]

        def read(name):
            try:
                content = pictures.read_file(paths[name])
            except pictures.BrokenImageError as error:
                reasons[name] = error.reason
                return
            keys[name] = key = hashlib.sha256(content).hexdigest()
            size, changed = self._stamps.get(places[name], (0, math.inf))
            # A younger file could still change without a change of its time.
            if changed < (time.time() - _SETTLED_SECONDS) * 1e9:
                entries[places[name]] = f"{size} {changed} {key}"

        with (
            progress_bar(len(new), "reading", " files") as bar,
            concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool,
        ):
            for _ in pool.map(read, new):
                bar.update()
        if entries:
            with contextlib.suppress(OSError):
                write_text(self._index, json.dumps(self._load() | entries))
        reasons = {name: reasons[name] for name in new if name in reasons}
        return {name: key for name, key in keys.items() if key}, reasons

    def _find(self, saved, place):
        try:
            stamp = self._stamps[place] = archives.stamp(place)
        except OSError:
            return None
        state, _, key = saved.get(place, "").rpartition(" ")
        return key if state == "{} {}".format(*stamp) else None

    def _load(self):
        """Returns {path: "SIZE TIME KEY"}; {} if the file is damaged."""
        with contextlib.suppress(OSError, ValueError):
            entries = parse_json(self._index.read_bytes())
            if is_kind(entries, dict[str, str]):
                return entries
        return {}

    def has_changed(self, path):
        """Returns whether a file has changed since `read` looked for its key.

        A file that no longer exists has not changed.
        """
        path = os.path.join(self._here, path)
        with contextlib.suppress(OSError):
            return self._stamps.get(path) != archives.stamp(path)
        return False


class VectorCache:
    """The vectors of files by one network, in a store of a cache.

    Args:
        cache: folder of the cache.
        name: any first part of the name of the store's folder.
        made_by: JSON value of everything that determines the vectors.
    """

    def __init__(self, cache, name, made_by):
        self.folder: pathlib.Path = store_folder(cache, name, made_by)
        self._cache, self._made_by = cache, made_by
        self._keys, self._unreadable = {}, {}

    def complete(self, paths, what, load):
        """Adds the vectors or faults of files that the store lacks.

        Other processes that need the store wait.

        Args:
            paths: dict from any names of the files to their paths.
            what: as in the function `complete`.
            load: function that returns (dim, work), the number of features and
                the `work` of the function `complete`. It is called only if
                vectors are missing.
        """
        files = FileKeys(self._cache)
        self._keys, self._unreadable = files.read(paths)
        photos = {key: paths[name] for name, key in self._keys.items()}
        if has_all(open_cached(self.folder, self._made_by), photos):
            return
        dim, work = load()
        with (
            written_alone(self.folder),
            FeatureWriter(self.folder, self._made_by, dim) as writer,
        ):
            how = {"has_changed": files.has_changed}
            complete([*photos.items()], writer, what, work, **how)

    def features(self):
        """Returns the `Features` of the files of `complete` so far, by name.

        Files without vectors have reasons in `failed`.
        """
        store = FeatureArray((), np.empty((0, 0), np.float32))
        if (self.folder / MANIFEST).is_file():
            store = open_store(self.folder, incomplete=True)
        features = store.under(self._keys)
        features.failed |= self._unreadable
        return features


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
    and removed when no other process writes it.
    """
    with contextlib.suppress(InputError):
        return _open(folder, made_by)
    is_writable = can_be_written(folder.parent)
    alone = written_alone(folder) if is_writable else contextlib.nullcontext()
    with alone:
        try:  # Another process may have written the store again meanwhile.
            return _open(folder, made_by)
        except InputError as error:
            say(f"note: {error} Its vectors are computed again.")
            shutil.rmtree(folder, ignore_errors=True)
    return None


def _open(folder, made_by):
    if not (folder / MANIFEST).is_file():
        return None
    store = open_store(folder, incomplete=True)
    load_features(store)
    if made_by is not None:
        check_same(folder, store.extraction, made_by)
    return store


def has_all(store, keys):
    """Returns whether a store has vectors or lasting faults of all keys.

    `store` is a result of `open_cached`, which may be None.
    """
    if store is None:
        return False
    failed = store.failed.items()
    lasting = {key for key, why in failed if not pictures.is_cured(why)}
    return lasting.union(store.ids).issuperset(keys)


def remaining(photos, writer):
    """Returns the (id, path) pairs of photos that are not in a writer's store.

    Photos that failed before are tried again only if no new photos remain, or
    if they had changed while they were read.
    """
    new = [photo for photo in photos if photo[0] not in writer.done]
    failed = {k for k, why in writer.failed.items() if why != pictures.CHANGED}
    fresh = [photo for photo in new if photo[0] not in failed]
    return fresh or new


def complete(photos, writer, what, work, **options):
    """Processes the remaining photos, and completes the store of `writer`.

    `photos` is a list of (id, path). `work` is a function such as
    `extract_photos`, with its `options`; `what` describes it in the progress
    bar. Returns a list of (path, reason) for the photos that failed.
    """
    num_left = len(remaining(photos, writer))
    with progress_bar(num_left, what, "photo", leave=True) as bar:
        failures = work(photos, writer=writer, progress=bar.update, **options)
    writer.finish()
    return failures


def write_results(
    photos,
    writer,
    batches,
    reasons,
    write_every=PHOTOS_PER_WRITE,
    progress=lambda count: None,
    has_changed=lambda path: False,
):
    """Writes the results of photos in groups, and records failed photos.

    Ctrl-C while a batch is computed loses only this batch.

    Args:
        photos: list of (id, path).
        writer: a `FeatureWriter`.
        batches: iterator over (positions, results), in the order of the photos.
            A result is a dict of the arrays of a photo, or None if it failed.
        reasons: function that takes failed photos, and returns their reasons.
        write_every: number of photos after which results are written.
        progress: called with the number of newly processed photos.
        has_changed: called with a path after its photo was read; if it returns
            True, the photo has failed.

    Returns:
        list of (path, reason) for the photos that failed in this call. The
        store also records the reasons.
    """
    failures, done, start, reported = [], {}, 0, 0

    def write(end):
        nonlocal start
        group = range(start, end)
        changed = [i for i in group if has_changed(photos[i][1])]
        failed = [i for i in group if i not in done and i not in changed]
        failed = [photos[i] for i in failed]
        failed = list(zip(failed, reasons(failed)))
        failed += [(photos[i], pictures.CHANGED) for i in changed]
        for i in changed:
            done.pop(i, None)
        writer.add(
            [photos[i][0] for i in done],
            failed={key: reason for (key, _), reason in failed},
            **{
                name: np.concatenate([arrays[name] for arrays in done.values()])
                for name in next(iter(done.values()), ())
            },
        )
        failures.extend((path, reason) for (_, path), reason in failed)
        progress(end - reported)
        done.clear()
        start = end

    def finished():
        try:
            yield from batches
        except KeyboardInterrupt:  # Ctrl-C while a batch is awaited.
            if reported > start:
                write(reported)
            raise

    for positions, results in finished():
        pairs = zip(positions, results)
        done.update((i, result) for i, result in pairs if result is not None)
        end = positions[-1] + 1
        progress(end - reported)
        reported = end
        if end - start >= write_every:
            write(end)
    if start < len(photos):
        write(len(photos))
    return failures


@contextlib.contextmanager
def written_alone(folder):
    """Locks a store or a file of a cache, after waiting for other processes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = holder = None
    while lock is None:
        try:
            lock = FolderLock.take(
                folder.parent, f".{folder.name}.lock", "folder"
            )
        except FolderInUse as error:
            if error.holder != holder:
                holder = error.holder
                say(f"waiting   for process {holder}, which writes {folder}")
            time.sleep(WAIT_SECONDS)
    try:
        yield
    except KeyboardInterrupt:
        say("\nstopped; run the command again to continue")
        raise
    finally:
        del lock


WAIT_SECONDS = 0.5


class FolderInUse(ExistingFileError):
    """Another process holds the lock on a folder."""

    def __init__(self, folder, argument, holder):
        super().__init__(
            f"`{argument}` must be a folder that no other process writes. "
            f"Received: {argument}={folder}, which is being written by "
            f"process {holder}. Wait until that process ends, end it, or "
            "choose another folder."
        )
        self.holder = holder


class FolderLock:
    """An exclusive lock on a folder, held by one process.

    The lock affects only processes that request it. If the operating system or
    file system has no locks, every request succeeds.

    If the process already holds the lock, `take` returns the existing lock. The
    lock is released when the process ends or the last reference to this object
    is deleted. The file `name` in the folder contains the process ID and is not
    removed. `argument` is the name of the argument in error messages.
    """

    _locks = weakref.WeakValueDictionary()
    _guard = threading.Lock()

    def __init__(self, folder, name, argument):
        path = os.path.join(folder, name)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        if try_lock(self._descriptor) is False:
            holder = os.pread(self._descriptor, 90, 0)
            holder = holder.decode("ascii", "replace").strip() or "(unknown)"
            self._close()
            raise FolderInUse(folder, argument, holder)
        os.ftruncate(self._descriptor, 0)
        holder = f"{os.getpid()} of {platform.node()}\n"
        os.pwrite(self._descriptor, holder.encode("ascii", "replace"), 0)
        self._locks[os.path.realpath(folder), name] = self

    @classmethod
    def take(cls, folder, name, argument):
        """Locks a folder, or returns this process's existing lock."""
        with cls._guard:
            lock = cls._locks.get((os.path.realpath(folder), name))
            return lock or cls(folder, name, argument)

    @classmethod
    def forget(cls):
        """Closes the lock descriptors that a forked child inherits."""
        # Otherwise a child that outlives its parent would keep the locks.
        for lock in list(cls._locks.values()):
            lock._close()
        cls._locks.clear()
        cls._guard = threading.Lock()


with contextlib.suppress(AttributeError):  # Windows cannot fork.
    os.register_at_fork(after_in_child=FolderLock.forget)
