"""The side of a preset of Keras Hub that turns photos into vectors.

`last` is the vector that the preset was trained to give:

- CLIP, MetaCLIP 2, SigLIP: the projected embedding, which texts are compared
  with, before it is brought to length 1;
- DINOv2, DINOv3, DeiT, ViT: the class token after the last normalisation;
- ViT without a class token, Swin and others of tokens: their mean;
- convolutional backbones: the last map, averaged over its positions.

Any other layer is said by its name, of the vision encoder where there is one
(`clip_vision_encoder_encoder_block_5`), or by that of a level (`P4`), where it
has levels; maps are averaged over positions, tokens over all of them.
"""

import dataclasses

import keras
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features import hub
from tbnets.features.cnn import Cnn, in_float32

USUAL_SIZE = 224
"""Side of the images where neither the backbone nor its converter says."""
_WITH_CLASS_TOKEN = ("DINOV2Backbone", "DINOV3Backbone", "DeiTBackbone")
_AFTER_ENCODER = "vision_pooler", "vision_post_layer_norm", "vision_projection"


class PresetPhotos:
    """Brings a photo to a square as an image converter does, in the graph.

    What decodes photos takes it in the place of a size in pixels.

    Args:
        converter: `keras_hub.layers.ImageConverter`.
        side: of the square, in pixels.
    """

    @in_float32()
    def __init__(self, converter, side):
        self.side = side
        options = {**converter.get_config(), "image_size": (side, side)}
        options.pop("dtype", None)
        self._resizing = type(converter)(**options).resizing
        how = "cropped" if converter.crop_to_aspect_ratio else "squeezed"
        how = "padded" if converter.pad_to_aspect_ratio else how
        smooth = "antialiased, " if converter.antialias else ""
        self.description = f"{how}, {converter.interpolation}, {smooth}upright"

    def __call__(self, image):
        """Converts uint8 `[height, width, 3]` to float32 `[side, side, 3]`."""
        square = self._resizing(tf.cast(image, tf.float32))
        return tf.ensure_shape(square, [self.side, self.side, 3])


@dataclasses.dataclass(frozen=True, eq=False)
class HubCnn(Cnn):
    """The vision side of a preset, as a `Cnn`.

    Args:
        preset: the `hub.Preset`.
    """

    preset: hub.Preset | None = None

    def photos_of(self, side):
        """Returns what `images.decode_image` takes in the place of a size."""
        return PresetPhotos(self.preset.image_converter, side)

    def describe(self, layers, resize=None):
        """Returns what descriptions of features tell; no path."""
        return {**super().describe(layers, resize), **self.preset.description()}

    def weighty_layers(self):
        """Refuses: which these are differs from backbone to backbone."""
        raise InputError(
            "`layers` must name layers of a preset, or `last`. Received: "
            f"{self.name} with full_network, which is of networks of "
            "convolutions. Change --layers."
        )

    def known_outputs(self):
        """Returns name of a layer or a level -> its output."""
        found = getattr(self.preset.backbone, "pyramid_outputs", {})
        for name, output in (super().known_outputs() | found).items():
            while isinstance(output, list | tuple):
                output = output[0]
            found = {**found, name: output}
        return found


def build_hub_cnn(name, random=False, image_size=None):
    """Opens the vision side of a preset.

    Args:
        name: as `hub.open_preset` takes it.
        random: whether it gets random weights of the global seed.
        image_size: side of the photos in pixels; None for its own.

    Returns:
        A `HubCnn`.

    Raises:
        ValueError: it has no such side, or it is not for this size; see
            `hub.open_preset` too.
    """
    preset = hub.open_preset(name, "image", image_size, weights=not random)
    return vision_of(preset, image_size)


def vision_of(preset, image_size=None):
    """Returns the `HubCnn` of an opened preset; see `build_hub_cnn`."""
    preset.require("image")
    converter = preset.image_converter
    inputs, output = _inputs_and_vector(preset)
    sides = set(inputs.shape[1:3]) - {None}
    own = sides or set(converter.image_size or ())
    side = image_size or max(own, default=USUAL_SIZE)
    if len(own) > 1 or {side} < sides or inputs.shape[-1] != 3:
        raise InputError(
            "`preset` must take squares of three colours. Received: preset="
            f"{preset.name}, which takes {inputs.shape[1:]}. Choose another."
        )
    name, scaling = f"{hub.PREFIX}{preset.kind}", _scaling(converter)
    network = keras.Model(inputs, output)
    return HubCnn(name, network, scaling, side, top=False, preset=preset)


def _inputs_and_vector(preset):
    """Returns the Keras tensors of the images and of what becomes of them."""
    backbone = preset.backbone
    encoder = getattr(backbone, "vision_encoder", backbone)
    has_token = getattr(backbone, "use_class_token", False)
    output = encoder.output
    if isinstance(output, dict):
        output = output.get("sequence_output", list(output.values())[-1])
    if encoder is not backbone:
        for name in _AFTER_ENCODER:
            output = getattr(backbone, name, lambda same: same)(output)
    elif has_token or preset.kind in _WITH_CLASS_TOKEN:
        output = output[:, 0]
    return encoder.inputs[0], output


def _scaling(converter):
    """Returns what a converter does to colours: [0, 255] -> its own."""
    scale = 1.0 if converter.scale is None else converter.scale
    offset = 0.0 if converter.offset is None else converter.offset

    def scaled(pixels):
        kind = pixels.dtype
        return pixels * tf.constant(scale, kind) + tf.constant(offset, kind)

    return scaled
