"""The text side of a preset of Keras Hub, as a layer of a network."""

import copy
from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Self

from tbnets.annotations import Array
from tbnets.features import hub
from tbnets.features.cnn import in_policy
from tbnets.features.hub_texts import HubTokenizer, TextSide, pooling_of
from tbnets.layers.configured import ConfiguredLayer
from tbnets.short_repr import short_repr


@keras.saving.register_keras_serializable(package="tbnets")
class HubTextEncoder(ConfiguredLayer):
    """Reads captions as a preset of Keras Hub does; weights begin at random.

    `of` takes those of the preset. Its dropout stays off in training too:
    its state would be in no checkpoint.

    Args:
        preset: what `features.hub.Preset.config` returned of it.
        pooling: one of `features.hub_texts.POOLINGS`.
        padding_id: the preset's id of padding.

    Returns from a call on int `[n, ids]` of a `HubTokenizer`: float `[n,
    output_dim]`, pooled as the preset was trained, see `features.hub_texts`.
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
            backbone = hub.rebuild(self.preset).backbone
            self._side = TextSide(backbone, pooling, padding_id)
        self.network = self._side.network
        self.output_dim = self._side.dim

    __repr__ = short_repr("output_dim", "pooling")

    @classmethod
    def of(cls, preset: hub.Preset, **kwargs: Any) -> Self:
        """Makes one with the weights of an opened preset."""
        tokenizer, pooling = HubTokenizer(preset), pooling_of(preset)
        layer = cls(preset.config(), pooling, tokenizer.padding_id, **kwargs)
        own = TextSide(preset.backbone, pooling).network
        layer.network.set_weights(own.get_weights())
        return layer

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the vector of each row of ids."""
        return self._side(inputs)


def _without_photos(config):
    """Returns a configuration whose side of images has one small layer.

    It is built along, and asked for nothing.
    """
    config = {"backbone": copy.deepcopy(config["backbone"])}
    vision = config["backbone"]["config"].get("vision_encoder")
    if vision:
        vision["config"]["num_layers"] = 1
    return config
