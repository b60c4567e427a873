"""What is known of photos, as bytes that anyone may have changed.

A line of JSON (names, sizes, times, what is wrong with broken ones), the
embeddings as little-endian float32, and the sha256 of both. Nothing in it can
be executed, and its size alone says how much memory it takes.
"""

import hashlib
import json
import os
import pathlib
from typing import NamedTuple

import numpy as np

from tbnets.checked_files import parse_json
from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError
from tbnets.serving.checksums import CHECKSUMS
from tbnets.serving.saved_files import GRAPH_FILE, hash_files

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
            "`model` must be one at hand, whose files tell which it is. "
            f"Received: model={model.path}, of which there are none here. Name "
            "its folder, or that of the zoo."
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


def parse(content, about):
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
