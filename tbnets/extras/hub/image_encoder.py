"""The image side of a preset of Keras Hub, as a layer of a network."""

import json
from typing import Any

import keras

from tbnets.checks import short_repr
from tbnets.extras.hub import presets
from tbnets.features.image_encoders import PooledEncoder


@keras.saving.register_keras_serializable(package="tbnets")
class PresetEncoder(PooledEncoder):
    """The vision side of a preset of Keras Hub.

    Args:
        preset: an opened `Preset`; or the JSON text of what its `config`
            returned, by which the layer is built again with random weights,
            wherever the preset is by then.
        image_size: side of the square input in pixels; None for its own.
        fine_tune: whether its weights are trained. When False its batch
            normalisation and dropout also stay in inference mode.

    Returns from a call on float `[n, image_size, image_size, 3]` RGB in
    [0, 255], as `PresetPhotos` gives it: `[n, dim]`, the vector
    that the preset was trained to give.
    """

    def __init__(
        self,
        preset: Any,
        image_size: int | None = None,
        fine_tune: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(preset, str):
            preset = presets.rebuild(json.loads(preset))
        self.preset = json.dumps(preset.config())
        found = presets.vision_of(preset, image_size)
        self.image_size = found.image_size
        self.take_network(found, fine_tune)

    __repr__ = short_repr("image_size", "fine_tune")
