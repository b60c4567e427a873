"""The embeddings of a folder of photos by one model, kept for the next search.

::

    photos.tbnets/embeddings/MODEL/*.photos1

`MODEL` begins the sha256 of the model's files. Each file holds some photos:
a line of JSON (names, sizes, times, what is wrong with broken ones), their
embeddings as little-endian float32, and the sha256 of both. Nothing in it can
be executed, and its size alone says how much memory it takes.

Why no feature store (`store/`): a store is made once from a list of images,
by one process, and is then read as it is; a photo in it is never replaced or
removed. A folder of photos changes, and two searches may run at once. Here a
file is written under a name that nobody else takes and never changed: what is
newer stands in another file, and when all is embedded the process replaces
the files it has read by one. Two at once do the same work twice, no more.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import uuid
from typing import NamedTuple

import numpy as np

from tbnets import files, images
from tbnets.checked_files import parse_json
from tbnets.errors import InputError
from tbnets.serving import search
from tbnets.serving.saved_files import GRAPH_FILE
from tbnets.store.manifest import file_sha256

FORMAT = "tbnets photo embeddings 1"
SUFFIX = ".photos1"
PHOTOS_PER_FILE = 256
"""So many photos are embedded between two writes: what a kill loses."""
_DIGEST_BYTES = hashlib.sha256().digest_size


class Stamp(NamedTuple):
    """What tells that a file has not changed, without reading it.

    A file that is replaced by another of the same size, with the time of the
    old one put back to the nanosecond, is taken for the old one.

    Args:
        size: in bytes.
        mtime_ns: when it was changed, in nanoseconds.
    """

    size: int
    mtime_ns: int


class Entry(NamedTuple):
    """What is known of a file.

    Args:
        stamp: the file's `Stamp` when it was read.
        embedding: float32 `[embedding_dim]`; None if it is no photo.
        reason: "", or what is wrong with it, a few words after "which".
    """

    stamp: Stamp
    embedding: np.ndarray | None
    reason: str = ""


def embed_folder(model, folder, place=None, batch_size=None):
    """Embeds the photos of a folder that are new or changed since last time.

    Files that are no photos are told on standard error with the reason, and
    counted, each time; they are remembered too, and not decoded again. Where
    nothing can be kept, that is said once.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, subfolders included.
        place: folder to keep the embeddings in; None for the one beside
            `folder`. Take another one for each folder of photos.
        batch_size: photos embedded at once; None for what is fast.

    Returns:
        `(ids, embeddings)`: paths relative to the folder, and float32 `[n,
        embedding_dim]`.

    Raises:
        FileNotFoundError: the folder holds no file named as a photo.
        ValueError: none of its files is a photo, or an embedding is not
            finite.
    """
    folder = pathlib.Path(folder)
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in images.list_photos(folder)
    }
    place = files.folder_beside(folder, place)
    index = Index(place, model, lambda: files.make_folder_of(folder, place))
    unread = _embed_new(model, paths, index, batch_size)
    index.tidy(paths)
    ids, rows, left_out = [], [], {}
    for name, path in paths.items():
        reason = unread.get(name) or index.entries[name].reason
        if reason:
            left_out[path] = reason
        else:
            ids.append(name)
            rows.append(index.entries[name].embedding)
    search.tell_left_out(left_out, len(paths), folder)
    return ids, np.stack(rows)


def _embed_new(model, paths, index, batch_size):
    """Puts into an index what it does not know yet.

    Args:
        model: a `Served` that takes photos.
        paths: dict, name of a photo -> its path.
        index: the `Index`.
        batch_size: as in `embed_folder`.

    Returns:
        dict, name -> reason: the files that could not even be read, of which
        nothing is remembered.
    """
    # Looked at before they are read: what changes meanwhile is new next time.
    stamps = {name: _stamp(path) for name, path in paths.items()}
    new = {
        path: name
        for name, path in paths.items()
        if not index.knows(name, stamps[name])
    }
    size = batch_size or search.PHOTO_BATCH_SIZE
    unread = {}
    try:
        for batch in search.embed_files(model, list(new), size):
            for path, embedding in zip(batch.photos, batch.embeddings):
                name = new[path]
                index.add(name, Entry(stamps[name], embedding))
            for path, reason in batch.refused.items():
                name = new[path]
                index.add(name, Entry(stamps[name], None, reason))
            for path, reason in batch.unread.items():
                unread[new[path]] = reason
            index.save(at_least=PHOTOS_PER_FILE)
    finally:
        index.save()
    return unread


class Index:
    """What is kept of a folder of photos.

    Args:
        place: folder beside the photos; nothing is written until `save`.
        model: the `Served` that embeds them.
        make_place: function that makes the folder; None for a plain one.

    Attributes:
        entries: dict, name of a photo in the folder -> `Entry`.
    """

    def __init__(self, place, model, make_place=None):
        self._make_place = make_place or (lambda: None)
        self.model_hash = hash_model(model.path)
        self.embedding_dim = model.embedding_dim
        self.place = pathlib.Path(place, "embeddings", self.model_hash[:16])
        self.entries = {}
        self._unsaved = {}
        self._can_write = True
        self._files = []
        self._read()

    def knows(self, name, stamp):
        """Tells whether a photo is here and has not changed."""
        return name in self.entries and self.entries[name].stamp == stamp

    def add(self, name, entry):
        """Takes an `Entry` in place of what was known of a photo."""
        self.entries[name] = self._unsaved[name] = entry

    def save(self, at_least=1):
        """Writes what was added, once there is so much of it."""
        if len(self._unsaved) >= at_least:
            self._write(self._unsaved)
            self._unsaved = {}

    def tidy(self, names):
        """Drops all photos but some, and puts the rest into one file.

        Args:
            names: the photos that the folder has.
        """
        kept = {n: self.entries[n] for n in names if n in self.entries}
        if len(kept) == len(self.entries) and len(self._files) < 2:
            return
        self.entries = kept
        old, self._files = self._files, []
        if not self._write(kept):
            return
        with contextlib.suppress(OSError):  # It is a matter of space alone.
            for path in old:
                path.unlink(missing_ok=True)

    def _read(self):
        """Reads the files, the oldest first, so that the newest counts."""
        try:
            found = [p for p in self.place.iterdir() if p.suffix == SUFFIX]
            found = [path for path in found if path.is_file()]
            found.sort(key=lambda path: path.stat().st_mtime_ns)
        except OSError:
            return
        for path in found:
            self._files.append(path)
            try:
                content = path.read_bytes()
                entries = parse(content, self.model_hash, self.embedding_dim)
            except (OSError, ValueError) as error:
                search.note(
                    f"note: {path} is not what was kept there ({error}); its "
                    "photos are embedded again"
                )
            else:
                self.entries.update(entries)

    def _write(self, entries):
        """Writes entries into a file of their own; says where it can not.

        Returns:
            Whether they are written.
        """
        entries = {n: e for n, e in entries.items() if e.stamp}
        if not (entries and self._can_write):
            return self._can_write
        path = self.place / f"{uuid.uuid4().hex}{SUFFIX}"
        content = format_entries(entries, self.model_hash, self.embedding_dim)
        try:
            self._make_place()
            self.place.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, lambda file: file.write(content))
        except OSError as error:
            self._can_write = False
            search.note(
                "note: the embeddings are not kept for the next search: "
                f"{self.place}: {os.strerror(error.errno or errno.EIO)}. Name "
                "another folder by --cache."
            )
        else:
            self._files.append(path)
        return self._can_write


def format_entries(entries, model_hash, embedding_dim):
    """Returns the content of a file; see `parse`."""
    photos = {n: e for n, e in entries.items() if not e.reason}
    broken = {n: e for n, e in entries.items() if e.reason}
    header = {
        "format": FORMAT,
        "model": model_hash,
        "embedding_dim": embedding_dim,
        "photos": [[n, *e.stamp] for n, e in photos.items()],
        "broken": [[n, *e.stamp, e.reason] for n, e in broken.items()],
    }
    rows = [np.asarray(e.embedding, "<f4") for e in photos.values()]
    body = json.dumps(header).encode("ascii") + b"\n" + b"".join(rows)
    return body + hashlib.sha256(body).digest()


def parse(content, model_hash, embedding_dim):
    """Reads the content of a file that anyone may have changed.

    Args:
        content: bytes.
        model_hash: of the model that is asked.
        embedding_dim: of the model.

    Returns:
        dict, name of a photo -> `Entry`.

    Raises:
        ValueError: it is damaged, or something else.
    """
    body = memoryview(content)[:-_DIGEST_BYTES]
    if hashlib.sha256(body).digest() != content[-_DIGEST_BYTES:]:
        raise InputError("damaged, or of another kind")
    start = content.find(b"\n") + 1
    try:
        header = parse_json(content[:start])
        wanted = [FORMAT, model_hash, embedding_dim]
        keys = ("format", "model", "embedding_dim")
        if [header[key] for key in keys] != wanted:
            raise InputError("of another model")
        photos = [(str(n), Stamp(*stamp)) for n, *stamp in header["photos"]]
        broken = {
            str(name): Entry(Stamp(*stamp), None, str(reason) or "is broken")
            for name, *stamp, reason in header["broken"]
        }
    except (KeyError, TypeError) as error:
        raise InputError("without what belongs there") from error
    if len(body) - start != len(photos) * embedding_dim * 4:
        raise InputError("of another size")
    rows = np.frombuffer(body[start:], "<f4").reshape(-1, embedding_dim)
    if not np.isfinite(rows).all():
        raise InputError("with embeddings that are no numbers")
    whole = {
        name: Entry(stamp, np.asarray(row, np.float32))
        for (name, stamp), row in zip(photos, rows)
    }
    return {**whole, **broken}


def hash_model(path):
    """Returns the sha256 of what decides a SavedModel's embeddings.

    Args:
        path: folder of the SavedModel.

    Returns:
        str: 64 hexadecimal digits of graph, variables and assets, names and
        content; what is only there for people does not count.
    """
    path = pathlib.Path(path)
    parts = [path / GRAPH_FILE]
    for folder in ("variables", "assets"):
        found = (p for p in (path / folder).rglob("*") if p.is_file())
        parts += sorted(found)
    lines = [f"{file_sha256(p)}  {p.relative_to(path)}\n" for p in parts]
    return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()


def _stamp(path):
    """Returns the `Stamp` of a file; None where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns)
