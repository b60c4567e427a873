"""Encoders that map pixels `[n, height, width, 3]` to features `[n, dim]`."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, Path, short_repr
from tbnets.features import cnn
from tbnets.layers.branch import batch_normalization, share_statistics
from tbnets.layers.configured import ConfiguredLayer, checked_units


@keras.saving.register_keras_serializable(package="tbnets")
class SmallConvNet(ConfiguredLayer):
    """A convolutional network small enough to train on two CPU cores.

    A stage consists of a 3x3 convolution with stride 2, batch normalisation and
    ReLU. The last map is flattened to preserve the positions of objects.

    Args:
        channels: output channels per stage. Every stage halves the map's sides.

    A call maps float `[n, height, width, 3]` in [0, 255] to `[n, height' *
    width' * channels[-1]]`.

    Example:
        encoder = tbnets.SmallConvNet((16, 32))
        pixels = tbnets.decode_images(["dog.jpg"], 64)
        encoder(pixels).shape  # (1, 16 * 16 * 32)
    """

    def __init__(
        self, channels: Sequence[int] = (32, 64, 96, 128), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.channels = checked_units(channels, "channels")
        self.stages = []
        for i, size in enumerate(self.channels):
            policy = self.dtype_policy
            options = {"strides": 2, "padding": "same", "use_bias": False}
            options |= {"name": f"conv{i + 1}", "dtype": policy}
            # The list is flat because Keras 2 does not save nested lists.
            self.stages += [
                keras.layers.Conv2D(size, 3, **options),
                batch_normalization(f"bn{i + 1}", policy),
            ]

    def _pairs(self):
        return zip(self.stages[::2], self.stages[1::2])

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the stages in order."""
        shape = tuple(input_shape)
        for convolution, normalisation in self._pairs():
            convolution.build(shape)
            height, width = (shape[1] + 1) // 2, (shape[2] + 1) // 2
            shape = (shape[0], height, width, convolution.filters)
            normalisation.build(shape)
        self.output_dim = shape[1] * shape[2] * shape[3]
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the last feature map, flattened."""

        def encode(pixels):
            outputs = pixels / 127.5 - 1.0
            for convolution, normalisation in self._pairs():
                outputs = normalisation(convolution(outputs), training=training)
                outputs = tf.nn.relu(outputs)
            return tf.reshape(outputs, [-1, self.output_dim])

        return cnn.call_with_any_batch(encode, inputs)


class PooledEncoder(ConfiguredLayer):
    """Averages a network's last feature map."""

    def take_network(self, built: cnn.Cnn, fine_tune: bool) -> None:
        """Uses the network of a `cnn.Cnn`, without its classifier."""
        self.fine_tune, self.preprocess = fine_tune, built.preprocess
        self.network = cnn.pooled_network(built, built.outputs([cnn.LAST]))
        self.network.trainable = fine_tune
        share_statistics(self.network)
        self.output_dim = self.network.output_shape[-1]

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the pooled feature vectors of photos."""
        learn = training and self.fine_tune

        def encode(pixels):
            return self.network(self.preprocess(pixels), training=learn)

        return cnn.call_with_any_batch(encode, inputs)


@keras.saving.register_keras_serializable(package="tbnets")
class ApplicationEncoder(PooledEncoder):
    """Averages the last feature map of a network in `features.cnn.NETWORKS`.

    Args:
        application: a key of `NETWORKS`.
        image_size: side of the square input in pixels.
        weights: `imagenet`, a path to a weights file, or None for random
            weights.
        fine_tune: whether the network's weights are trained. If False, batch
            normalisation always runs in inference mode.

    A call maps float `[n, image_size, image_size, 3]`, RGB in [0, 255], to `[n,
    channels]`.

    Example:
        encoder = tbnets.ApplicationEncoder("EfficientNetLite0", 224)
        encoder(tbnets.decode_images(["dog.jpg"], 224)).shape  # (1, 1280)
    """

    def __init__(
        self,
        application: str = "MobileNetV2",
        image_size: int = 224,
        weights: Path | None = None,
        fine_tune: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = application
        self.image_size = image_size
        built = cnn.build_cnn(application, weights, image_size, top=False)
        self.take_network(built, fine_tune)

    __repr__ = short_repr("application", "image_size", "fine_tune")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, with `weights` set to None."""
        return {**super().get_config(), "weights": None}
