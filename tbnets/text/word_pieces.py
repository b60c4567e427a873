"""Converts captions to BERT's word-piece ids with ops that TF Serving supports.

Source: Devlin et al. 2019, and the format of `tokenizer.json` of the package
`tokenizers`, whose ids these are.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from tbnets.checks import Strings, short_repr
from tbnets.errors import InputError
from tbnets.text.vocabulary import as_strings

# The character U+FFFD represents bytes that are not UTF-8. RE2's `\pC` has all
# control, format and private characters, but no unassigned ones.
_SPACES = r"[\t\n\r\pZ]"
_REMOVED = r"[\pC\x{FFFD}]+"
_CHINESE = (
    r"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}])"
)
_ACCENTS = r"\p{Mn}+"
_PUNCTUATION = r"([!-/:-@\[-`{-~\pP])"
_SPACED = r" \1 "
_FIRST_SENTINEL = 0xE000
"""First of the private characters that stand for special pieces such as [SEP].
Private characters of a caption are removed before."""


class WordPieces(tf.Module):
    """Maps captions to word-piece ids, with a start and an end id.

    Args:
        config: content of a `tokenizer.json` with a `WordPiece` model, a
            `BertNormalizer` and a `BertPreTokenizer`.
        max_tokens: maximum number of ids, including the start and end ids.

    Attributes:
        vocabulary: None, since ids are not those of whole words.
        config: the `config`, as JSON.
        size: number of ids.

    Raises:
        ValueError: the config is of another kind of tokenizer.

    Example:
        pieces = WordPieces(json.loads(path.read_text()), 256)
        pieces(["a penguin", ""])  # [[101, 1037, 21930, 102], [101, 102, 0, 0]]
    """

    vocabulary = None

    def __init__(self, config: Mapping[str, Any], max_tokens: int) -> None:
        super().__init__(name="tokenizer")
        self.max_tokens, self.config = max_tokens, json.dumps(config)
        model, normalizer = _parts(config)
        self._lowers = normalizer.get("lowercase", True)
        strips = normalizer.get("strip_accents")
        self._strips = self._lowers if strips is None else strips
        self._cleans = normalizer.get("clean_text", True)
        self._spaces_chinese = normalizer.get("handle_chinese_chars", True)
        ids = model["vocab"]
        pieces, self.size = sorted(ids, key=ids.get), len(ids)
        if [ids[piece] for piece in pieces] != [*range(len(ids))]:
            raise InputError("the ids of the vocabulary are not 0, 1, 2, ...")
        special = {x["content"]: x["id"] for x in config["added_tokens"]}
        special[model["unk_token"]] = ids[model["unk_token"]]
        # Each special piece is one private character in captions and pieces.
        self._sentinels = {}
        for number, (piece, at) in enumerate(special.items()):
            self._sentinels[piece] = pieces[at] = chr(_FIRST_SENTINEL + number)
        self._start, self._end = (ids[x] for x in ("[CLS]", "[SEP]"))
        unknown = self._sentinels[model["unk_token"]]
        most = model.get("max_input_chars_per_word", 100)
        self._too_long = rf"(^| )[^ ]{{{most + 1},}}"
        self._too_long_is = rf"\1{unknown}"
        self._pieces = tf_text.FastWordpieceTokenizer(
            pieces,
            suffix_indicator=model.get("continuing_subword_prefix", "##"),
            max_bytes_per_word=4 * most,
            token_out_type=tf.int32,
            unknown_token=unknown,
            no_pretokenization=True,
        )
        text = json.dumps([config["model"], normalizer, max_tokens])
        self._digest = hashlib.sha256(text.encode()).hexdigest()

    __repr__ = short_repr("max_tokens")

    def ragged(self, captions: Strings) -> tf.RaggedTensor:
        """Maps captions, string `[n]`, to ids, an int32 `tf.RaggedTensor`."""
        words = tf.strings.split(self._normalised(as_strings(captions)))
        pieces = self._pieces.tokenize(words).merge_dims(1, 2)
        count = tf.shape(words.row_splits)[0] - 1
        start, end = (tf.fill([count, 1], x) for x in (self._start, self._end))
        return tf.concat([start, pieces[:, : self.max_tokens - 2], end], axis=1)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, captions: Strings) -> tf.Tensor:
        """Maps captions, string `[n]`, to ids, int32 `[n, longest]`."""
        return self.ragged(captions).to_tensor(0)

    def graph_def(self) -> Any:
        """Returns the `GraphDef` that tokenizes captions."""
        spec = tf.TensorSpec([None], tf.string)
        traced = tf.function(self.ragged, autograph=False)
        return traced.get_concrete_function(spec).graph.as_graph_def()

    def sha256(self) -> str:
        """Returns a digest of everything that determines the ids."""
        return self._digest

    def _normalised(self, text):
        replace = tf.strings.regex_replace
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        if self._cleans:
            text = replace(replace(text, _SPACES, " "), _REMOVED, "")
        for piece, sentinel in self._sentinels.items():
            text = replace(text, _escaped(piece), f" {sentinel} ")
        if self._spaces_chinese:
            text = replace(text, _CHINESE, _SPACED)
        if self._strips:
            text = replace(tf_text.normalize_utf8(text, "NFD"), _ACCENTS, "")
        if self._lowers:
            # As the other letters, a sigma is lowered without its neighbours.
            text = tf.strings.lower(replace(text, "\u03a3", "\u03c3"), "utf-8")
        text = replace(text, _PUNCTUATION, _SPACED)
        return replace(
            replace(text, " +", " "), self._too_long, self._too_long_is
        )


def _escaped(piece):
    return "".join(rf"\x{{{ord(letter):X}}}" for letter in piece)


def _parts(config):
    """Returns the config of the model and of the normaliser."""
    kinds = {"model": "WordPiece", "normalizer": "BertNormalizer"}
    kinds["pre_tokenizer"] = "BertPreTokenizer"
    for part, kind in kinds.items():
        received = (config.get(part) or {}).get("type", kind)
        if received != kind:
            raise InputError("tokenizer", f"have a {part} {kind}", received)
    return config["model"], config.get("normalizer") or {}
