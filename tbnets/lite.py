"""Searches photos with LiteRT, without TensorFlow.

`pip install --no-deps tbnets` and `pip install ai-edge-litert numpy pillow`
install all that this module needs; a model with a sentence encoder also needs
`tokenizers`. docs/on_device.md describes the models, which `tbnets export
--litert` writes.

::

    from tbnets import lite

    model = lite.load("flickr8k_photos")
    model.search(["a dog in the snow"], "photos", top=3)
"""

import pathlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tbnets.checks import Path, Photos, refuse_single, short_repr
from tbnets.data.pictures import BrokenImageError, read_square
from tbnets.errors import InputError, MissingFileError, import_extra
from tbnets.files import CheckedFile, is_kind
from tbnets.serving import zoo
from tbnets.serving.checksums import (
    CHARACTERS,
    FOLDER,
    IMAGE,
    KINDS,
    LITERT_FORMAT,
    MODEL,
    NETWORKS,
    PIECES,
    TEXT,
    VOCABULARY,
    differences,
)
from tbnets.serving.search import PhotoSearch
from tbnets.startup import quiet_tensorflow, usable_cores
from tbnets.text.plain_tokenizer import PlainTokenizer, as_text

MOST_SIDE = 4096
"""Maximum side of the photos in pixels, which limits the memory."""
_CURE = "Export the model again, or copy it again."


def word_pieces(path, most):
    """Returns a function that maps a list of one sentence to word-piece ids.

    The ids are int32 `[1, pieces]`. `path` is `tokenizer.json`, and `most` the
    maximum number of ids.
    """
    tokenizers = import_extra("lite", "tokenizers")
    pieces = tokenizers.Tokenizer.from_file(str(path))
    pieces.enable_truncation(most)
    pieces.no_padding()

    def read(sentences):
        texts = [as_text(row, text) for row, text in enumerate(sentences)]
        rows = pieces.encode_batch(texts)
        return np.array([row.ids for row in rows], np.int32)

    return read


class Model(PhotoSearch):
    """A LiteRT model of photos and sentences.

    It has the same methods as the models returned by `tbnets.load_saved_model`.

    Args:
        path: folder of the model.
        record: content of its `model.json`.
        readers: dict that maps each input of `text.tflite` to a function from
            a list of sentences to its ids: `token_ids` to a `PlainTokenizer`,
            `piece_ids` to the result of `word_pieces`.
    """

    takes_photos = True
    takes_captions = True
    signatures = ("embed_image", "embed_text")

    def __init__(
        self, path: Path, record: dict, readers: dict[str, Any]
    ) -> None:
        self.path = pathlib.Path(path)
        self.metadata = record
        self._readers = readers
        self.vocabulary: PlainTokenizer | None = readers.get("token_ids")
        self.embedding_dim: int = record["embedding_dim"]
        self._side = record["preprocessing"]["side"]
        self._key = record["signature_key"]
        self._threads = threading.local()
        self._pool = ThreadPoolExecutor(usable_cores())
        self._contents = {
            name: (self.path / name).read_bytes() for name in NETWORKS
        }
        with quiet_tensorflow():  # LiteRT announces its delegate once.
            self.embed_text([""])

    __repr__ = short_repr("path", "embedding_dim")

    def _run(self, name):
        run = getattr(self._threads, name, None)
        if run is None:
            litert = import_extra("lite", "ai_edge_litert.interpreter")
            interpreter = litert.Interpreter(
                model_content=self._contents[name], num_threads=1
            )
            run = interpreter.get_signature_runner(self._key)
            setattr(self._threads, name, run)
        return run

    def _embed(self, name, **inputs):
        [embedding] = self._run(name)(**inputs)["embeddings"]
        # An int8 network returns vectors whose lengths differ by 1 per cent.
        return embedding / np.linalg.norm(embedding)

    def embed_text(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds sentences. Returns unit vectors, float32 `[m, embedding_dim]`.

        Args:
            texts: list of `m` strings.
        """
        refuse_single("texts", texts)
        rows = (
            {name: read([text]) for name, read in self._readers.items()}
            for text in texts
        )
        return self._stacked([self._embed(TEXT, **row) for row in rows])

    def try_images(self, images: Photos) -> tuple[np.ndarray, list[str]]:
        """Embeds photos, and reports broken photos instead of raising an error.

        Args:
            images: as in `embed_images`.

        Returns:
            (embeddings, reasons): float32 `[n, embedding_dim]`; and, for each
            photo, "" if it is valid, or its fault, such as "is empty". The
            embedding of a broken photo is 0.
        """
        refuse_single("images", images)
        pairs = list(self._pool.map(self._try_image, images))
        reasons = [reason for _, reason in pairs]
        return self._stacked([embedding for embedding, _ in pairs]), reasons

    def _try_image(self, photo):
        try:
            pixels = read_square(photo, self._side)
        except BrokenImageError as error:
            return np.zeros(self.embedding_dim, np.float32), error.reason
        return self._embed(IMAGE, pixels=pixels[None]), ""

    def _stacked(self, rows):
        return np.array(rows, np.float32).reshape(len(rows), self.embedding_dim)


def find(name_or_path: Path) -> pathlib.Path | None:
    """Returns the folder of a LiteRT model, or None if there is none.

    Args:
        name_or_path: as in `load`.
    """
    path = zoo.model_folder(name_or_path)
    for parent in (path / FOLDER, path):
        for folder in (path, *(parent / kind for kind in KINDS)):
            if (folder / MODEL).is_file():
                return folder
    return None


def load(name_or_path: Path) -> Model:
    """Loads a LiteRT model after verifying its files.

    LiteRT parses the model files in C++. Load only models that you trust.

    Args:
        name_or_path: folder that `tbnets export --litert` wrote; or a run
            folder, its folder `litert`, or the name of a zoo model, whose
            smallest LiteRT model is loaded.

    Raises:
        FileNotFoundError: there is no LiteRT model.
        ModuleNotFoundError: `ai-edge-litert` is not installed.
        ValueError: the model is damaged.

    Example:
        model = lite.load("flickr8k_photos")
        model.search(["a dog in the snow"], "photos", top=3)
    """
    path = find(name_or_path)
    if path is None:
        expected = f"be a folder with {MODEL}, which tbnets export writes"
        advice = "Run tbnets export --litert=float16."
        raise MissingFileError("model", expected, name_or_path, advice)
    record = read_record(path)
    limits, readers = record["tokenisation"], {}
    if VOCABULARY in record["sha256"]:
        words, _ = CheckedFile(path / VOCABULARY).lines()
        tables = CheckedFile(path / CHARACTERS).json()
        most = limits["max_tokens"]
        readers["token_ids"] = PlainTokenizer(words, tables, most)
    if PIECES in record["sha256"]:
        readers["piece_ids"] = word_pieces(path / PIECES, limits["max_pieces"])
    return Model(path, record, readers)


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
        ("tokenisation.max_pieces", int | None, None),
        ("sha256", dict, None),
        ("metadata", dict | None, None),
        ("metadata.likely_similarities", list[list[float]] | None, None),
    ):
        value = record
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not is_kind(value, kind) or (most and not 1 <= value <= most):
            file.refuse("a valid value", value, name, _CURE)
    if record["format"] != LITERT_FORMAT:
        file.refuse(LITERT_FORMAT, record["format"], "format", _CURE)
    needed = {VOCABULARY, CHARACTERS, PIECES} & {*record["sha256"]}
    needed = (*NETWORKS, *sorted(needed or {VOCABULARY, CHARACTERS}))
    sums = {name: record["sha256"].get(name, "") for name in needed}
    for problem in differences(path, sums):
        raise InputError(
            "model", "be a complete LiteRT model", f"{path}: {problem}", _CURE
        )
    return record
