"""Branches, and the head that scores pairs of their embeddings.

The image branch and the text branch map features or encoder outputs into a
shared space (Wang et al. 2016, Fig. 1).
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, checked_number
from tbnets.errors import InputError, check_choice
from tbnets.layers import configured
from tbnets.losses import replicas

_APART = 1 << 30
"""Seed offset for layers on which `draw_apart` was called."""


@keras.saving.register_keras_serializable(package="tbnets")
class SeededDropout(configured.ConfiguredLayer):
    """Applies dropout whose masks do not change if training is interrupted.

    The mask depends on `seed` and on a counter of masks, a non-trainable weight
    that checkpoints contain. XLA draws different masks than TensorFlow's
    kernels. Each replica draws its own masks.

    Args:
        rate: fraction of units set to 0, in [0, 1). The remaining units are
            scaled by `1 / (1 - rate)`.
        seed: integer. Layers of a branch need different seeds. The model calls
            `draw_apart` if both branches have the same seed.

    Example:
        drop = tbnets.SeededDropout(0.5, seed=1)
        drop(image_features, training=True)  # half become 0, half are doubled
    """

    def __init__(self, rate: float, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checked_number("rate", rate, 0, most=1, below=True)
        self.rate, self.seed = rate, seed
        self.supports_masking = True
        self.stream = seed

    def draw_apart(self) -> None:
        """Changes the masks, so that two layers with the same seed differ."""
        self.stream = self.seed ^ _APART

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the counter of masks."""
        # Some versions of Keras do not save the state of their own dropout.
        options = {"initializer": "zeros", "trainable": False}
        # TensorFlow keeps int32 variables on the host, and XLA cannot compile
        # a GPU's training step that reads them.
        self.draws = self.add_weight(
            name="draws", shape=(), dtype="int64", **options
        )
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns `inputs`, with dropout if `training` is true."""
        if not training or not self.rate:
            return inputs
        draws = tf.convert_to_tensor(self.draws)
        self.draws.assign(draws + 1)
        draws = tf.cast(draws, tf.int32)
        count = replicas.num_replicas()
        if count > 1:
            context = tf.distribute.get_replica_context()
            place = tf.cast(context.replica_id_in_sync_group, tf.int32)
            draws = draws * count + place
        seed = tf.stack([tf.constant(self.stream, tf.int32), draws])
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed)


def batch_normalization(name, dtype=None):
    """Returns a batch normalisation layer, synchronised across replicas."""
    return keras.layers.BatchNormalization(
        momentum=0.9, name=name, dtype=dtype, synchronized=_has_replicas()
    )


def share_statistics(network):
    """Synchronises a network's batch normalisation across replicas.

    Batch normalisation inside a layer that is not a model is not synchronised.
    """
    if not _has_replicas():
        return
    for layer in getattr(network, "layers", ()):
        share_statistics(layer)
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True
            layer.fused = False  # Keras 2 prefers fused kernels.


def _has_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync > 1


BATCH_NORMALIZATION = ("last", "first", "none")


@keras.saving.register_keras_serializable(package="tbnets")
class Branch(configured.ConfiguredLayer):
    """Maps features `[n, feature_dim]` to unit vectors `[n, output_dim]`.

    By default, the branch is the network of Wang et al. 2016 and 2018::

        x -> [FC -> ReLU -> dropout] * (len(units) - 1) -> FC -> BN -> L2

    `"first"` puts batch normalisation between the first FC and its ReLU, as in
    the authors' released code. For the linear branch of the papers' ablations,
    pass a single entry in `units` and `batch_normalization="none"`.

    Args:
        units: sizes of the fully connected layers. The papers use `(2048, 512)`
            for CNN and Fisher-vector features, and `(1024, 512)` for LSTM
            states. If it is `()`, the branch applies only L2 normalisation,
            like the text branch of Vilalta et al. 2017.
        batch_normalization: `last`, `first` or `none`.
        dropout: dropout rate after each ReLU.
        input_dropout: dropout rate on the branch's input.
        seed: integer seed of the dropout masks.

    A call returns float32 under every dtype policy.

    Example:
        branch = tbnets.Branch((2048, 512))
        branch(image_features).shape  # (n, 512)

    Source: Wang et al. 2016, Sec. 2.1 and 3.1; Wang et al. 2018, Sec. 3.2.1.
    Departures: batch normalisation has momentum 0.9 (0.1 in the released code).
    """

    def __init__(
        self,
        units: Sequence[int] = (2048, 512),
        batch_normalization: str = "last",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        name = "batch_normalization"
        check_choice(name, batch_normalization, BATCH_NORMALIZATION)
        self.units = configured.checked_units(units)
        self.output_dim: int | None = self.units[-1] if units else None
        self.batch_normalization = batch_normalization
        self.dropout, self.input_dropout = dropout, input_dropout
        self.seed = seed
        self.steps = self._make_steps()

    def _make_steps(self):
        steps, policy = [], self.dtype_policy
        if self.input_dropout:
            rate = self.input_dropout
            steps.append(SeededDropout(rate, self.seed, dtype=policy))
        last = len(self.units) - 1
        for i, size in enumerate(self.units):
            name = f"fc{i + 1}"
            steps.append(keras.layers.Dense(size, name=name, dtype=policy))
            normalised_layer = {"first": 0, "last": last, "none": -1}
            if i == normalised_layer[self.batch_normalization]:
                steps.append(batch_normalization("bn", policy))
            if i < last:
                name = f"relu{i + 1}"
                steps.append(keras.layers.ReLU(name=name, dtype=policy))
                if self.dropout:
                    rate, seed = self.dropout, self.seed + i + 1
                    steps.append(SeededDropout(rate, seed, dtype=policy))
        return steps

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the layers in sequence."""
        if len(input_shape) != 2:
            raise InputError(
                "input_shape",
                "be (n, feature_dim) for a layer without an encoder",
                tuple(input_shape),
            )
        self.output_dim = configured.build_steps(
            self.steps, tuple(input_shape)
        )[-1]
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns embeddings of unit length, `[n, output_dim]`."""
        outputs = configured.run_steps(self.steps, inputs, training)
        return tf.math.l2_normalize(tf.cast(outputs, tf.float32), axis=-1)


@keras.saving.register_keras_serializable(package="tbnets")
class CanonicalProjection(configured.FittedLayer):
    """Maps features `[n, feature_dim]` to unit vectors `[n, output_dim]`.

    ::

        x -> (x - mean) projection [+ bias] -> L2

    `models.cca` computes the weights, which are not trainable.

    Args:
        output_dim: size of the shared space. Gong et al. 2014 use at least 256.
        use_bias: whether to add a bias. CCA with background regions needs a
            bias for texts.

    A call returns float32 under every dtype policy. Without a bias, an input
    equal to the mean maps to 0.

    Example:
        projection = tbnets.CanonicalProjection(32)
        projection(image_features).shape  # (n, 32)

    Source: Gong et al. 2014, Sec. 3.3.
    """

    def __init__(
        self, output_dim: int, use_bias: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.output_dim = checked_number(
            "output_dim", output_dim, 1, whole=True
        )
        self.use_bias = use_bias
        self.bias = None

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the weights. `models.cca` sets their values."""
        size = input_shape[-1]
        self.constant("mean", (size,))
        # Computed in float64, stored and applied in float32.
        self.constant("projection", (size, self.output_dim), "identity")
        if self.use_bias:
            self.constant("bias", (self.output_dim,))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns embeddings of unit length, `[n, output_dim]`."""
        rows = tf.cast(inputs, tf.float32) - tf.convert_to_tensor(self.mean)
        outputs = tf.matmul(rows, tf.convert_to_tensor(self.projection))
        if self.bias is not None:
            outputs += tf.convert_to_tensor(self.bias)
        return tf.math.l2_normalize(outputs, axis=-1)


@keras.saving.register_keras_serializable(package="tbnets")
class PairHead(configured.ConfiguredLayer):
    """Maps the element-wise products `[n, dim]` of pairs to logits `[n]`.

    ::

        x * y -> [FC -> ReLU -> dropout] * len(units) -> FC of one unit

    Args:
        units: sizes of the FC layers before the last one.
        dropout: dropout rate after each ReLU.
        scale: factor by which the products are multiplied; None for `dim`,
            because products of unit vectors are about 1 / dim.
        seed: integer seed of the dropout masks.

    The last layer computes in float32 under every dtype policy.

    Example:
        head = tbnets.PairHead((512, 256))
        head(image_embeddings * text_embeddings).shape  # (n,)

    Source: Wang et al. 2018, Sec. 3.3 and 4.3. Departures: the paper mentions
    no `scale` and no `dropout` for this network.
    """

    def __init__(
        self,
        units: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        scale: float | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = configured.checked_units(units)
        self.dropout, self.scale, self.seed = dropout, scale, seed
        self.steps, policy = [], self.dtype_policy
        for i, size in enumerate(self.units):
            options = {"activation": "relu", "name": f"fc{i + 1}"}
            self.steps.append(keras.layers.Dense(size, dtype=policy, **options))
            if dropout:
                drop = SeededDropout(dropout, seed + i, dtype=policy)
                self.steps.append(drop)
        self.last = keras.layers.Dense(1, dtype="float32", name="logit")

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Builds the layers in sequence."""
        shape = tuple(input_shape)
        self.factor = float(shape[-1] if self.scale is None else self.scale)
        self.last.build(configured.build_steps(self.steps, shape))
        super().build(input_shape)

    def call(self, inputs: Array, training: bool = False) -> tf.Tensor:
        """Returns the logits, float32 `[n]`, for products `[n, dim]`."""
        outputs = inputs * tf.cast(self.factor, inputs.dtype)
        outputs = configured.run_steps(self.steps, outputs, training)
        return tf.squeeze(self.last(outputs), axis=-1)
