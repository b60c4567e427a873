"""A cache of the embeddings of a folder of photos by one model.

::

    photos.tbnets/embeddings/MODEL/*.photos1

`MODEL` is the first part of a SHA-256 of the model's files. `format_entries`
writes a file with some of the photos.

A feature store (`store/`) does not suit: one process makes a store once from a
list of images, and no photo in it is ever replaced or removed. A folder of
photos changes, and two searches may run at once. Here every file has a unique
name and is never changed. New entries go to a new file, and once all photos are
embedded the process replaces the files that it has read by one file. Two
processes at once only repeat work.
"""

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import uuid
from typing import NamedTuple

import numpy as np

from tbnets import files
from tbnets.checks import check_finite
from tbnets.data import images, photo_kinds
from tbnets.data.photos import left_out_lines, sort_files
from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError
from tbnets.files import parse_json
from tbnets.progress import progress_bar, say
from tbnets.serving import search
from tbnets.serving.checksums import CHECKSUMS
from tbnets.serving.saved_files import GRAPH_FILE, hash_files

# The format of a file, which anyone may have changed: a line of JSON (names,
# sizes, times, and faults of broken photos), the embeddings as little-endian
# float32, and the SHA-256 of both. No part of it can be executed, and its size
# bounds the memory that it takes.

FORMAT = "tbnets photo embeddings 1"
IDENTITY = "identity.txt"
"""File next to an assembled SavedModel with the identity of its parts.

TensorFlow numbers functions anew at each assembly, so equal models have
different bytes.
"""
_DIGEST_BYTES = hashlib.sha256().digest_size


class Entry(NamedTuple):
    """The cache's knowledge of a file.

    Args:
        stamp: size in bytes and modification time in nanoseconds of the file
            that was read. An unchanged stamp means an unchanged file, unless a
            file of equal size replaced it and its time was set back. None if
            the file could not be read; such entries are not kept.
        embedding: float32 `[embedding_dim]`; None if the file is not a photo.
        reason: "", or the fault of the file, phrased to follow "which".
    """

    stamp: tuple | None
    embedding: np.ndarray | None
    reason: str = ""


def about(model):
    """Returns the header that identifies a model in each file of its cache.

    The header has the SHA-256 of the SavedModel's graph, variables and assets
    (names and content), without files that are only for people. For an
    assembled model, it has the SHA-256 of the identity of its parts.

    Raises:
        ValueError: the model is on a server, so its files cannot be read.
    """
    if not os.path.isdir(model.path):
        raise InputError(
            "model",
            "be a local model, whose files identify it",
            f"model={model.path}, of which there are none here",
            "Name its folder, or the folder of the zoo model.",
        )
    beside = pathlib.Path(model.path).parent
    if (beside / IDENTITY).is_file() and (beside / CHECKSUMS).is_file():
        digest = file_sha256(beside / IDENTITY)
    else:
        hashes = hash_files(model.path)
        lines = [
            f"{digits}  {name}\n"
            for part in (GRAPH_FILE, "variables/", "assets/")
            for name, digits in hashes.items()
            if name.startswith(part)
        ]
        digest = hashlib.sha256(os.fsencode("".join(lines))).hexdigest()
    return {
        "format": FORMAT,
        "model": digest,
        "embedding_dim": model.embedding_dim,
    }


def format_entries(entries, about):
    """Returns the content of a file, which `parse_index` reads."""
    photos = {n: e for n, e in entries.items() if not e.reason}
    broken = {n: e for n, e in entries.items() if e.reason}
    header = {
        **about,
        "photos": [[n, *e.stamp] for n, e in photos.items()],
        "broken": [[n, *e.stamp, e.reason] for n, e in broken.items()],
    }
    rows = [np.asarray(e.embedding, "<f4") for e in photos.values()]
    body = json.dumps(header).encode("ascii") + b"\n" + b"".join(rows)
    return body + hashlib.sha256(body).digest()


def parse_index(content, about):
    """Reads the content of a file, which may be damaged or forged.

    Args:
        content: bytes.
        about: header that `about` returned for the model in use.

    Returns:
        dict, name of a photo -> `Entry`.

    Raises:
        ValueError: the content is damaged, or of a different kind or model.
    """
    body = memoryview(content)[:-_DIGEST_BYTES]
    start = content.find(b"\n") + 1
    try:
        header = parse_json(content[:start])
        is_own = about.items() <= header.items()
        digest = hashlib.sha256(body).digest()
        photos, dim = header["photos"], about["embedding_dim"]
        rows = np.frombuffer(body[start:], "<f4").reshape(len(photos), dim)
        rows = rows.astype(np.float32, copy=False)
        is_whole = (
            digest == content[-_DIGEST_BYTES:] and np.isfinite(rows).all()
        )
        found = {
            str(name): Entry((size, time), row)
            for (name, size, time), row in zip(photos, rows)
        }
        for name, size, time, reason in header["broken"]:
            reason = str(reason) or "is broken"
            found[str(name)] = Entry((size, time), None, reason)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError("damaged, or of another kind") from error
    if not (is_own and is_whole):
        raise InputError("damaged, or of another model")
    return found


SUFFIX = ".photos1"
PHOTOS_PER_FILE = 256
"""Photos embedded between two writes, which a kill may lose."""
HELD_BYTES = 2**28
"""Bytes of photos held at once; a photo other than a JPEG is large as PNG."""
AT_ONCE = 2
"""Batches in work at once, so that one uses cores that the other leaves
idle."""


def embed_folder(
    model, folder, place=None, batch_size=None, fault_of_name=lambda name: ""
):
    """Embeds the photos of a folder that are new or changed.

    Files that are not photos are reported on standard error, with the reason
    and the number of files, at each call; a broken file is not decoded again.
    If the cache cannot be written, this is reported once.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, including subfolders.
        place: folder of the cache, which must be unique to the folder of
            photos; None for the folder next to `folder`, False for no cache.
        batch_size: number of photos embedded at once; None for a fast size.
        fault_of_name: function of a photo's path in the folder -> why its name
            excludes it, phrased to follow "which"; "" to include it.

    Returns:
        `(ids, embeddings)`: paths relative to the folder, and float32
        `[n, embedding_dim]`.

    Raises:
        FileNotFoundError: the folder holds no file named as a photo.
        ValueError: no file is a photo, or an embedding is not finite.
    """
    paths, others = sort_files(folder)
    index = Index(place, model, folder)
    return embed_photos(
        model, folder, paths, others, index, batch_size, fault_of_name
    )


def embed_photos(
    model,
    folder,
    paths,
    others=(),
    index=None,
    batch_size=None,
    fault_of_name=lambda name: "",
):
    """Embeds some photos of a folder, leaving out files that are not photos.

    Args:
        model: as in `embed_folder`.
        folder: folder of photos.
        paths: files to embed: name -> `pathlib.Path` or `os.DirEntry`.
        others: further files to report as left out.
        index: `Index` with cached photos; None for no cache.
        batch_size: as in `embed_folder`.
        fault_of_name: as in `embed_folder`.

    Returns: and raises as `embed_folder`.
    """
    index = index or Index()
    # Stamps precede reading: a file that changes in between is read next time.
    stamps = {name: stamp_of(path) for name, path in paths.items()}
    new = [name for name in paths if not index.knows(name, stamps[name])]
    size = batch_size or search.PHOTO_BATCH_SIZE
    batches = [new[at : at + size] for at in range(0, len(new), size)]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        with progress_bar(len(new), "embedding", " photos") as bar:
            for found in pool.map(
                lambda names: _embed(model, paths, stamps, names), batches
            ):
                index.add(found)
                index.save(at_least=PHOTOS_PER_FILE)
                bar.update(len(found))
    except KeyboardInterrupt:
        if index.save():
            _note(
                "stopped; what was embedded is kept: the same search goes on "
                "from there"
            )
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        index.save()
    index.tidy(paths)
    entries = {name: index.entries[name] for name in paths}
    faults = {n: e.reason or fault_of_name(n) for n, e in entries.items()}
    broken = {pathlib.Path(paths[n]): why for n, why in faults.items() if why}
    for line in left_out_lines(broken, others, len(paths) + len(others)):
        _note(line)
    if len(broken) == len(paths):
        raise InputError(
            "images",
            "hold a photo that can be decoded",
            f"images={folder}, where none can",
            "See the reasons above.",
        )
    rows = {n: e.embedding for n, e in entries.items() if not faults[n]}
    # Far faster than `np.stack` for many rows.
    return list(rows), np.concatenate([*rows.values()]).reshape(len(rows), -1)


def _embed(model, paths, stamps, names):
    """Returns name -> `Entry` of some files."""
    found, contents = {}, {}
    for name in names:
        try:
            contents[name] = images.read_content(paths[name])
        except images.BrokenImageError as error:
            found[name] = Entry(None, None, error.reason)
        if sum(map(len, contents.values())) > HELD_BYTES:
            found |= _ask(model, contents, stamps)
            contents = {}
    return found | _ask(model, contents, stamps)


def _ask(model, contents, stamps):
    """Returns name -> `Entry` of file contents: name -> bytes."""
    if not contents:  # Convolutions on some CPUs reject an empty batch.
        return {}
    # The model decides which files are photos.
    embeddings, reasons = model.try_images(list(contents.values()))
    found = {}
    for name, row, reason in zip(contents, embeddings, reasons):
        check_finite(f"embedding of {name}", row[None])
        found[name] = Entry(stamps[name], None if reason else row, reason)
    return found


def _note(text):
    say(files.readable(text))


class Index:
    """The cache of a folder of photos.

    Args:
        place: as in `embed_folder`; only `save` writes to it.
        model: `Served` that embeds the photos. Embeddings of a model on a
            server are not kept, since an address may serve a different model
            later.
        folder: folder of the photos.

    Attributes:
        entries: dict, name of a photo in the folder -> `Entry`.
    """

    def __init__(self, place=False, model=None, folder=""):
        self.entries, self._unsaved, self._files = {}, {}, []
        self._can_write = place is not False and os.path.isdir(model.path)
        if self._can_write:
            self._folder, self._about = folder, about(model)
            self._beside = files.folder_beside(folder, place)
            name = self._about["model"][:16]
            self.place = self._beside / "embeddings" / name
            self._read()

    def knows(self, name, stamp):
        """Returns whether the cache has a photo, and it has not changed."""
        known = self.entries.get(name)
        return bool(known and stamp) and known.stamp == stamp

    def add(self, entries):
        """Adds or replaces entries, name -> `Entry`."""
        self.entries.update(entries)
        self._unsaved.update(entries)

    def save(self, at_least=1):
        """Writes the added entries if there are at least `at_least`.

        Returns:
            Whether embeddings are being kept.
        """
        if len(self._unsaved) >= at_least:
            self._write(self._unsaved)
            self._unsaved = {}
        return self._can_write

    def tidy(self, names):
        """Drops all photos but some, and merges the files into one.

        Args:
            names: the photos of the folder.
        """
        kept = {n: self.entries[n] for n in names if n in self.entries}
        if len(kept) == len(self.entries) and len(self._files) < 2:
            return
        self.entries = kept
        old, self._files = self._files, []
        if not self._write(kept):
            return
        with contextlib.suppress(OSError):  # Keeping them only costs space.
            for path in old:
                path.unlink(missing_ok=True)

    def _read(self):
        """Reads the files, oldest first; drops faults that no longer apply."""
        try:
            found = self.place.glob(f"*{SUFFIX}")
            self._files = sorted(found, key=lambda x: x.stat().st_mtime_ns)
        except OSError:
            return
        for path in self._files:
            try:
                self.entries.update(parse_index(path.read_bytes(), self._about))
            except (OSError, ValueError) as error:
                _note(
                    f"note: {path} is not what was kept there ({error}); its "
                    "photos are embedded again"
                )
        found, is_cured = self.entries.items(), photo_kinds.is_cured
        self.entries = {n: e for n, e in found if not is_cured(e.reason)}

    def _write(self, entries):
        """Writes entries into a new file; returns whether that worked."""
        entries = {n: e for n, e in entries.items() if e.stamp}
        if not (entries and self._can_write):
            return self._can_write
        path = self.place / f"{uuid.uuid4().hex}{SUFFIX}"
        content = format_entries(entries, self._about)
        try:
            files.make_folder_of(self._folder, self._beside)
            self.place.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, lambda file: file.write(content))
        except OSError as error:
            self._can_write = False
            _note(
                f"note: the embeddings are not kept: {self.place}: "
                f"{os.strerror(error.errno or errno.EIO)}. Name another folder "
                "by --cache."
            )
        else:
            self._files.append(path)
        return self._can_write


def stamp_of(path):
    """Returns the stamp of a file; None if the file is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
