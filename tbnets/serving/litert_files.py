"""Describes and reads the files of a LiteRT model, without TensorFlow.

::

    FOLDER/image.tflite     uint8 pixels [1, side, side, 3] -> unit vector
          /text.tflite      int32 token ids [1, words] -> unit vector
          /vocabulary.txt   a word per line; its id is the line's number
          /characters.json  Unicode tables of the tokenizer
          /model.json       preprocessing, tokenisation, signatures, checksums
"""

from typing import Any

from tbnets.errors import InputError
from tbnets.files import CheckedFile
from tbnets.serving.checksums import differences

FORMAT = "tbnets litert 1"
NETWORKS = IMAGE, TEXT = "image.tflite", "text.tflite"
MODEL, VOCABULARY = "model.json", "vocabulary.txt"
CHARACTERS = "characters.json"
FOLDER = "litert"
"""Subfolder of a run or a zoo model that contains a LiteRT model of each
kind."""
KINDS = ("int8", "float16", "float32")
"""Number formats of the models, the smallest first."""
MOST_SIDE = 4096
"""Maximum side of the photos in pixels, which limits the memory."""
_CURE = "Export the model again, or copy it again."


def read_record(path):
    """Returns the content of `model.json`, after checking it and all files."""
    file = CheckedFile(path / MODEL)
    record: Any = file.json()
    for name, kind, most in (
        ("format", str, None),
        ("signature_key", str, None),
        ("embedding_dim", int, 1 << 20),
        ("preprocessing.side", int, MOST_SIDE),
        ("tokenisation.max_tokens", int | None, None),
        ("sha256", dict, None),
        ("metadata", dict | None, None),
        ("metadata.likely_similarity", float | None, None),
    ):
        value = record
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (most and not 1 <= value <= most):
            file.refuse("a valid value", value, name, _CURE)
    if record["format"] != FORMAT:
        file.refuse(FORMAT, record["format"], "format", _CURE)
    needed = (*NETWORKS, VOCABULARY, CHARACTERS)
    sums = {name: record["sha256"].get(name, "") for name in needed}
    for problem in differences(path, sums):
        raise InputError(
            "model", "be a complete LiteRT model", f"{path}: {problem}", _CURE
        )
    return record
