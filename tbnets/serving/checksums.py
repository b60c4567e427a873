"""The files of SavedModels and LiteRT models, their checksums and identity.

Does not import TensorFlow.
"""

import hashlib
import os
import pathlib
import re

from tbnets.checks import Path
from tbnets.data.photos import list_files
from tbnets.data.store.reader import file_sha256
from tbnets.errors import InputError
from tbnets.files import CheckedFile, write_text

GRAPH_FILE = "saved_model.pb"
METADATA_FILE = "assets.extra/tbnets.json"
CHECKSUMS = "sha256.txt"
ANSWERS = "answers.json"
"""File of expected embeddings, for a model that `assembled` completes."""
_CURE = (
    "Restore the folder: `git checkout -- model_zoo` in a clone, `pip install "
    "--force-reinstall --no-deps` of the package elsewhere."
)


# A LiteRT model:
#
#   FOLDER/image.tflite     uint8 pixels [1, side, side, 3] -> unit vector
#         /text.tflite      int32 token ids [1, words], piece ids [1, pieces] or
#                           both -> unit vector
#         /vocabulary.txt   a word per line; its id is the line's number
#         /characters.json  Unicode tables of the tokenizer
#         /tokenizer.json   word pieces, as the package `tokenizers` reads them
#         /model.json       preprocessing, tokenisation, signatures, checksums

LITERT_FORMAT = "tbnets litert 1"
NETWORKS = IMAGE, TEXT = "image.tflite", "text.tflite"
MODEL, VOCABULARY = "model.json", "vocabulary.txt"
CHARACTERS, PIECES = "characters.json", "tokenizer.json"
FOLDER = "litert"
"""Subfolder of a run or a zoo model that contains a LiteRT model of each
kind."""
KINDS = ("int8", "float16", "float32")
"""Number formats of the models, the smallest first."""


def model_files(path: Path) -> dict[str, pathlib.Path]:
    """Returns a dict that maps each file's relative path to its full path.

    Omits the checksum file. Includes links, which are not followed.
    """
    path = pathlib.Path(path)
    files = {
        file.relative_to(path).as_posix(): file
        for file in path.rglob("*")
        if file.is_symlink() or not file.is_dir()
    }
    files.pop(CHECKSUMS, None)
    return dict(sorted(files.items()))


def read_checksums(path: Path) -> dict[str, str]:
    """Reads a folder's checksum file as a dict, file name -> checksum."""
    file = CheckedFile(pathlib.Path(path, CHECKSUMS))
    checksums = {}
    for number, line in enumerate(file.lines()[0], 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if match is None or match[2] in checksums:
            expected = "a SHA-256, two spaces and the name of a new file"
            file.report(f"expected {expected}; found {line[:90]!r}", number)
        checksums[match[2]] = match[1]
    return checksums


def differences(folder, checksums):
    """Yields a short description of each missing or changed file.

    Args:
        folder: `pathlib.Path`.
        checksums: file name -> expected SHA-256 digest.
    """
    for name, digits in sorted(checksums.items()):
        file = folder / name
        if pathlib.PurePath(name).is_absolute() or ".." in name.split("/"):
            yield f"{name} is not inside the folder"
        elif not file.is_file():
            yield f"{name} is missing"
        elif file_sha256(file) != digits:
            yield f"{name} was changed: its SHA-256 differs"


def check_files(path: Path) -> None:
    """Raises ValueError if files of a model were changed, added or removed."""
    path = pathlib.Path(path)
    checksums, files = read_checksums(path), model_files(path)
    problems = [
        *differences(path, checksums),
        *(f"{name} is a link" for name in files if files[name].is_symlink()),
        *(f"{name} was added" for name in files if name not in checksums),
    ]
    if problems:
        raise InputError(
            "The files of a zoo model must be unchanged. Received: "
            f"{path}, where {problems[0]}. {_CURE}"
        )


def write_checksums(path: Path) -> None:
    """Writes the checksums of all files, as `sha256sum -c` expects them."""
    files = model_files(path).items()
    lines = [f"{file_sha256(file)}  {name}\n" for name, file in files]
    write_text(pathlib.Path(path, CHECKSUMS), "".join(lines))


def hash_files(path):
    """Returns a dict that maps a SavedModel's file names to SHA-256 digests.

    Omits `METADATA_FILE`, and the unused `fingerprint.pb`.
    """
    left_out = (METADATA_FILE, "fingerprint.pb")
    return {
        name: file_sha256(pathlib.Path(path, name))
        for name in list_files(path)
        if name not in left_out
    }


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
        raise InputError("model", "be a folder on this machine", model.path)
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
