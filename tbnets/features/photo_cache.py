"""Caches the features of the photos in a folder.

::

    CACHE/photos.json                    path -> size, time, sha256 of a photo
          EfficientNetLite0-3f2a9c81/    a feature store for each network

The ids in a store are the SHA-256 checksums of the photos, so a renamed photo
is not extracted again. A checksum is computed again only if the file's size or
modification time changes.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import pathlib
import re
import time

from tbnets.data import archives
from tbnets.data.images import faults
from tbnets.data.store.manifest import MANIFEST
from tbnets.data.store.opening import load_features
from tbnets.data.store.reader import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import FileError, InputError
from tbnets.features import extraction
from tbnets.files import make_folder_of, parse_json, write_json
from tbnets.progress import progress_bar
from tbnets.startup import usable_cores

INDEX = "photos.json"
_SETTLED_SECONDS = 2
"""Age of a file at which any later change alters its modification time."""


def photo_checksums(folder, names, index):
    """Computes the SHA-256 checksum of each photo, or reads it from a cache.

    `names` are relative to `folder`, and `index` is the cache file. Returns,
    for each photo, (checksum, None), or (None, reason) if it is unreadable.
    """
    folder, cached = pathlib.Path(folder), _read_index(index)

    def entry(name):
        """Returns [size, time, sha256], or the reason for a failure."""
        path = folder / name
        try:
            if not archives.is_file(path):
                return "is not a file" if path.exists() else "does not exist"
            stamp = [*archives.stamp(path)]
            cached_entry = cached.get(name)
            if cached_entry and cached_entry[:2] == stamp:
                return cached_entry
            content = archives.read_bytes(path)
            return [*stamp, hashlib.sha256(content).hexdigest()]
        except OSError as error:
            return f"cannot be read: {error.strerror}"

    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        entries = list(pool.map(entry, names))
    sums = {name: x for name, x in zip(names, entries) if isinstance(x, list)}
    # Caches only photos that are old enough for a later change to alter the
    # time.
    latest = (time.time() - _SETTLED_SECONDS) * 1e9
    updated = cached | {name: x for name, x in sums.items() if x[1] < latest}
    if updated != cached:
        with contextlib.suppress(OSError):  # The next call hashes again.
            write_json(index, updated)
    return [(None, x) if isinstance(x, str) else (x[2], None) for x in entries]


def _read_index(path):
    """Returns {name: [size, time, sha256]}, or {} if the file is invalid."""
    try:
        entries = parse_json(pathlib.Path(path).read_bytes())
        return {
            name: [size, changed, digest]
            for name, (size, changed, digest) in entries.items()
            if type(size) is type(changed) is int
            and re.fullmatch("[0-9a-f]{64}", digest)
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def make_cache(folder, cache):
    """Creates a cache folder; raises OSError if this fails."""
    try:
        make_folder_of(folder, cache)
    except OSError as error:
        raise FileError(
            error.errno,
            "`--cache` must be a writable folder. Received: "
            f"--cache={cache} ({error.strerror}). Set it to another folder",
        ) from error


class PhotoCache:
    """Caches the features that a network computes for a folder's photos.

    Args:
        folder: folder of the photos.
        cache: folder of the cache, created if missing.
        description: extraction settings, from `PhotoFeatures.description`.
        build: function that returns the `PhotoFeatures`, called only if
            features must be extracted.
    """

    def __init__(self, folder, cache, description, build):
        self.folder = pathlib.Path(folder)
        self.cache = pathlib.Path(cache)
        text = json.dumps(description, sort_keys=True).encode()
        digest = hashlib.sha256(text).hexdigest()
        self.store = self.cache / f"{description['cnn']}-{digest[:8]}"
        self.description = description
        self._build = build
        self._keys = {}

    def update(self, names):
        """Extracts the features that are not cached, with a progress bar.

        Returns:
            {name: reason} for the unreadable photos.
        """
        make_cache(self.folder, self.cache)
        sums = photo_checksums(self.folder, names, self.cache / INDEX)
        reasons = {name: reason for name, (_, reason) in zip(names, sums)}
        self._keys = {name: key for name, (key, _) in zip(names, sums) if key}
        failed = self._extract({key: name for name, key in self._keys.items()})
        reasons |= {name: failed.get(x) for name, x in self._keys.items()}
        return {name: reason for name, reason in reasons.items() if reason}

    def load(self, names):
        """Returns the `Features` of the store and the row of each photo.

        `update` must have read the photos.
        """
        keys = [self._keys[name] for name in names]
        with self._explained():
            return load_features([self.store], keys)

    def _extract(self, photos):
        """Extracts photos, {checksum: name}; returns {checksum: fault}."""
        stored, failed, complete = (), {}, False
        if (self.store / MANIFEST).is_file():
            with self._explained():
                store = open_store(self.store, incomplete=True)
            stored, failed = set(store.ids), store.failed
            complete = store.complete
        new = {key: self.folder / name for key, name in photos.items()}
        new = {key: path for key, path in new.items() if key not in stored}
        # Retries photos that failed earlier, if they can now be read.
        retried = [key for key in new if key in failed]
        reasons = zip(retried, faults([new[key] for key in retried]))
        repaired = [(key, new[key]) for key, reason in reasons if not reason]
        fresh = [photo for photo in new.items() if photo[0] not in failed]
        if fresh or repaired or not complete:
            features = self._build()
            writer = FeatureWriter(self.store, self.description, features.dim)
            count, label = len(fresh) + len(repaired), "extracting features"
            with progress_bar(count, label, "photo", leave=True) as bar:
                for batch in filter(None, (fresh, repaired)):
                    extraction.extract_photos(
                        batch, features, writer, progress=bar.update
                    )
            writer.finish()
            failed = writer.failed
        return failed

    @contextlib.contextmanager
    def _explained(self):
        try:
            yield
        except ValueError as error:
            raise InputError(
                f"{error} Or remove {self.store}, so that the features are "
                "extracted again."
            ) from error
