"""Decodes and crops photos, and computes their features with a network."""

import functools

import keras
import tensorflow as tf

from tbnets.data.images import decode_image, decode_images
from tbnets.data.store.features import SIDE_BY_SIDE
from tbnets.errors import InputError, check_choice
from tbnets.features import hub
from tbnets.features.cnn import (
    FULL_NETWORK,
    LAST,
    SQUEEZED,
    build_cnn,
    call_with_any_batch,
    fold_batch_normalization,
    full_network_outputs,
    in_float32,
    maps_network,
    pooled_network,
)


class SeveralNetworks:
    """Concatenates the features of several `PhotoFeatures`."""

    def __init__(self, parts):
        self.parts = tuple(parts)
        self.dim = sum(part.dim for part in self.parts)

    def decode(self, image_bytes):
        """Returns one decoded photo, float32 `[side, side, 3]`, per network."""
        return tuple(part.decode(image_bytes) for part in self.parts)

    def forward(self, photos):
        """Computes the features of decoded photos, float32 `[n, dim]`.

        `photos` contains float32 `[n, side, side, 3]` for each network.
        """
        pairs = zip(self.parts, photos)
        return tf.concat([part.forward(x) for part, x in pairs], axis=1)

    def __call__(self, image_bytes):
        """Computes features `[n, dim]` of the JPEG or PNG contents `[n]`."""
        return tf.concat([part(image_bytes) for part in self.parts], axis=1)


CROPS = ("one", "ten")
RANDOM = "random"


def ten_crops(photos, size):
    """Crops the corners and the centre of photos, and mirrors the crops.

    `photos` is float `[n, side, side, 3]`. `size` is the side of the crops in
    pixels, at most `side`. The papers crop 224 pixels from a side of 256.
    Returns float `[n * 10, size, size, 3]`. The order of a photo's crops is top
    left, top right, bottom left, bottom right and centre, then their mirror
    images.

    Source: Wang et al. 2016, Sec. 3.1.
    """
    far = photos.shape[1] - size
    middle = far // 2
    corners = ((0, 0), (0, far), (far, 0), (far, far), (middle, middle))
    crops = [photos[:, y : y + size, x : x + size] for y, x in corners]
    crops = tf.stack(crops, axis=1)
    crops = tf.concat([crops, crops[:, :, :, ::-1]], axis=1)
    return tf.reshape(crops, [-1, size, size, 3])


class PhotoFeatures:
    """Computes features of photos with the network of a `cnn.Cnn`.

    Args:
        layers: names of the layers whose averaged activations are concatenated;
            `["last"]` for the last layer before a classifier; or
            `["full_network"]` for all layers (Vilalta et al. 2017).
        crops: `one` for the whole photo, resized to the network's input, or
            `ten` for the average over `ten_crops`.

    Attributes:
        resizer: the `image_size` argument for `images.decode_image`.
        maps: function like `forward` that returns the maps whose averages are
            the features, float32 `[n, height, width, dim]`; None if there are
            no such maps.
    """

    @in_float32()
    def __init__(self, cnn, layers=(LAST,), crops="one"):
        check_choice("crops", crops, CROPS)
        self.cnn = cnn
        self.layers = list(layers)
        self.crops = crops
        is_full = self.layers == [FULL_NETWORK]
        outputs = full_network_outputs(cnn) if is_full else cnn.outputs(layers)
        self.network = fold_batch_normalization(pooled_network(cnn, outputs))
        self.dim = int(self.network.output_shape[-1])
        maps = maps_network(self.network) if crops == "one" else None
        self.maps = maps and functools.partial(
            call_with_any_batch, functools.partial(self._through, maps)
        )
        part = cnn.crop_fraction if crops == "ten" else 1
        self.photo_size = round(cnn.image_size / part)
        self.resizer = cnn.photo_resizer(self.photo_size)
        photos = tf.TensorSpec([None, self.photo_size, self.photo_size, 3])
        self.compiled_forward = tf.function(
            self.forward, [photos], autograph=False
        )

    def description(self):
        """Returns the settings for the manifest of a store."""
        return {
            **self.cnn.description(),
            "layers": self.layers,
            "resize": getattr(self.resizer, "description", SQUEEZED),
            "crops": self.crops,
            "photo_size": self.photo_size,
            "pooling": "average",
        }

    def decode(self, image_bytes):
        """Decodes a photo, string `[]`, to float32 `[side, side, 3]`."""
        return decode_image(image_bytes, self.resizer)

    def forward(self, photos):
        """Computes the features of decoded photos, float32 `[n, dim]`.

        `photos` is float32 `[n, photo_size, photo_size, 3]`, RGB in [0, 255]; n
        may be 0.
        """
        return call_with_any_batch(self._forward_some, photos)

    def _forward_some(self, photos):
        if self.crops == "ten":
            photos = ten_crops(photos, self.cnn.image_size)
        features = self._through(self.network, photos)
        if self.crops == "ten":
            features = tf.reshape(features, [-1, 10, self.dim])
            features = tf.reduce_mean(features, axis=1)
        return features

    def _through(self, network, photos):
        outputs = network(self.cnn.preprocess(photos), training=False)
        return tf.cast(outputs, tf.float32)

    def __call__(self, image_bytes):
        """Computes features `[n, dim]` of the JPEG or PNG contents `[n]`."""
        return self.forward(decode_images(image_bytes, self.resizer))


@in_float32()
def build_named_cnn(name, weights, image_size=None, top=True):
    """Builds a `Cnn` with the weights that flags specify.

    `name` may also be a Keras Hub preset, `hub:PRESET`. `weights` is
    `imagenet`; a weights file; `random` for random weights from a fixed seed;
    or None for random weights from the global seed. A preset uses its own
    weights unless `weights` is `random`.
    """
    if weights == RANDOM:
        keras.utils.set_random_seed(0)
    if hub.is_hub(name):
        build = hub.package().build_hub_cnn
        return build(name, weights == RANDOM, image_size)
    weights = None if weights == RANDOM else weights
    return build_cnn(name, weights, image_size, top)


def build_described_cnn(description, weights):
    """Builds the `Cnn` that extracted a store's features.

    `weights` is as in `build_named_cnn`, or `hub:PRESET` if a preset extracted
    the features. Weights that do not match `description` raise an error.
    """
    name, size = description["cnn"], description["image_size"]
    if hub.is_hub(name):
        if not hub.is_hub(weights):
            expected = "be hub:PRESET, the preset that extracted the features"
            raise InputError("weights", expected, weights)
        name = weights
    cnn = build_named_cnn(name, weights, size, description["top"])
    built = cnn.description()
    for key in ("config_sha256", "weights_sha256"):
        if built.get(key) != description.get(key):
            raise InputError(
                "weights",
                f"have the {key} {description.get(key)}, as those that "
                "extracted the features",
                f"weights={weights} with {built.get(key)}",
            )
    return cnn


def open_photo_features(description, weights):
    """Builds the `PhotoFeatures` that extracted a store's features.

    If `description` is `{"side_by_side": [descriptions]}`, returns
    `SeveralNetworks`. `weights` is as in `build_described_cnn`.
    """
    if SIDE_BY_SIDE in description:
        parts = description[SIDE_BY_SIDE]
        return SeveralNetworks([open_photo_features(x, weights) for x in parts])
    cnn = build_described_cnn(description, weights)
    return PhotoFeatures(cnn, description["layers"], description["crops"])
