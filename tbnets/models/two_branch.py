"""The base class of two-branch models."""

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import Array, Batch, Tensors, checked_dict, checked_number
from tbnets.data.batches import Batches
from tbnets.errors import InputError, check_kind
from tbnets.layers.branch import SeededDropout
from tbnets.layers.chunks import check_encoder, encode_in_chunks
from tbnets.layers.configured import parameters_of, repr_of
from tbnets.losses import replicas
from tbnets.losses.distances import similarities
from tbnets.models import fit_arguments
from tbnets.models.fit_arguments import CheckedModel
from tbnets.training.optimizers import current_learning_rate, loss_scale


class StepMean(keras.metrics.Metric):
    """Averages a scalar over the steps."""

    # All replicas report the same value, so each replica keeps its own mean.
    # In Keras 3, `keras.metrics.Mean` sums its variables over the replicas.

    def __init__(self, name):
        super().__init__(name=name)
        total_and_count = tf.Variable(
            tf.zeros([2]),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        # A function hides the variable, which Keras 2 would count as a weight.
        self._total_and_count = lambda: total_and_count

    def update_state(self, value):
        """Adds the scalar value of one step."""
        value = tf.cast(value, tf.float32)
        self._total_and_count().assign_add([value, 1.0])

    def result(self):
        """Returns the mean over the steps so far, or 0 if there were none."""
        total_and_count = tf.convert_to_tensor(self._total_and_count())
        return tf.math.divide_no_nan(*tf.unstack(total_and_count))

    def reset_state(self):
        """Resets the mean."""
        self._total_and_count().assign(tf.zeros([2]))


SIDES = {
    "image_branch": "tbnets.Branch((512, 256))",
    "text_branch": "tbnets.Branch((512, 256))",
    "image_encoder": "tbnets.SmallConvNet()",
    "text_encoder": "tbnets.MeanOfWords(vocabulary.size)",
}
"""Argument names of a network's layers, with an example for each."""


def check_sides(model):
    """Raises an error if a branch or encoder is not a Keras layer."""
    for name, example in SIDES.items():
        part = getattr(model, name)
        advice = f"Pass for example {example}."
        if part is not None or name.endswith("branch"):
            check_kind(name, part, keras.layers.Layer, advice)


def draw_apart(image_branch, text_branch):
    """Makes branches with the same seeds use different dropout masks.

    Row i of one branch and row i of the other may form a pair. If their masks
    were the same, a network would learn to recognise pairs by their masks.
    """
    seeds = {layer.seed for layer in _dropouts(image_branch)}
    for layer in _dropouts(text_branch):
        if layer.seed in seeds:
            layer.draw_apart()


def _dropouts(branch):
    steps = getattr(branch, "steps", ())
    return [step for step in steps if isinstance(step, SeededDropout)]


def _output_dim(layer):
    size = getattr(layer, "output_dim", None)
    if size is None:
        raise InputError(
            "A branch or encoder must have an `output_dim`. Received: "
            f"{type(layer).__name__}. Set it in `__init__` or `build`."
        )
    return size


def build_side(shape, encoder, branch):
    """Builds an encoder, which may be None, and the branch after it.

    Returns:
        The output size of the branch.
    """
    if encoder is not None:
        if not encoder.built:
            encoder.build(shape)
        shape = (None, _output_dim(encoder))
    if not branch.built:
        branch.build(shape)
    return _output_dim(branch)


def embed_side(inputs, encoder, branch, training, chunk=None):
    """Applies the encoder, if there is one, and the branch to inputs.

    In training, the encoder gets at most `chunk` rows at a time, if not None.
    """
    if encoder is not None and training and chunk:
        inputs = encode_in_chunks(encoder, inputs, chunk)
    elif encoder is not None:
        inputs = encoder(inputs, training=training)
    return branch(inputs, training=training)


INPUTS = ("images", "captions")
IDS = ("image_ids", "caption_image_ids")
KERAS_2 = keras.__version__.startswith("2.")


def ids_of(batch):
    """Returns the arguments of `positive_masks` for a batch."""
    return *(batch[name] for name in IDS), batch.get("text_ids")


class TwoBranchModel(CheckedModel):
    """Base class of models with an image branch and a text branch.

    ::

        images -> [image_encoder ->] image_branch
        texts  -> [text_encoder  ->] text_branch

    A subclass defines `batch_loss` and `report`. It must store the arguments of
    its constructor and of `compile` in attributes with the arguments' names,
    because the configs are read from these attributes.

    Args:
        image_branch: layer applied to the images, with an `output_dim`.
        text_branch: layer applied to the texts, with an `output_dim`.
        image_encoder: layer that turns pixels into features, or None.
        text_encoder: layer that turns word ids into features, or None.

    Attributes:
        learned_similarity: whether the model learns `similarities`; otherwise
            they are inner products. If True, the model also defines
            `judge(image_rows, text_rows)`, which returns the similarities `[p]`
            of pairs of rows, and `floats_per_pair`.
        build_inputs: names of the inputs whose shapes `build` requires.
        largest_batch: maximum numbers of images and captions in a batch, or
            None if unknown. The loss of a large batch is computed in tiles.

    Example:
        network = tbnets.load_model("network.keras")
        isinstance(network, tbnets.TwoBranchModel)  # True
        images = network.embed_images(image_features)  # (n, embedding_dim)
        network.similarities(images, network.embed_text(word_ids))  # (n, m)
    """

    learned_similarity = False
    build_inputs = INPUTS
    input_shapes = None
    largest_batch = None
    encode_chunk = None

    def __init__(
        self,
        image_branch: keras.layers.Layer,
        text_branch: keras.layers.Layer,
        image_encoder: keras.layers.Layer | None = None,
        text_encoder: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_branch = image_branch
        self.text_branch = text_branch
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder
        check_sides(self)
        draw_apart(image_branch, text_branch)
        names = ["loss", "gradient_norm", "learning_rate"]
        names += self.reported_names()
        self.trackers = {name: StepMean(name) for name in names}

    def __repr__(self) -> str:
        details = {"built": False}
        if self.built:
            weights = sum(layer.count_params() for layer in self.layers)
            details = {"embedding_dim": self.embedding_dim, "weights": weights}
        return repr_of(self, TwoBranchModel, **details)

    @staticmethod
    def reported_names() -> list[str]:
        """Returns all names that `report` may return."""
        return []

    def batch_loss(self, batch: Batch, training: bool = False) -> Any:
        """Returns the loss of one batch: an object with the scalar `total`."""
        raise NotImplementedError

    def report(self, output: Any) -> Tensors:
        """Returns {name: scalar} to report for a `batch_loss`."""
        return {}

    @property
    def embedding_dim(self) -> int:
        """Size of the embeddings."""
        return self.image_branch.output_dim

    def embed_images(self, images: Array, training: bool = False) -> tf.Tensor:
        """Returns float32 unit vectors `[n, embedding_dim]` for the images."""
        images = self._checked("images", images, self.image_encoder)
        return embed_side(
            images,
            self.image_encoder,
            self.image_branch,
            training,
            self.encode_chunk,
        )

    def embed_text(self, captions: Array, training: bool = False) -> tf.Tensor:
        """Returns float32 unit vectors `[m, embedding_dim]` for the texts."""
        captions = self._checked("captions", captions, self.text_encoder)
        return embed_side(
            captions,
            self.text_encoder,
            self.text_branch,
            training,
            self.encode_chunk,
        )

    @tf.autograph.experimental.do_not_convert
    def _checked(self, name, inputs, encoder):
        shape = self.input_shapes and self.input_shapes[name]
        return fit_arguments.checked_inputs(name, inputs, encoder, shape)

    def embed(
        self, inputs: Batch, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the embeddings of `images` and of `captions`."""
        inputs = checked_dict("inputs", inputs, INPUTS)
        images = self.embed_images(inputs["images"], training=training)
        return images, self.embed_text(inputs["captions"], training=training)

    def similarities(
        self, image_embeddings: Array, text_embeddings: Array
    ) -> tf.Tensor:
        """Returns float32 `[n, m]`, the inner products of all pairs.

        Args:
            image_embeddings: float32 `[n, embedding_dim]`.
            text_embeddings: float32 `[m, embedding_dim]`.
        """
        return similarities(image_embeddings, text_embeddings)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        gradient_clip_norm: float | None = None,
        encode_chunk: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepares the model for `fit`.

        Args:
            optimizer: a Keras optimizer or its name.
            gradient_clip_norm: maximum global norm of a step's gradient; None
                for no clipping. Vilalta et al. 2017 use 2.
            encode_chunk: maximum number of images or of captions that an
                encoder processes at a time in training; None for all. A step
                with chunks needs less memory and encodes each row twice.
            **kwargs: arguments of `keras.Model.compile`, except losses and
                metrics.
        """
        if gradient_clip_norm is not None:
            checked_number(
                "gradient_clip_norm", gradient_clip_norm, 0, above=True
            )
        if encode_chunk is not None:
            self._check_chunk(encode_chunk, kwargs.get("jit_compile"))
        fit_arguments.refuse_unheeded(kwargs)
        kwargs.setdefault("jit_compile", False)
        super().compile(optimizer=optimizer, **kwargs)
        self.gradient_clip_norm = gradient_clip_norm
        self.encode_chunk = encode_chunk

    def _check_chunk(self, encode_chunk, jit_compile):
        checked_number("encode_chunk", encode_chunk, 1, whole=True)
        if jit_compile:
            raise InputError(
                "jit_compile",
                "be False with `encode_chunk`",
                f"jit_compile={jit_compile}, encode_chunk={encode_chunk}",
                "Leave one of them out.",
            )
        for encoder in self._encoders():
            if encoder is not None:
                check_encoder(encoder, "encode_chunk", encode_chunk)

    def _encoders(self):
        return [self.image_encoder, self.text_encoder]

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of `compile`, or {} for an uncompiled model."""
        config = super().get_compile_config()
        return config and {**config, **self._arguments("compile")}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles the model from the result of `get_compile_config`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and hasattr(self.optimizer, "build"):
            self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The epoch means of the values that `train_step` may report."""
        return list(self.trackers.values())

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Builds both sides.

        Args:
            input_shape: dict with the shapes of `images` and `captions`; the
                numbers of images, captions and words may be None.
        """
        shapes = checked_dict("inputs", input_shape, INPUTS)
        shapes = {key: tuple(shape) for key, shape in shapes.items()}
        image_side = self.image_encoder, self.image_branch
        text_side = self.text_encoder, self.text_branch
        images = build_side(shapes["images"], *image_side)
        texts = build_side(shapes["captions"], *text_side)
        if images != texts:
            raise InputError(
                "`image_branch` and `text_branch` must have the same "
                f"output size. Received: {images} and {texts}. Change the size "
                "of a last layer."
            )
        self.input_shapes = shapes
        self.built = True

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns the shapes for `build`, which Keras 2 does not store."""
        shapes = self.input_shapes
        return shapes and {
            "input_shape": {key: list(shape) for key, shape in shapes.items()}
        }

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Builds the model from the result of `get_build_config`."""
        self.build(config["input_shape"])

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains like `keras.Model.fit`, but rejects non-finite numbers.

        Args:
            *args: arguments of `keras.Model.fit`. `x` and `validation_data` may
                also be `EpochBatches`; `fit` sets the epoch of `x`.
            **kwargs: arguments of `keras.Model.fit`.

        Raises:
            TypeError: If an argument is a list or an array of text.
            ValueError: If an array contains NaN or infinity or has too few
                rows, or if the loss or gradient of an epoch is not finite.
        """
        bound = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs)
        strategy = self.distribute_strategy
        batches = bound.arguments.get("x")
        if isinstance(batches, Batches):
            self.largest_batch = batches.largest
        callbacks, reader = self.own_callbacks(), self.text_encoder
        fit_arguments.prepare_arguments(
            bound.arguments, reader, strategy, callbacks
        )
        optimizer = getattr(self, "optimizer", None)
        is_built = getattr(optimizer, "built", False)
        if self.built and hasattr(optimizer, "build") and not is_built:
            # If a step created these variables, Keras would trace it twice.
            with strategy.scope():
                optimizer.build(self.trainable_variables)
        if strategy.num_replicas_in_sync > 1:
            return fit_arguments.fit_replicas(**bound.arguments)
        return super().fit(*bound.args[1:], **bound.kwargs)

    def own_callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns callbacks that run before all others in `fit`."""
        return [fit_arguments.FiniteSteps()]

    def train_step(self, batch: Batch) -> Tensors:
        """Updates the weights; returns the metrics' means in this epoch."""
        rate = current_learning_rate(self.optimizer)
        scale = loss_scale(self.optimizer)
        self._build_for(batch)
        with tf.GradientTape() as tape:
            output = self.batch_loss(batch, training=True)
            # `self.losses` are the penalties on weights.
            total = tf.add_n([output.total, *self.losses])
            total = replicas.part_of(total * scale)
        variables = self.trainable_variables
        gradients = tape.gradient(total, variables)
        gradients = replicas.summed(gradients)
        norm = tf.linalg.global_norm(gradients)
        if self.gradient_clip_norm:
            gradients, _ = tf.clip_by_global_norm(
                gradients, self.gradient_clip_norm * scale, use_norm=norm
            )
        norm /= scale
        if tf.is_tensor(scale):  # Steps that overflow are skipped.
            norm = tf.where(tf.math.is_finite(norm), norm, 0.0)
        # Keras sums the replicas' gradients again.
        gradients = map(replicas.part_of, gradients)
        self.optimizer.apply_gradients(zip(gradients, variables))
        if KERAS_2 and hasattr(self.optimizer, "build"):
            rate = current_learning_rate(self.optimizer)
        return self._track(output, gradient_norm=norm, learning_rate=rate)

    def test_step(self, batch: Batch) -> Tensors:
        """Evaluates a batch; returns the metrics' means in this epoch."""
        self._build_for(batch)
        return self._track(self.batch_loss(batch))

    def _build_for(self, batch):
        """Builds the network before the first batch, as Keras 3 does."""
        if not self.built:
            batch = checked_dict("batch", batch, self.build_inputs)
            self.build({name: batch[name].shape for name in self.build_inputs})

    def _track(self, output, **scalars):
        scalars.update(loss=output.total, **self.report(output))
        for name, value in scalars.items():
            self.trackers[name].update_state(value)
        return {name: self.trackers[name].result() for name in scalars}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, with layers as their configs."""
        return {**super().get_config(), **self._arguments("__init__")}

    def _arguments(self, method):
        """Returns the arguments of a method as a config."""
        names = parameters_of(type(self), method, TwoBranchModel)
        arguments = {name: getattr(self, name) for name in names}
        arguments.pop("optimizer", None)  # Already in the config of Keras.
        return keras.saving.serialize_keras_object(arguments)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds a new model from a config."""
        return cls(**keras.saving.deserialize_keras_object(config))
