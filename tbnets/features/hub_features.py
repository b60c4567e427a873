"""Features of captions that a preset of Keras Hub gives, frozen."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.errors import InputError
from tbnets.features import hub, hub_texts
from tbnets.features.caption_encoder import CaptionEncoder
from tbnets.features.cnn import in_float32
from tbnets.features.cnn_weights import weights_sha256

BATCH = 64


class HubFeatures(CaptionEncoder):
    """The vectors of captions by a preset, pooled as it was trained.

    It learns nothing of captions: `of` makes one that is fitted. The file
    keeps digests of the preset and the name it was opened by, not its
    weights.

    Args:
        preset: what tells it from others, as `of` finds it.
    """

    kind = "hub"
    parameters = ("preset",)
    chunk = 2 * BATCH

    def __init__(self, preset: dict[str, Any]) -> None:
        super().__init__()
        self.preset = preset

    @classmethod
    def of(cls, name: str) -> Self:
        """Opens a preset, see `features.hub.open_preset`."""
        name = hub.placed(name)
        opened = _Opened(name)
        encoder = cls(opened.told())
        encoder.notes_["name"] = name
        vars(encoder)["opened"] = opened
        return encoder

    @functools.cached_property
    def opened(self) -> "_Opened":
        """The preset, found by its name, and the same as before.

        Raises:
            ValueError: another one has its name now; or see `open_preset`.
        """
        name = self.notes_.get("name", "")
        opened = _Opened(name)
        if opened.told() != self.preset:
            raise InputError(
                "`preset` must be the one that made the features. Received: "
                f"preset={name}, whose weights or words are others now. Put "
                "the right one back, or extract the features again."
            )
        return opened

    @property
    def dim(self) -> int:
        """The size of a caption's vector."""
        return self.preset["dim"]

    def tokenizer(self, max_tokens: int | None = None):
        """Returns what reads captions, a `hub_texts.HubTokenizer`."""
        return hub_texts.HubTokenizer(self.opened.preset, max_tokens)

    def describe(self) -> str:
        """Returns what it is, in a few words."""
        return f"{self.dim}-d texts of a {self.preset['preset']}, frozen"

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns the vectors, float32 `[n, dim]`; long ones go together."""
        opened, made = self.opened, [np.zeros((0, self.dim), np.float32)]
        ids = opened.tokenizer.ragged(list(captions))
        order = np.argsort(ids.row_lengths().numpy(), kind="stable")
        for start in range(0, len(order), BATCH):
            rows = tf.gather(ids, order[start : start + BATCH])
            made.append(opened.embed(rows.to_tensor(0)).numpy())
        return np.concatenate(made)[np.argsort(order)]


class _Opened:
    """A preset whose texts are read, in float32."""

    def __init__(self, name):
        with in_float32():
            self.preset = hub.open_preset(name, "text")
            self.pooling = hub_texts.pooling_of(self.preset)
            self.tokenizer = hub_texts.HubTokenizer(self.preset)
            backbone, padding = self.preset.backbone, self.tokenizer.padding_id
            self.side = hub_texts.TextSide(backbone, self.pooling, padding)
        spec = [tf.TensorSpec([None, None], tf.int32)]
        self.embed = tf.function(self.side, spec, autograph=False)

    def told(self):
        """Returns all that decides what it makes of a text; no path."""
        return {
            **self.preset.description(),
            "weights_sha256": weights_sha256(self.side.network),
            "tokenizer_sha256": self.tokenizer.sha256(),
            "pooling": self.pooling,
            "dim": self.side.dim,
        }
