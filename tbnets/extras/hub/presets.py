"""Opens Keras Hub presets, and builds their image networks.

A preset is a folder of JSON files, weights and vocabulary files. It is chosen
by its Keras Hub name (`clip_vit_base_patch16`), its handle (`kaggle://...`,
`hf://...`) or its path. Keras Hub reads the files, and is trusted to read only
weights and configurations, as an installed package is.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import warnings
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import short_repr, short_text
from tbnets.data.photos import list_files
from tbnets.errors import (
    InputError,
    MissingFileError,
    MissingPackageError,
    UserError,
    import_extra,
)
from tbnets.features.cnn import Cnn, in_float32
from tbnets.features.hub import PREFIX
from tbnets.features.image_encoders import PooledEncoder

SIDES = ("image", "text")
_PASSING = ("dtype", "build_config", "compile_config")
"""Config keys that describe the process that wrote the config."""


def keras_hub():
    """Returns the module `keras_hub`."""
    if keras.__version__.startswith("2."):
        raise MissingPackageError(
            "Presets of Keras Hub need the current stack: Keras 3 and its "
            f"TensorFlow. Received: Keras {keras.__version__}. Run in a "
            'separate environment: pip install "tbnets[hub]".',
            name="keras_hub",
        )
    return import_extra("hub", "keras_hub")


def folder_of(name):
    """Returns the folder of a preset; downloads it on first use.

    `name` is a folder, a handle or a Keras Hub name, with or without `PREFIX`.
    A folder takes precedence.
    """
    name, known = name.removeprefix(PREFIX), keras_hub().models.Backbone.presets
    if pathlib.Path(name).is_dir():
        # Keras Hub takes a relative path for one of its names.
        return pathlib.Path(name).absolute()
    handle = known[name]["kaggle_handle"] if name in known else name
    scheme, _, handle = handle.partition("://")
    with _reporting_damage(name):
        if scheme == "hf":
            download = import_extra("hub", "huggingface_hub").snapshot_download
            return pathlib.Path(download(handle))
        if scheme == "kaggle":
            download = import_extra("hub", "kagglehub").model_download
            return pathlib.Path(download(handle))
    raise MissingFileError(
        "preset",
        "be an existing folder, a name of Keras Hub, or a handle, kaggle://... "
        "or hf://...",
        f"preset={name}",
    )


def files(name):
    """Returns the files of a preset that affect its vectors, as {name: path}.

    All files are listed but README files and hidden files.
    """
    folder = folder_of(name)
    names = list_files(folder)
    names = [x for x in names if not x.startswith((".", "README"))]
    return {name: folder / name for name in names}


class Preset:
    """An opened Keras Hub preset.

    Args:
        name: name from the user, without `PREFIX`.
        source: folder of its files; None for a rebuilt preset.
        backbone: `keras_hub.models.Backbone`.
        image_converter: config of a rebuilt preset's image converter.

    Attributes:
        backbone_name: name of the backbone's class.
        sides: the values in `SIDES` that the preset supports.
    """

    def __init__(self, name, source, backbone, image_converter=None):
        self.name, self.source, self.backbone = name, source, backbone
        self._image_converter = image_converter
        self.backbone_name = type(backbone).__name__
        self.sides = _sides(backbone)

    def require(self, side):
        """Raises an error if the preset lacks `side`, a value in `SIDES`."""
        if side not in self.sides:
            raise InputError(
                "preset",
                f"be a preset that turns {side}s into vectors",
                f"preset={self.name}, a {self.backbone_name}",
            )

    @functools.cached_property
    def image_converter(self):
        """The `keras_hub.layers.ImageConverter`, in float32."""
        kind = keras_hub().layers.ImageConverter
        if self.source is None:
            return converter_of({"image_converter": self._image_converter})
        return self.part(kind)

    @functools.cached_property
    def tokenizer(self):
        """The `keras_hub.tokenizers.Tokenizer`."""
        return self.part(keras_hub().tokenizers.Tokenizer)

    def part(self, kind, **components):
        """Opens the preset's tokenizer, preprocessor or image converter.

        `kind` is its class. `components` are passed to `from_preset`.
        """
        with _reporting_damage(self.name):
            return kind.from_preset(str(self.source), **components)

    def config(self):
        """Returns the config for `rebuild`, without weights or vocabulary."""
        parts = {"backbone": self.backbone}
        if "image" in self.sides:
            parts["image_converter"] = self.image_converter
        dump = keras.saving.serialize_keras_object
        return {k: _bare(dump(part)) for k, part in parts.items()}

    def description(self):
        """Returns the backbone's class and a config digest, for manifests."""
        text = json.dumps(self.config(), sort_keys=True).encode()
        digest = hashlib.sha256(text).hexdigest()
        return {"preset": self.backbone_name, "config_sha256": digest}


def open_preset(name, side=None, image_size=None, weights=True):
    """Opens a preset, with weights in the dtype of the global policy.

    Args:
        name: as in `folder_of`.
        side: network that the preset must have, "image" or "text"; None for
            either.
        image_size: side of the images in pixels; None for the preset's own.
        weights: whether to load the weights, which are otherwise random.
    """
    name, source = name.removeprefix(PREFIX), folder_of(name)
    read = keras_hub().models.Backbone.from_preset
    label = f"{name} with image_size={image_size}" if image_size else name
    with _reporting_damage(label):
        options = {"load_weights": weights}
        if image_size:
            backbone = read(str(source), load_weights=False)
            preset = Preset(name, source, backbone)
            preset.require("image")
            if vision_of(preset).network.input_shape[1] != image_size:
                options["image_shape"] = (image_size, image_size, 3)
        preset = Preset(name, source, read(str(source), **options))
    if side:
        preset.require(side)
    return preset


def rebuild(config):
    """Rebuilds a preset of a checkpoint by its config, with random weights."""
    kind = keras_hub().models.Backbone
    backbone = _deserialized(config.get("backbone"), kind)
    converter = config.get("image_converter")
    return Preset("the preset of a checkpoint", None, backbone, converter)


def converter_of(config):
    """Rebuilds the image converter from a config made by `Preset.config`."""
    kind = keras_hub().layers.ImageConverter
    with in_float32():
        return _deserialized(config.get("image_converter"), kind)


def _deserialized(config, kind):
    make = keras.saving.deserialize_keras_object
    with _reporting_damage("the preset of a checkpoint"):
        part = make(_bare(config), safe_mode=True)
        if not isinstance(part, kind):
            raise TypeError(f"{short_text(part)} is no {kind.__name__}")
    return part


def _bare(config):
    """Returns a config without the keys in `_PASSING`."""
    if isinstance(config, dict):
        return {k: _bare(v) for k, v in config.items() if k not in _PASSING}
    if isinstance(config, list | tuple):
        return [_bare(each) for each in config]
    return config


@contextlib.contextmanager
def _reporting_damage(name):
    try:
        with warnings.catch_warnings():  # Faults raise errors anyway.
            warnings.simplefilter("ignore")
            yield
    except UserError:
        raise
    except Exception as error:  # Keras Hub raises any error.
        reason = f"preset={name} ({' '.join(str(error).split())[:500]})"
        raise InputError(
            "preset", "be a preset that Keras Hub can open", reason
        ) from error


def _sides(backbone):
    names = ("get_vision_embeddings", "get_text_embeddings", "vision_encoder")
    if all(hasattr(backbone, name) for name in names):
        return SIDES
    inputs = {tensor.name: tensor for tensor in backbone.inputs}
    if [len(tensor.shape) for tensor in inputs.values()] == [4]:
        return ("image",)
    is_text = any(name.endswith("token_ids") for name in inputs)
    is_text &= all(len(tensor.shape) == 2 for tensor in inputs.values())
    return ("text",) if is_text else ()


# The image network of a preset. `last` is the vector that the preset was
# trained to produce:
#
# - CLIP, MetaCLIP 2, SigLIP: the projected embedding that is compared with
#   texts, before normalisation to length 1;
# - DINOv2, DINOv3, DeiT, ViT: the class token after the last normalisation;
# - ViT without a class token, Swin and others with tokens: the mean of the
#   tokens;
# - convolutional backbones: the last map, averaged over its positions.
#
# Other layers are given by their name in the vision encoder, if there is one
# (`clip_vision_encoder_encoder_block_5`), or by the name of a pyramid level
# (`P4`). Feature maps are averaged over positions, and token sequences over
# tokens.

USUAL_SIZE = 224
"""Side of the images if neither the backbone nor its converter has a size."""
_WITH_CLASS_TOKEN = ("DINOV2Backbone", "DINOV3Backbone", "DeiTBackbone")
_AFTER_ENCODER = "vision_pooler", "vision_post_layer_norm", "vision_projection"


class PresetPhotos:
    """Resizes photos to squares in a graph, like an image converter."""

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
    """The image network of a preset, as a `Cnn`."""

    preset: Preset | None = None

    def photo_resizer(self, side):
        """Returns the `PresetPhotos` for `images.decode_image`."""
        return PresetPhotos(self.preset.image_converter, side)

    def description(self):
        """Returns a description without paths, for feature stores."""
        return {**super().description(), **self.preset.description()}

    def weighty_layers(self):
        """Raises an error, since the layers with weights vary by backbone."""
        raise InputError("layers", "be `last` or layers", "full_network")

    def known_outputs(self):
        """Returns the outputs of layers and pyramid levels, by name."""
        levels = getattr(self.preset.backbone, "pyramid_outputs", {})
        outputs = super().known_outputs() | levels
        return {n: tf.nest.flatten(x)[0] for n, x in outputs.items()}


def build_hub_cnn(name, random=False, image_size=None):
    """Opens the image network of a preset as a `HubCnn`.

    If `random` is True, the weights are drawn with the global seed.
    `image_size` is as in `open_preset`. Raises ValueError if the preset has no
    image network for this size.
    """
    preset = open_preset(name, "image", image_size, weights=not random)
    return vision_of(preset, image_size)


def vision_of(preset, image_size=None):
    """Returns the `HubCnn` of an opened preset."""
    preset.require("image")
    converter = preset.image_converter
    inputs, output = _inputs_and_vector(preset)
    sides = set(inputs.shape[1:3]) - {None}
    known_sides = sides or set(converter.image_size or ())
    side = image_size or max(known_sides, default=USUAL_SIZE)
    fits = not sides or sides == {side}
    if len(known_sides) > 1 or not fits or inputs.shape[-1] != 3:
        received = f"preset={preset.name}, which takes {inputs.shape[1:]}"
        raise InputError("preset", f"take RGB images of size {side}", received)
    name, scaling = f"{PREFIX}{preset.backbone_name}", _scaling(converter)
    network = keras.Model(inputs, output)
    return HubCnn(name, network, scaling, side, top=False, preset=preset)


def _inputs_and_vector(preset):
    backbone = preset.backbone
    encoder = getattr(backbone, "vision_encoder", backbone)
    has_token = getattr(backbone, "use_class_token", False)
    output = encoder.output
    if isinstance(output, dict):
        output = output.get("sequence_output", list(output.values())[-1])
    if encoder is not backbone:
        for name in _AFTER_ENCODER:
            output = getattr(backbone, name, lambda same: same)(output)
    elif has_token or preset.backbone_name in _WITH_CLASS_TOKEN:
        output = output[:, 0]
    return encoder.inputs[0], output


def _scaling(converter):
    scale = 1.0 if converter.scale is None else converter.scale
    offset = 0.0 if converter.offset is None else converter.offset

    def scaled(pixels):
        kind = pixels.dtype
        return pixels * tf.constant(scale, kind) + tf.constant(offset, kind)

    return scaled


@keras.saving.register_keras_serializable(package="tbnets")
class PresetEncoder(PooledEncoder):
    """Encodes photos with the image network of a Keras Hub preset.

    Args:
        preset: result of `open_preset`, whose weights the layer shares; or its
            `config` as JSON text, from which the layer is rebuilt with random
            weights.
        image_size: side of the square input in pixels; None for the preset's
            own size.
        fine_tune: whether to train the preset's weights. If False, batch
            normalisation and dropout are in inference mode.

    A call maps RGB photos, float `[n, image_size, image_size, 3]` in [0, 255],
    to the vectors that the preset was trained to produce, `[n, dim]`.
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
            preset = rebuild(json.loads(preset))
        self.preset = json.dumps(preset.config())
        cnn = vision_of(preset, image_size)
        self.image_size = cnn.image_size
        self.take_network(cnn, fine_tune)

    __repr__ = short_repr("image_size", "fine_tune")
