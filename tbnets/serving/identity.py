"""Identifies the model that embedded the photos of a cache or of an index."""

import hashlib
import os
import pathlib

from tbnets.data.store.manifest import file_sha256
from tbnets.errors import InputError
from tbnets.serving.checksums import CHECKSUMS, GRAPH_FILE, hash_files
from tbnets.serving.litert_files import NETWORKS

FORMAT = "tbnets photo embeddings 1"
IDENTITY = "identity.txt"
"""File next to an assembled SavedModel, with a digest of the model's parts.

Two assemblies of one model differ, because TensorFlow numbers the functions
differently each time.
"""


def identity_of(model):
    """Returns a dict that identifies a model by its SHA-256 digest.

    The digest covers the graph, variables and assets of a SavedModel, the
    networks of a LiteRT model, or the parts of an assembled model. Raises
    ValueError if the model is on a server.
    """
    if not os.path.isdir(model.path):
        raise InputError(
            "model",
            "be a model on this machine",
            f"model={model.path}, whose files are not on this machine",
            "Pass the folder of a model.",
        )
    beside = pathlib.Path(model.path).parent
    if (beside / IDENTITY).is_file() and (beside / CHECKSUMS).is_file():
        digest = file_sha256(beside / IDENTITY)
    else:
        hashes = hash_files(model.path)
        lines = [
            f"{digits}  {name}\n"
            for part in (GRAPH_FILE, "variables/", "assets/", *NETWORKS)
            for name, digits in hashes.items()
            if name.startswith(part)
        ]
        digest = hashlib.sha256(os.fsencode("".join(lines))).hexdigest()
    return {
        "format": FORMAT,
        "model": digest,
        "embedding_dim": model.embedding_dim,
    }
