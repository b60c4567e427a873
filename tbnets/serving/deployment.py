"""Files by which TensorFlow Serving serves an exported model.

They stand beside the versions of the model, whose folder is mounted as it is:
a server takes what is called by a number for a version, and nothing else.
"""

import math
import pathlib
import re
import string

from tbnets.errors import InputError
from tbnets.files import write_text
from tbnets.serving import saved_files
from tbnets.serving.export import is_batchable
from tbnets.serving.photo_reader import AT_ONCE

IMAGE = "tensorflow/serving:2.20.0"
"""The newest image of TensorFlow Serving, as of 2026-11-26."""
MOST_ROWS = 32
"""Rows that a server puts together: photos a second are as many beyond."""
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_BYTES_A_PIXEL = 6
_GIB = 2**30
_TEMPLATES = pathlib.Path(__file__).with_name("deployment")


def check_name(name):
    """Refuses what no server, URL and host can all call a model.

    Raises:
        ValueError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            "`output` must be a folder called as the model shall be: a letter, "
            "then letters, digits and _.- between them, 63 at most. Received: "
            f"output={name}. Choose another name."
        )


def write_deployment(version, name):
    """Writes what a server needs beside the versions of a model.

    The server batches where all signatures of the version can be: it either
    batches all or none.

    Args:
        version: folder of the SavedModel, with its warm-up.
        name: what the model is called.

    Returns:
        (paths, unbatched): of the files that were written; and the names of
        the signatures because of which requests are not batched, [] where
        they are.

    Raises:
        ValueError: see `check_name`.
    """
    check_name(name)
    version = pathlib.Path(version)
    said = saved_files.read_metadata(version)
    described = said["signatures"]
    unbatched = [n for n, one in described.items() if not is_batchable(one)]
    files = ["models.config"]
    flags = [f"--model_config_file=/models/{name}/models.config"]
    if not unbatched:
        files.append("batching_parameters.txt")
        flags.append("--enable_batching=true")
        place = f"/models/{name}/batching_parameters.txt"
        flags.append(f"--batching_parameters_file={place}")
    files += ["docker-compose.yml", "kubernetes.yaml"]
    request, limit = _gibibytes(version, said)
    words = {
        "name": name,
        "host": re.sub("[_.]", "-", name.lower()),
        "image": IMAGE,
        "rows": MOST_ROWS,
        "composed": "\n".join(f"      - {flag}" for flag in flags),
        "arguments": "\n".join(f"            - {flag}" for flag in flags),
        "request": request,
        "limit": limit,
    }
    paths = []
    for file in files:
        template = string.Template((_TEMPLATES / file).read_text("utf-8"))
        paths.append(version.parent / file)
        write_text(paths[-1], template.substitute(words))
    if unbatched:
        (version.parent / "batching_parameters.txt").unlink(missing_ok=True)
    return paths, unbatched


def _gibibytes(version, said):
    """Returns the memory that a server asks for, and the most that it takes.

    A version is loaded beside the one that it follows. Each pixel of a photo
    takes some bytes while it is decoded, and several photos are at a time.
    """
    size = sum((version / name).stat().st_size for name in said["sha256"])
    request = math.ceil(0.5 + 2 * size / _GIB)
    pixels = said.get("max_pixels") or 0
    return request, request + math.ceil(
        AT_ONCE * _BYTES_A_PIXEL * pixels / _GIB
    )
