"""Converts captions to vectors with the text networks of Keras Hub presets.

The vector of a text is computed as in the preset's training:

- CLIP, MetaCLIP 2: the projected state at the end of the text.
- SigLIP: the output of the head at the last position.
- presets of a `TextEmbedder`: the mean, maximum or first state, as configured.
- models with a `pooled_output`, such as BERT: this output.
- all others, such as DistilBERT and T5: the mean state.
"""

import copy
import functools
import hashlib
import json
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from typing_extensions import Self

from tbnets.checks import Array, Strings, short_repr
from tbnets.errors import InputError
from tbnets.extras.hub import presets
from tbnets.features.cnn import in_float32, in_policy
from tbnets.features.cnn_weights import weights_sha256
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.text_encoders import pool_words
from tbnets.text.vocabulary import constant_table


class TextPreset:
    """The text network of a preset, in float32.

    Args:
        name: as in `presets.open_preset`.
        weights: whether to load the weights, which are otherwise random.

    Attributes:
        tokenizer: `HubTokenizer`.
        embed: function from the tokenizer's ids to vectors, float32 `[n, dim]`.
    """

    def __init__(self, name, weights=True):
        with in_float32():
            self.preset = presets.open_preset(name, "text", weights=weights)
            self.pooling = pooling_of(self.preset)
            self.tokenizer = HubTokenizer(self.preset)
            backbone, padding = self.preset.backbone, self.tokenizer.padding_id
            self.side = TextSide(backbone, self.pooling, padding)
        spec = [tf.TensorSpec([None, None], tf.int32)]
        self.embed = tf.function(self.side, spec, autograph=False)

    def layer(self, **options):
        """Returns a `HubTextEncoder` with the preset's weights."""
        return HubTextEncoder.of(self.preset, **options)

    def description(self):
        """Returns everything that determines the vectors, as JSON values."""
        return {
            **self.preset.description(),
            "weights_sha256": weights_sha256(self.side.network),
            "tokenizer_sha256": self.tokenizer.sha256(),
            "pooling": self.pooling,
            "dim": self.side.dim,
        }


# The text network of a preset as a layer.


@keras.saving.register_keras_serializable(package="tbnets")
class HubTextEncoder(ConfiguredLayer):
    """Encodes captions with the text network of a Keras Hub preset.

    The initial weights are random. Use `of` to load the weights of a preset.
    Dropout is always off, since checkpoints would not contain its state.

    Args:
        preset: result of `Preset.config`.
        pooling: a value in `texts.POOLINGS`.
        padding_id: the preset's padding id.

    A call maps ids from a `HubTokenizer`, int `[n, longest]`, to vectors, float
    `[n, output_dim]`.
    """

    def __init__(
        self,
        preset: dict[str, Any],
        pooling: str = "own",
        padding_id: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.preset = _without_photos(preset)
        self.pooling, self.padding_id = pooling, padding_id
        with in_policy(self.dtype_policy.name):
            backbone = presets.rebuild(self.preset).backbone
            self._side = TextSide(backbone, pooling, padding_id)
        self.network = self._side.network
        self.output_dim = self._side.dim

    __repr__ = short_repr("output_dim", "pooling")

    @classmethod
    def of(cls, preset: Any, **kwargs: Any) -> Self:
        """Returns a layer with the weights of a `presets.Preset`."""
        tokenizer, pooling = HubTokenizer(preset), pooling_of(preset)
        layer = cls(preset.config(), pooling, tokenizer.padding_id, **kwargs)
        network = TextSide(preset.backbone, pooling).network
        layer.network.set_weights(network.get_weights())
        return layer

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the vector of each row of ids."""
        return self._side(inputs)


def _without_photos(config):
    """Returns a config whose unused image network has only one layer."""
    config = {"backbone": copy.deepcopy(config["backbone"])}
    vision = config["backbone"]["config"].get("vision_encoder")
    if vision:
        vision["config"]["num_layers"] = 1
    return config


OWN, MEAN, *_ = POOLINGS = "own", "mean", "cls", "max"
_NO_START = ("T5Backbone",)
_INPUTS = "token_ids", "segment_ids", "padding_mask"
MOST_IDS = 512
"""Maximum number of ids in a text if the preset has no limit."""
_LOOKS_BACK = "CLIPBackbone", "MetaCLIP2Backbone"
"""Backbones whose states do not depend on later ids, such as padding."""


class HubTokenizer(tf.Module):
    """Maps captions to a preset's token ids, plus 1 so that 0 is padding.

    Args:
        preset: a `presets.Preset` with a text network.

    Attributes:
        vocabulary: None.
        max_tokens: maximum number of ids in a caption, including the start and
            end ids.
        padding_id: the preset's own padding id.
    """

    vocabulary = None

    def __init__(self, preset):
        super().__init__(name="tokenizer")
        tokenizer = preset.tokenizer
        self.padding_id = getattr(tokenizer, "pad_token_id", None) or 0
        self.max_tokens = most_ids(preset.backbone) or MOST_IDS
        kind = _PairTokenizer if len(preset.sides) > 1 else _TextTokenizer
        if type(tokenizer).__name__ == "CLIPTokenizer":
            kind = _ClipTokenizer
        self._read = kind(preset, self.max_tokens)
        spec = [tf.TensorSpec([None], tf.string)]
        # Keras Hub tokenizes differently outside graphs. As a partial, the
        # function is not part of a SavedModel.
        read = tf.function(self._read, spec, autograph=False)
        self._in_graph = functools.partial(read)

    __repr__ = short_repr("max_tokens")

    def ragged(self, captions):
        """Maps captions, string `[n]`, to ids, an int32 `tf.RaggedTensor`."""
        captions = tf.convert_to_tensor(captions, tf.string)
        read = self._in_graph if tf.executing_eagerly() else self._read
        return read(captions)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, captions):
        """Maps captions, string `[n]`, to ids, int32 `[n, longest]`."""
        ids = self.ragged(captions).to_tensor(0)
        return tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]])

    def graph_def(self):
        """Returns the `GraphDef` that tokenizes captions."""
        return self._in_graph.func.get_concrete_function().graph.as_graph_def()

    def sha256(self):
        """Returns a digest of everything that determines the ids."""
        digest = hashlib.sha256(f"{self._read.settings}".encode())
        with tempfile.TemporaryDirectory() as folder:
            self._read.tokenizer.save_assets(folder)
            for path in sorted(pathlib.Path(folder).iterdir()):
                digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()


class _ClipTokenizer(tf.Module):
    """Maps captions to CLIP's ids with ops that TensorFlow Serving supports."""

    # In a graph, Keras Hub's own ops read a number as a single word, although
    # CLIP was trained on separate digits.

    def __init__(self, preset, most):
        super().__init__()
        tokenizer = preset.tokenizer
        # Untracked, since a SavedModel would store the tokenizer's tables, one
        # of which is mutable.
        vars(self)["tokenizer"] = tokenizer
        self.most = most
        self._pairs = BytePairs(tokenizer.vocabulary, tokenizer.merges)
        ends = tokenizer.start_token, tokenizer.end_token
        self._ends = [tokenizer.token_to_id(token) for token in ends]
        self.settings = "byte pairs", most

    def __call__(self, captions):
        ids = self._pairs(captions, self.most - len(self._ends))
        shape = [tf.shape(captions)[0], 1]
        start, end = (tf.fill(shape, token_id) for token_id in self._ends)
        return tf.concat([start, ids, end], axis=1) + 1


class _PairTokenizer(tf.Module):
    """Maps captions to ids, like the preprocessor of an image-text preset."""

    def __init__(self, preset, most):
        super().__init__()
        models = presets.keras_hub().models
        family = preset.backbone_name.removesuffix("Backbone")
        names = [f"{family}{kind}Preprocessor" for kind in ("", "CausalLM")]
        kind = next(name for name in names if hasattr(models, name))
        preprocessor = getattr(models, kind)
        flags = ("canonicalize_text", "to_lower", "add_start_token")
        packer = preset.part(preprocessor, image_converter=None)
        packer.sequence_length = most
        self.packer, self.tokenizer = packer, packer.tokenizer
        self.settings = [kind, most, *(getattr(packer, n, None) for n in flags)]

    def __call__(self, captions):
        _add_to_graph(self.tokenizer)
        packed = self.packer({"prompts": captions, "images": None})
        ids = tf.cast(packed["token_ids"], tf.int32) + 1
        return tf.ragged.boolean_mask(ids, packed["padding_mask"])


class _TextTokenizer(tf.Module):
    """Maps captions to ids for text-only presets, with start and end ids."""

    # TensorFlow Serving lacks the ops with which Keras Hub packs texts.

    def __init__(self, preset, most):
        super().__init__()
        self.tokenizer = tokenizer = preset.tokenizer
        start = getattr(tokenizer, "start_token_id", None)
        end = getattr(tokenizer, "end_token_id", None)
        has_start = start is not None and preset.backbone_name not in _NO_START
        self._start = [start] if has_start else []
        self._end = [] if end is None else [end]
        self._most = most - len(self._start) - len(self._end)
        self.settings = self._start, self._end, self._most

    def __call__(self, captions):
        _add_to_graph(self.tokenizer)
        ids = tf.cast(self.tokenizer(captions), tf.int32)[:, : self._most]
        count = tf.shape(captions)[0]
        start, end = (
            tf.tile(tf.constant([part], tf.int32, [1, len(part)]), [count, 1])
            for part in (self._start, self._end)
        )
        return tf.concat([start, ids, end], axis=1) + 1


def _add_to_graph(tokenizer):
    # Otherwise the model is lost as soon as TensorFlow's seed is set.
    if hasattr(tokenizer, "set_proto"):
        tokenizer.set_proto(tokenizer.proto)


def _plain(name):
    return name.removeprefix("encoder_")


def pooling_of(preset):
    """Returns how a preset pools token states, a value in `POOLINGS`."""
    if len(preset.sides) > 1:
        return OWN
    path = preset.source / "task.json"
    task = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    if not str(task.get("registered_name")).endswith("TextEmbedder"):
        return OWN
    mode = task.get("config", {}).get("pooling_mode", MEAN)
    return mode if mode in POOLINGS else MEAN


def most_ids(backbone):
    """Returns a backbone's maximum number of ids, or None if unlimited."""
    reader = getattr(backbone, "text_encoder", backbone)
    return getattr(reader, "max_sequence_length", None)


def text_network(backbone, pooling=OWN):
    """Returns a backbone's network from texts to vectors or token states."""
    if hasattr(backbone, "get_text_embeddings"):
        ids = keras.Input((None,), dtype="int32", name="token_ids")
        output = backbone.get_text_embeddings(ids)
        return keras.Model({"token_ids": ids}, output)
    inputs, output = backbone.input, backbone.output
    inputs = {k: inputs[k] for k in inputs if not k.startswith("decoder_")}
    unknown = sorted(name for name in inputs if _plain(name) not in _INPUTS)
    if unknown:
        received = f"{type(backbone).__name__}, which also reads {unknown}"
        raise InputError("preset", "read only the ids of texts", received)
    if isinstance(output, dict):
        names = ["encoder_sequence_output", "sequence_output"]
        names = ["pooled_output", *names] if pooling == OWN else names
        output = next(output[name] for name in names if name in output)
    return keras.Model(inputs, output)


class TextSide:
    """Maps token ids from a `HubTokenizer` to vectors of size `dim`.

    `pooling` is a value in `POOLINGS`. `network` is the backbone's text
    network, a Keras model.
    """

    def __init__(self, backbone, pooling=OWN, padding_id=0):
        self.network = text_network(backbone, pooling)
        self.pooling, self.padding_id = pooling, padding_id
        self.most = most_ids(backbone)
        self.dim = self.network.output_shape[-1]
        masked = any(name.endswith("mask") for name in self.network.input)
        looks_back = type(backbone).__name__ in _LOOKS_BACK
        # A model without a padding mask needs texts that are padded to the same
        # length as in training.
        self._fills = not (masked or looks_back)

    def __call__(self, ids):
        """Returns vectors `[n, dim]` for ids `[n, width]` padded with 0."""
        ids = tf.cast(ids, tf.int32)[:, : self.most]
        if self._fills:
            padding = self.most - tf.shape(ids)[1]
            ids = tf.pad(ids, [[0, 0], [0, padding]])
        mask = ids > 0
        inputs = tf.where(mask, ids - 1, self.padding_id), tf.zeros_like(ids)
        inputs = dict(zip(_INPUTS, (*inputs, tf.cast(mask, tf.int32))))
        inputs = {name: inputs[_plain(name)] for name in self.network.input}
        # Checkpoints would not contain the state of dropout.
        output = self.network(inputs, training=False)
        if output.shape.rank == 2:
            return output
        return pool_words(output, mask, self.pooling)


# CLIP's byte pairs, with ops that TensorFlow Serving supports. A word starts as
# a list of bytes. Each step merges the pair of neighbours that is earliest in
# the list of merges.
#
# Source: Sennrich et al. 2016; Radford et al. 2021, `simple_tokenizer.py`.
# Departures: HTML entities and broken encodings are not repaired, the names of
# the start and end ids are ordinary text, and words are cut after `MOST_BYTES`
# bytes.
MOST_BYTES = 256
"""Maximum length of a word in bytes. Merging takes quadratic time."""
END_OF_WORD = "</w>"
# RE2 does not count a vertical tab as a space.
_SPACES = r"[\s\v\pZ\x{85}]+"
_WORD = r"'s|'t|'re|'ve|'m|'ll|'d|\pL+|\pN|[^\s\pL\pN]+"
_NONE = np.iinfo(np.int64).max


def byte_letters() -> list[str]:
    """Returns, for each byte, the letter that represents it in vocabularies."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    unused = iter(range(256, 512))
    codes = (x if x in printable else next(unused) for x in range(256))
    return [chr(code) for code in codes]


class BytePairs(tf.Module):
    """Maps captions to byte-pair ids.

    Args:
        vocabulary: {piece: id}. The last piece of a word ends in `</w>`.
        merges: lines of the form "first second", sorted by descending priority.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[str]
    ) -> None:
        super().__init__(name="byte_pairs")
        pairs = [line.split(" ") for line in merges if "#version" not in line]
        letters, ends = byte_letters(), ("", END_OF_WORD)
        ids = [[vocabulary[x + end] for end in ends] for x in letters]
        self._letters = np.array(ids)
        triples = [[vocabulary[x] for x in (a, b, a + b)] for a, b in pairs]
        self._padding = 1 + max(vocabulary.values())
        self._base = self._padding + 1
        first, second, merged = np.array(triples, np.int64).reshape(-1, 3).T
        ranked = np.arange(len(triples)) * self._base + merged
        keys = first * self._base + second
        self._merges = constant_table(keys, ranked, _NONE)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, captions: Strings, most: int) -> tf.RaggedTensor:
        """Maps each caption to at most `most` ids, without start and end ids.

        Returns an int32 `tf.RaggedTensor` `[num_captions, (pieces)]`.
        """
        words = self._words(captions)[:, :most]  # A word has >= 1 piece.
        distinct, indices = tf.unique(words.values)
        pieces = tf.gather(self._pieces(distinct), indices)
        ids = words.with_values(tf.cast(pieces, tf.int32)).merge_dims(1, 2)
        return ids[:, :most]

    def _words(self, captions):
        text = tf.strings.unicode_transcode(captions, "UTF-8", "UTF-8")
        text = tf_text.normalize_utf8(tf.strings.lower(text), "NFC")
        text = tf.strings.regex_replace(text, _SPACES, " ")
        text = tf.strings.lower(text, "utf-8")
        text = tf.strings.regex_replace(text, _WORD, r" \0 ")
        # TF Text's `regex_split` would add 290 ops that check its offsets.
        return tf.strings.split(text)

    def _pieces(self, words):
        """Returns each word's piece ids, int64 `[n, (pieces)]`."""
        ids = self._letters_of(words)
        positions = tf.range(tf.shape(ids)[1])[tf.newaxis]

        def ranked(ids):
            return self._merges.lookup(ids[:, :-1] * self._base + ids[:, 1:])

        def merge(ids, ranks):
            best = tf.reduce_min(ranks, axis=1, keepdims=True)
            first = tf.argmin(ranks, axis=1, output_type=tf.int32)[:, None]
            is_found = best < _NONE
            shift = tf.cast(is_found & (positions > first), tf.int32)
            ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=self._padding)
            ids = tf.gather(ids, positions + shift, batch_dims=1)
            is_merged = is_found & (positions == first)
            ids = tf.where(is_merged, best % self._base, ids)
            return ids, ranked(ids)

        ids, _ = tf.while_loop(
            lambda _, ranks: tf.reduce_any(ranks < _NONE),
            merge,
            (ids, ranked(ids)),
        )
        return tf.RaggedTensor.from_tensor(ids, padding=self._padding)

    def _letters_of(self, words):
        """Returns the ids of each word's bytes, padded to `[n, 2 or more]`."""
        words = tf.strings.substr(words, 0, MOST_BYTES)
        length = tf.strings.length(words)
        width = tf.reduce_max(tf.concat([length, [2]], axis=0))
        codes = tf.io.decode_raw(words, tf.uint8, fixed_length=width)
        letters = tf.gather(self._letters, tf.cast(codes, tf.int32))
        columns, length = tf.range(width), length[:, tf.newaxis]
        ids = tf.where(columns == length - 1, letters[..., 1], letters[..., 0])
        return tf.where(columns < length, ids, self._padding)
