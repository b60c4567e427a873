"""The base class of two-branch models."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import keras
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import Array, Batch, Tensors, checked_dict, checked_number
from tbnets.data.batches import Batches
from tbnets.errors import InputError, InputTypeError
from tbnets.layers.branch import Branch
from tbnets.layers.chunks import check_encoder
from tbnets.layers.configured import parameters_of, repr_of
from tbnets.losses import replicas
from tbnets.losses.distances import similarities
from tbnets.models import fitting, sides
from tbnets.training.optimizers import (
    current_learning_rate,
    loss_scale,
    sum_repeated_rows,
)


class StepMean(keras.metrics.Metric):
    """Averages a scalar over the steps of an epoch."""

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


Metric = Callable[[Any, Batch], Any]
"""Computes a scalar from a network and a batch."""
INPUTS = ("images", "captions")
IDS = ("image_ids", "caption_image_ids")
KERAS_2 = keras.__version__.startswith("2.")


def ids_of(batch):
    """Returns the arguments of `positive_masks` for a batch."""
    return *(batch[name] for name in IDS), batch.get("text_ids")


class TwoBranchModel(keras.Model):
    """Base class of models with an image branch and a text branch.

    ::

        images -> [image_encoder ->] image_branch
        texts  -> [text_encoder  ->] text_branch

    The layers may be any Keras layers or models that map one tensor to a tensor
    `[n, dim]`. The outputs of the branches are L2-normalised.

    A subclass defines `batch_loss` and `report`. It must store each argument of
    its constructor and of `compile` in an attribute of the same name, from
    which configs are read.

    Args:
        image_branch: layer applied to the images; None means `Branch()`.
        text_branch: layer applied to the texts; None means `Branch()`.
        image_encoder: layer that turns pixels into features, or None.
        text_encoder: layer that turns word ids or strings into features, or
            None.

    Attributes:
        learned_similarity: whether the model learns `similarities` instead of
            computing inner products. If True, the model also defines
            `floats_per_pair` and `judge(image_rows, text_rows)`, which returns
            a score per pair.
        build_inputs: names of the inputs whose shapes `build` requires.
        largest_batch: maximum numbers of images and captions in a batch, or
            None if unknown.

    Example:
        network = tbnets.load_model("network.keras")
        isinstance(network, tbnets.TwoBranchModel)  # True
        images = network.embed_images(image_features)  # (n, embedding_dim)
        network.similarities(images, network.embed_text(word_ids))  # (n, m)
    """

    learned_similarity = False
    build_inputs = INPUTS
    input_shapes = None
    input_dtypes = None
    largest_batch = None
    encode_chunk = None
    loss: Any = None
    _functions: Mapping[str, Metric] = MappingProxyType({})
    _means: Mapping[str, StepMean] = MappingProxyType({})

    def __init__(
        self,
        image_branch: keras.layers.Layer | None = None,
        text_branch: keras.layers.Layer | None = None,
        image_encoder: keras.layers.Layer | None = None,
        text_encoder: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_branch = Branch() if image_branch is None else image_branch
        self.text_branch = Branch() if text_branch is None else text_branch
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder
        self.output_dims: dict[str, int] = {}
        sides.draw_apart(self.image_branch, self.text_branch)
        names = ["loss", "gradient_norm", "learning_rate"]
        names += self.reported_names()
        self.trackers = {name: StepMean(name) for name in names}

    def __repr__(self) -> str:
        details = {"built": False}
        if self.built:
            details = {"embedding_dim": self.embedding_dim}
            details["weights"] = self.count_params()
        return repr_of(self, TwoBranchModel, **details)

    @staticmethod
    def reported_names() -> list[str]:
        """Returns all names that `report` may return."""
        return []

    def batch_loss(self, batch: Batch, training: bool = False) -> Any:
        """Returns the loss of one batch, an object with a scalar `total`."""
        raise NotImplementedError

    def report(self, output: Any) -> Tensors:
        """Returns {name: scalar} to report for the result of `batch_loss`."""
        return {}

    @property
    def embedding_dim(self) -> int:
        """Size of the embeddings."""
        built = self.output_dims.get("image_branch")
        return built or self.image_branch.output_dim

    @property
    def text_reader(self) -> keras.layers.Layer:
        """The layer that reads the captions of a batch."""
        encoder = self.text_encoder
        return self.text_branch if encoder is None else encoder

    @property
    def text_spec(self) -> tf.TensorSpec | None:
        """Spec of captions that a layer from outside tbnets reads, or None."""
        dtype = (self.input_dtypes or {}).get("captions", "float32")
        reads_features = tf.as_dtype(dtype).is_floating
        if reads_features or not fitting.may_read_text(self.text_reader):
            return None
        name = "captions" if dtype == "string" else "token_ids"
        shape = self.input_shapes["captions"][1:]
        return tf.TensorSpec((None, *shape), dtype, name)

    def embed_images(self, images: Array, training: bool = False) -> tf.Tensor:
        """Returns float32 unit vectors `[n, embedding_dim]` for the images."""
        return self.embed_side("image", "images", images, training)

    def embed_text(self, captions: Array, training: bool = False) -> tf.Tensor:
        """Returns float32 unit vectors `[m, embedding_dim]` for the texts."""
        return self.embed_side("text", "captions", captions, training)

    @tf.autograph.experimental.do_not_convert
    def embed_side(
        self, side: str, name: str, inputs: Array, training: bool
    ) -> tf.Tensor:
        """Applies the encoder, if there is one, and the branch of a side.

        Args:
            side: prefix of the layers' names, such as `image`.
            name: key of the inputs in a batch, such as `images`.
            inputs: `[n, ...]`.
            training: whether dropout is on.
        """
        encoder = getattr(self, f"{side}_encoder")
        branch = getattr(self, f"{side}_branch")
        inputs = fitting.checked_inputs(
            name,
            inputs,
            encoder,
            branch if encoder is None else encoder,
        )
        if encoder is not None:
            size = self.output_dims.get(f"{side}_encoder")
            chunk = self.encode_chunk if training else None
            inputs = sides.encode(encoder, inputs, training, chunk, size)
        return sides.unit_rows(branch, inputs, training)

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
        """Returns the inner products of all pairs, float32 `[n, m]`.

        Args:
            image_embeddings: float32 `[n, embedding_dim]`.
            text_embeddings: float32 `[m, embedding_dim]`.
        """
        return similarities(image_embeddings, text_embeddings)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: Any = None,
        gradient_clip_norm: float | None = None,
        encode_chunk: int | None = None,
        metrics: Mapping[str, Metric] | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepares the model for `fit`.

        Args:
            optimizer: a Keras optimizer or its name.
            loss: the loss of the class of the network.
            gradient_clip_norm: maximum global norm of the gradient in a step;
                None disables clipping.
            encode_chunk: number of rows that an encoder processes at a time in
                training; None means all. Chunks save memory, but each row is
                encoded twice.
            metrics: dict from names to functions `(network, batch) -> scalar`.
                `fit` and `evaluate` call them after each step, and report the
                means over the epoch. `save` does not save them.
            **kwargs: other arguments of `keras.Model.compile`.
        """
        if gradient_clip_norm is not None:
            checked_number(
                "gradient_clip_norm", gradient_clip_norm, 0, above=True
            )
        if encode_chunk is not None:
            self._check_chunk(encode_chunk, kwargs.get("jit_compile"))
        fitting.check_no_targets(kwargs)
        kwargs.setdefault("jit_compile", False)
        super().compile(optimizer=optimizer, **kwargs)
        self.loss, self.gradient_clip_norm = loss, gradient_clip_norm
        self.encode_chunk = encode_chunk
        # Keras would track a dict, and lock it after `build`.
        self._functions = MappingProxyType({**(metrics or {})})
        self._means = MappingProxyType(
            {k: StepMean(k) for k in self._functions}
        )

    def _check_chunk(self, encode_chunk, jit_compile):
        checked_number("encode_chunk", encode_chunk, 1, whole=True)
        if jit_compile:
            raise InputError(
                "jit_compile", "be False with `encode_chunk`", True
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
        """Metrics, each of which averages a reported value over the epoch."""
        return [*self.trackers.values(), *self._means.values()]

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Builds the encoders and branches.

        Args:
            input_shape: dict with the shapes of `images` and `captions`. The
                numbers of images, captions and words may be None.
        """
        shapes = checked_dict("inputs", input_shape, INPUTS)
        self.input_shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self.build_side("image", "images")
        self.build_side("text", "captions")
        self.built = True

    def build_side(self, side: str, name: str) -> None:
        """Builds the encoder, if there is one, and the branch of a side.

        `embed_side` describes the arguments.
        """
        parts = {
            part: layer
            for part in (f"{side}_encoder", f"{side}_branch")
            if (layer := getattr(self, part)) is not None
        }
        dtypes, shape = self.input_dtypes or {}, self.input_shapes[name]
        reader = next(iter(parts.values()))
        dtype = dtypes.get(name) or sides.input_dtype(reader)
        self.input_dtypes = {**dtypes, name: dtype}
        for part, layer in parts.items():
            shape, dtype = sides.build_layer(part, layer, shape, dtype)
            self.output_dims = {**self.output_dims, part: shape[1]}

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns the input shapes and dtypes; Keras 2 does not store them."""
        shapes = self.input_shapes
        return shapes and {
            "input_shape": {key: list(shape) for key, shape in shapes.items()},
            "input_dtypes": dict(self.input_dtypes),
        }

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Builds the model from the result of `get_build_config`."""
        self.input_dtypes = config["input_dtypes"]
        self.build(config["input_shape"])

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains like `keras.Model.fit`, but rejects non-finite numbers.

        Args:
            *args: arguments of `keras.Model.fit`. `x` and `validation_data` may
                also be `EpochBatches`; `fit` sets the `epoch` of `x`.
            **kwargs: arguments of `keras.Model.fit`.

        Raises:
            TypeError: If an input is a list, or text that no layer reads.
            ValueError: If an array contains NaN or infinity, if arrays have
                different numbers of rows or no rows, or if the mean loss or
                gradient of an epoch is not finite.
        """
        bound = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs)
        strategy = self.distribute_strategy
        batches = bound.arguments.get("x")
        if isinstance(batches, Batches):
            self.largest_batch = batches.largest
        callbacks, reader = self.own_callbacks(), self.text_reader
        fitting.prepare_arguments(bound.arguments, reader, strategy, callbacks)
        self._build_from(bound.arguments.get("x"))
        optimizer = getattr(self, "optimizer", None)
        is_built = getattr(optimizer, "built", False)
        if self.built and hasattr(optimizer, "build") and not is_built:
            # If a step created these variables, Keras would trace it twice.
            with strategy.scope():
                optimizer.build(self.trainable_variables)
        if strategy.num_replicas_in_sync > 1:
            return fitting.fit_replicas(**bound.arguments)
        return super().fit(*bound.args[1:], **bound.kwargs)

    def _on_finite(self, method, args, kwargs):
        # Checking outputs is not enough: a kernel may turn a NaN into 0.
        bound = inspect.signature(method).bind(self, *args, **kwargs)
        fitting.prepare_data(bound.arguments, "x", self.text_reader)
        return bound

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates like `keras.Model.evaluate`, but rejects non-finite input.

        `x` may also be `EpochBatches`. Invalid data raise the errors of `fit`.

        Returns:
            The loss and the values of `report`, as `keras.Model.evaluate`
            returns them.
        """
        bound = self._on_finite(keras.Model.evaluate, args, kwargs)
        return super().evaluate(*bound.args[1:], **bound.kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs of `call`, like `keras.Model.predict`.

        `x` may also be `EpochBatches`. Invalid data raise the errors of `fit`.
        """
        bound = self._on_finite(keras.Model.predict, args, kwargs)
        return super().predict(*bound.args[1:], **bound.kwargs)

    def export(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises TypeError; use `tbnets.export_saved_model` instead.

        The method of Keras exports a function of tensors, which reads neither
        captions nor photos.
        """
        raise InputTypeError(
            "Call tbnets.export_saved_model(network, vocabulary, path) instead "
            "of `export`."
        )

    def own_callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns callbacks that run before all others in `fit`."""
        return [fitting.FiniteSteps()]

    # Keras 3 converts no step either. In Keras 2, it took half of the tracing.
    @tf.autograph.experimental.do_not_convert
    def train_step(self, batch: Batch) -> Tensors:
        """Trains on a batch; returns the metrics of the epoch so far."""
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
        gradients = [*map(sum_repeated_rows, replicas.summed(gradients))]
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
        scalars = {"gradient_norm": norm, "learning_rate": rate}
        return self._track(batch, output, scalars)

    def test_step(self, batch: Batch) -> Tensors:
        """Evaluates a batch; returns the metrics of the evaluation so far."""
        self._build_for(batch)
        return self._track(batch, self.batch_loss(batch), {})

    def _build_from(self, data):
        if isinstance(data, tf.data.Dataset):
            data = data.element_spec
        names = self.build_inputs
        shapes = [
            getattr(data.get(name), "shape", None)
            for name in names
            if isinstance(data, Mapping)
        ]
        if shapes and all(tf.TensorShape(shape).rank for shape in shapes):
            specs = [
                tf.TensorSpec((None, *data[name].shape[1:]), data[name].dtype)
                for name in names
            ]
            if None not in specs[0].shape[1:]:
                self._build_for(dict(zip(names, specs)))

    def _build_for(self, batch):
        if self.built:
            return
        sides.check_vocabularies(self)
        batch = checked_dict("batch", batch, self.build_inputs)
        parts = {name: batch[name] for name in self.build_inputs}
        self.input_dtypes = {k: sides.read_dtype(x) for k, x in parts.items()}
        self.build({name: part.shape for name, part in parts.items()})
        sides.say_normalised(self)

    def _track(self, batch, output, scalars):
        scalars = scalars | {"loss": output.total, **self.report(output)}
        for name, function in self._functions.items():
            value = tf.cast(function(self, batch), tf.float32)
            scalars[name] = replicas.summed(replicas.part_of(value))
        means = self.trackers | self._means
        for name, value in scalars.items():
            means[name].update_state(value)
        return {name: means[name].result() for name in scalars}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, with layers as their configs."""
        return {**super().get_config(), **self._arguments("__init__")}

    def _arguments(self, method):
        names = parameters_of(type(self), method, TwoBranchModel)
        # The config of Keras has the optimizer; functions are not saved.
        names = [name for name in names if name not in ("optimizer", "metrics")]
        arguments = {name: getattr(self, name) for name in names}
        return keras.saving.serialize_keras_object(arguments)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds a new model from a config."""
        return cls(**keras.saving.deserialize_keras_object(config))
