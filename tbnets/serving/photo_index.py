"""The embeddings of a folder of photos by one model, kept for the next search.

::

    photos.tbnets/embeddings/MODEL/*.photos1

`MODEL` begins the sha256 of the model's files. Each file holds some photos,
as `entries.format_entries` writes them.

Why no feature store (`store/`): a store is made once from a list of images,
by one process, and is then read as it is; a photo in it is never replaced or
removed. A folder of photos changes, and two searches may run at once. Here a
file is written under a name that nobody else takes and never changed: what is
newer stands in another file, and when all is embedded the process replaces
the files it has read by one. Two at once do the same work twice, no more.
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

# What is known of photos, as bytes that anyone may have changed.
#
# A line of JSON (names, sizes, times, what is wrong with broken ones), the
# embeddings as little-endian float32, and the sha256 of both. Nothing in it
# can be executed, and its size alone says how much memory it takes.

FORMAT = "tbnets photo embeddings 1"
IDENTITY = "identity.txt"
"""File beside a SavedModel that was put together: what it was made of.

Each making gives other bytes of the same model, as TensorFlow numbers its
functions anew.
"""
_DIGEST_BYTES = hashlib.sha256().digest_size


class Entry(NamedTuple):
    """What is known of a file.

    Args:
        stamp: size in bytes and time of change in nanoseconds of what was
            read, which tell that a file has not changed (one that is replaced
            by another of its size, with its time put back, is taken for the
            old one); None if it could not be read: that is not kept.
        embedding: float32 `[embedding_dim]`; None if it is no photo.
        reason: "", or what is wrong with it, a few words after "which".
    """

    stamp: tuple | None
    embedding: np.ndarray | None
    reason: str = ""


def about(model):
    """Returns what each file of a model's embeddings says of all in it.

    Among it is the sha256 of the SavedModel's graph, variables and assets,
    names and content; what is only there for people does not count. Of a
    model that was put together it is that of what it was made of.

    Raises:
        ValueError: the model is on a server, which does not tell its files.
    """
    if not os.path.isdir(model.path):
        raise InputError(
            "model",
            "be one at hand, whose files tell which it is",
            f"model={model.path}, of which there are none here",
            "Name its folder, or that of the zoo.",
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
    """Returns the content of a file; see `parse`."""
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
    """Reads the content of a file that anyone may have changed.

    Args:
        content: bytes.
        about: what `about` returned of the model that is asked.

    Returns:
        dict, name of a photo -> `Entry`.

    Raises:
        ValueError: it is damaged, or something else.
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
"""So many photos are embedded between two writes: what a kill loses."""
HELD_BYTES = 2**28
"""So much of photos is held at once; one that was no JPEG is large as PNG."""
AT_ONCE = 2
"""Batches in work at once: the cores that one leaves idle the other takes."""


def embed_folder(
    model, folder, place=None, batch_size=None, fault_of_name=lambda name: ""
):
    """Embeds the photos of a folder that are new or changed since last time.

    Files that are no photos are told on standard error with the reason, and
    counted, each time; what is broken is not decoded again. Where nothing can
    be kept, that is said once.

    Args:
        model: a `Served` that takes photos.
        folder: folder of photos, subfolders included.
        place: folder to keep the embeddings in, one for each folder of
            photos; None for that beside `folder`, False to keep nothing.
        batch_size: photos embedded at once; None for what is fast.
        fault_of_name: function of a photo's path from the folder -> why it
            is left out for that, a few words after "which"; "" for no reason.

    Returns:
        `(ids, embeddings)`: paths relative to the folder, and float32 `[n,
        embedding_dim]`.

    Raises:
        FileNotFoundError: the folder holds no file named as a photo.
        ValueError: none of its files is a photo, or an embedding is not
            finite.
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
    """Embeds photos of a folder, leaving out files that are none.

    Args:
        model: as in `embed_folder`.
        folder: folder of photos.
        paths: which of its files: name -> `pathlib.Path` or `os.DirEntry`.
        others: those of its files that are told of as left out.
        index: the `Index` that knows some; None to keep nothing.
        batch_size: as in `embed_folder`.
        fault_of_name: as in `embed_folder`.

    Returns: and raises as `embed_folder`.
    """
    index = index or Index()
    # Looked at before they are read: what changes meanwhile is new next time.
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
    # Of many rows far faster than `np.stack`.
    return list(rows), np.concatenate([*rows.values()]).reshape(len(rows), -1)


def _embed(model, paths, stamps, names):
    """Returns the `Entry` of each of some files."""
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
    """Returns the `Entry` of each of some contents: name -> bytes."""
    # The model itself tells what a photo is.
    embeddings, reasons = model.try_images(list(contents.values()))
    found = {}
    for name, row, reason in zip(contents, embeddings, reasons):
        check_finite(f"embedding of {name}", row[None])
        found[name] = Entry(stamps[name], None if reason else row, reason)
    return found


def _note(text):
    """Prints a line on standard error, beside any progress bar."""
    say(files.readable(text))


class Index:
    """What is kept of a folder of photos.

    Args:
        place: as of `embed_folder`; nothing is written until `save`.
        model: the `Served` that embeds them; nothing is kept of one that is
            no folder here: behind an address another may stand tomorrow.
        folder: that of the photos.

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
        """Tells whether a photo is here and has not changed."""
        known = self.entries.get(name)
        return bool(known and stamp) and known.stamp == stamp

    def add(self, entries):
        """Takes entries, name -> `Entry`, in place of what was known."""
        self.entries.update(entries)
        self._unsaved.update(entries)

    def save(self, at_least=1):
        """Writes what was added, once there is so much of it.

        Returns:
            Whether what was embedded is kept.
        """
        if len(self._unsaved) >= at_least:
            self._write(self._unsaved)
            self._unsaved = {}
        return self._can_write

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
        """Reads the files, the oldest first, so that the newest counts.

        What is of a kind that is read since then is forgotten.
        """
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
        """Writes entries into a file of their own; says where it can not.

        Returns:
            Whether they are written.
        """
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
    """Returns the stamp of a file; None where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
